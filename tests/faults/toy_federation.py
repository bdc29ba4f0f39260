"""Federations of real processes whose sites train without torch; in one a site breaks rules."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Self

import torch
from tests.deployment.exactly_once import Twin
from tests.faults.federation_files import whole_lines
from tests.faults.ledger import Ledger
from tests.faults.links import Links
from tests.faults.loopback import Hang, Loopback
from tests.faults.rogue import MISDEEDS, Rogue
from tests.faults.toy_site import ToySite
from tests.faults.toy_training import APP, toy_trained

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.deployment.app.app_file import load_app
from fedcompass.deployment.operator.running_site import RunningSite
from fedcompass.deployment.server.readmission import put_request
from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.deployment.wire.payloads import layout_digest, payload_pieces
from fedcompass.runs.files import GrowingFile
from fedcompass.runs.journal import read_journal
from fedcompass.scheduling.events import UpdateArrived

NO_PROGRESS = 300.0  # seconds without an accepted update: a hang
ROGUE = "rogue"


class ToyTwin:
    """The toy sites once more, in this process."""

    def __init__(self, app: Path, seed: int, numbers: Mapping[str, int]) -> None:
        torch.set_num_threads(1)  # many wait for each other where a machine is busy
        module = load_app(app).model(seed)
        self.layout = Layout.of(module)
        self.initial = self.layout.state_of(module)
        self._numbers = numbers

    def trained(self, start: FlatState, event: UpdateArrived, steps_before: int) -> FlatState:
        model = b"".join(payload_pieces(self.layout, "model", start))
        number = self._numbers[event.client]
        end = toy_trained(model, number, event.task, event.steps_done)
        values = torch.frombuffer(bytearray(end), dtype=torch.float32)
        return FlatState(values, start.averaged.clone(), start.counted.clone())


class ToySites(Loopback):
    """For tests whose point is no site's training: it starts in a fifth of the time.

    Args:
        paces: seconds per step of each site, by name.
        app: the text of app.py.
        settings: everything else `Loopback` takes.
    """

    def __init__(self, paces: Mapping[str, float], app: str = APP, **settings: Any) -> None:
        super().__init__(paces, app=app, **settings)
        self.layout = layout_digest(self.twin().layout)
        for name in paces:
            self.site_settings[name]["layout"] = self.layout
            self._write_site(name)

    def twin(self) -> Twin:  # type: ignore[override]
        numbers = {name: s["number"] for name, s in self.site_settings.items()}
        return ToyTwin(self.project / "app.py", self.settings.seed, numbers)

    def honest_site(self, folder: SiteFolder) -> RunningSite:
        return ToySite(folder)


class ToyFederation(ToySites):
    """Watches that work goes on, whatever is done to it.

    Args:
        paces: seconds per step of the honest sites.
        app: the text of app.py.
        settings: of the run.
    """

    def __init__(self, paces: Mapping[str, float], app: str = APP, **settings: Any) -> None:
        super().__init__({**paces, ROGUE: 0.0}, app=app, **settings)
        self.honest = list(paces)
        turned = [replace(spec, shape=spec.shape[::-1]) for spec in self.twin().layout.specs]
        self.other_layout = layout_digest(Layout(tuple(turned)))
        self.ledger = Ledger()
        self.restarts = 1000
        self.accepted_of = dict.fromkeys([*self.honest, ROGUE], 0)
        self.starts = 0  # of servers that had something to resume
        self._audit = GrowingFile(self.run / "audit.jsonl")
        self._progress = monotonic()
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._scripts: list[Iterator[None]] = []
        self.away: set[str] = set()  # sites that have a fault that lasts
        self.seen: Counter[tuple[str, str | None]] = Counter()  # audit lines: what, about whom
        self.quarantined: set[str] = set()
        self.kept_out: set[str] = set()  # sites that no operator lets back in yet
        self.expected_end: str | None = None  # what the server may say when it ends by itself

    @property
    def _uploads(self) -> Path:
        return self.project / "state" / "wire" / "uploads"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def route(self, links: Links) -> None:
        """Have each honest site connect over its link."""
        server = self.address
        for name in self.honest:
            self.address = links.address(name)
            self._write_site(name)
        self.address = server

    def rogue(self, misdeeds: Collection[str] = tuple(MISDEEDS), pause: float = 0.5) -> Rogue:
        """The site that breaks rules; it lives in this process."""
        return Rogue(
            ROGUE,
            self.site_settings[ROGUE]["number"],
            self.address,
            SiteFolder(self.site_folder(ROGUE)).identity,
            (self.layout, self.other_layout),
            self.ledger,
            self.anothers_tasks,
            misdeeds=list(misdeeds),
            pause=pause,
        )

    def check_lies(self, rogue: Rogue) -> None:
        """See that no answer of the finished run that was a lie was accepted."""
        lines = [record for _, record in read_journal(self.run / "journal.jsonl")]
        accepted = {
            r["task"] for r in lines if r.get("event") == "UpdateArrived" and r["client"] == ROGUE
        }
        for task in sorted(accepted & rogue.lied):
            self.ledger.went_wrong(self.ledger.latest, f"the lie to task {task} counts")
        assert not self.ledger.wrong, self.ledger.wrong

    def start(self) -> Self:
        """Start the server and the honest sites."""
        for name in self.honest:
            self.start_site(name)
        self.start_server()
        return self

    def tend(self) -> None:
        """Keep the processes running, end faults that have lasted, and see that work goes on."""
        super().tend()
        now = monotonic()
        for due in [item for item in self._later if item[0] <= now]:
            self._later.remove(due)
            due[1]()
        for script in list(self._scripts):
            if next(script, self) is self:
                self._scripts.remove(script)
        for line in self._audit.new_records():
            self._take(line)
        if now - self._progress > NO_PROGRESS:
            raise Hang(f"nothing was accepted for {NO_PROGRESS:g} s\n{self.story()}")
        begun = len(list(self._uploads.glob("*")))
        if begun > (most := 2 * len(self.site_settings)):  # one of each, and one being taken in
            raise AssertionError(f"{begun} answers are being uploaded, more than {most}")
        error = None if self.outcome is None else self.outcome.error
        if error is not None and (self.expected_end is None or self.expected_end not in error):
            raise AssertionError(f"the server ended by itself: {error}")

    def _take(self, line: dict[str, Any]) -> None:
        self.seen[line["what"], line.get("who")] += 1
        match line["what"]:
            case "accepted":
                self.ledger.accepted += 1
                self.accepted_of[line["who"]] += 1
                self._progress = monotonic()
                if line["who"] in self.quarantined:
                    raise AssertionError(f"accepted in quarantine: {line}")
            case "resumed":
                self.starts += 1
            case "quarantined":
                self.quarantined.add(line["who"])
                if line["who"] not in self.kept_out:
                    put_request(self.run, line["who"], "test")  # an operator lets it back in
            case "readmitted":
                if line["who"] in self.kept_out:
                    raise AssertionError(f"nobody asked for this: {line}")
                self.quarantined.discard(line["who"])

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Do something later, in the midst of what else happens."""
        self._later.append((monotonic() + seconds, then))

    def play(self, script: Iterator[None]) -> None:
        """Go through a fault in the midst of what else happens: `yield` lets time pass."""
        self._scripts.append(script)

    @property
    def lasting(self) -> int:
        """Faults that have not ended yet."""
        return len(self._later) + len(self._scripts)

    def pause(self, pid: int, seconds: float, site: str | None = None) -> None:
        """Stop a process and let it go on later, if it is still there."""
        os.kill(pid, signal.SIGSTOP)
        if site is not None:
            self.away.add(site)

        def go_on() -> None:
            self.away.discard(site or "")
            with suppress(ProcessLookupError):  # else a worker whose site was killed stays for ever
                os.kill(pid, signal.SIGCONT)

        self.after(seconds, go_on)

    def anothers_tasks(self) -> list[str]:
        """The ids of tasks that the honest sites have open now: only the server's disk has them."""
        found: dict[str, str] = {}
        for line in whole_lines(self.project / "state" / "wire" / "tasks.jsonl")[-200:]:
            if "given" in line:
                found[line["given"]["id"]] = line["given"]["site"]
            elif "closed" in line:
                found.pop(line["closed"]["task"], None)
        return [task for task, site in found.items() if site != ROGUE][-2:]
