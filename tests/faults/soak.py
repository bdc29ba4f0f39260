"""A soak: one run of a federation of real processes, and more than a thousand random faults.

    python -m tests.faults.soak --seconds 3600 --least 1000 --page docs/faults.md

Sites, workers and the server are killed and stopped, its disk is filled, links cut, silenced and
damaged, sites revoked and added; a site on the roster breaks every rule, another one answers at
once, and strangers call. In the end nothing may be lost or merged twice, and the model is computed
again from the journal, to the bit.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest
from tests.faults.links import Links, loop_in_thread
from tests.faults.loopback import Hang
from tests.faults.rogue import Rogue
from tests.faults.small_disks import fill, small_disk
from tests.faults.strangers import Strangers
from tests.faults.tally import Row, counted_updates, markdown, put_section
from tests.faults.toy_federation import ROGUE, ToyFederation

from fedcompass.deployment.operator.certificates import make_authority, make_site_certificate
from fedcompass.deployment.operator.site_admission import add_site, revoke_site
from fedcompass.deployment.server.readmission import put_request
from fedcompass.deployment.wire.connections import Identity

TITLE = "A soak: many faults in one run"
IMPATIENT = "impatient"  # answers at once
RARE = 1  # how often the rarest faults are caused, compared with the others
UNLIMITED, LITTLE = 1_000_000, 1000  # versions
PACES = {
    IMPATIENT: 0.0,
    "quick": 0.01,
    "brisk": 0.02,
    "steady": 0.03,
    "slow": 0.05,
    "migrant": 0.02,
}
STRATEGY = {"name": "fedcompass", "min_steps": 5, "max_steps": 20}
SETTINGS: dict[str, Any] = {
    "strategy": STRATEGY,
    "min_clients": 3,
    "gone_after": 5.0,
    "task_timeout": 20.0,
    "return_within": 10.0,  # a site that left while the server was away is seen to be gone
    "max_updates": UNLIMITED,
    "fair_share": 1.0,
}

AT_ONCE = "a site: answers at once, with little of the run left"
LEAVES = "a site in quarantine: leaves and comes back"
DISK_FULL = "the server: the disk of its state full"
REFUSED = "an answer: not finite"  # three of them in a row put a site into quarantine

Inject = Callable[[], bool]
"""Causes a fault; False: it could not be caused now."""


class Soak:
    """Causes faults until its time is over.

    Args:
        federation: runs.
        links: between its sites and its server.
        rogue: the site that breaks every rule.
        loop: where it lives.
        random: which fault, on whom, when.
        pause: seconds between two faults, at most.
        small_disk: whether the server's state is on a disk of its own, which can be filled.
    """

    def __init__(
        self,
        federation: ToyFederation,
        links: Links,
        rogue: Rogue,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        pause: float = 2.0,
        *,
        small_disk: bool = False,
    ) -> None:
        self.federation, self._links, self._rogue, self._loop = federation, links, rogue, loop
        self._random, self._pause = random, pause
        self._ways: dict[str, tuple[int, Inject]] = {  # how often, compared with the others
            "a worker: kill -9": (6, self._kill_worker),
            "a site: kill -9": (6, self._kill_site),
            "a site: stopped for seconds": (5, self._stop_site),
            "a worker: stopped for seconds": (4, self._stop_worker),
            "a link: cut": (6, self._cut_link),
            "a link: silent for seconds": (5, self._silence_link),
            "a link: a bit changed": (5, self._damage_link),
            "a site: an answer damaged on its disk": (3, self._damage_answer),
            "a site: revoked and added anew": (3, self._revoke),
            "the server: kill -9": (2, self._kill_server),
            "the server: kill -9 with its supervisor": (2, self._crash_server),
            "the server: stopped for seconds": (2, self._stop_server),
            "the server and all sites: kill -9": (RARE, self._kill_all),
            LEAVES: (RARE, self._leave_in_quarantine),
            AT_ONCE: (RARE, self._be_impatient),
        }
        if small_disk:
            self._ways[DISK_FULL] = (RARE, self._fill_disk)

    def run(self, seconds: float) -> None:
        """Cause faults for so long, and then those that are rare, where chance left one out."""
        federation, end = self.federation, monotonic() + seconds
        faults, weights = list(self._ways), [weight for weight, _ in self._ways.values()]
        while monotonic() < end:
            federation.until_passed(self._random.uniform(0, self._pause))
            self._cause(self._random.choices(faults, weights)[0])
        for fault in faults:
            if self._ways[fault][0] == RARE and not federation.ledger.times(fault):
                federation.until(fault, lambda fault=fault: self._cause(fault))  # type: ignore[misc]

    def _cause(self, fault: str) -> bool:
        caused = self._ways[fault][1]()
        if caused:
            self.federation.ledger.caused(fault)
            if fault.startswith("the server"):
                self._work_goes_on()
        return caused

    def start_rogue(self) -> None:
        self._life = asyncio.run_coroutine_threadsafe(self._rogue.live(), self._loop)

    def stop_rogue(self) -> None:
        assert not self._life.done(), self._life.exception()
        self._life.cancel()

    def _work_goes_on(self) -> None:
        before = self._of_others()
        told = "an update is accepted after a fault of the server"
        self.federation.until(told, lambda: self._of_others() > before)

    def _of_others(self) -> int:
        """The accepted updates of those who take their time."""
        accepted = self.federation.accepted_of
        return sum(accepted.values()) - accepted[IMPATIENT]

    def recover(self) -> None:
        """End all faults; every honest site works again."""
        federation = self.federation
        federation.until("all faults have ended", lambda: federation.lasting == 0)
        before = dict(federation.accepted_of)
        for site in federation.honest:
            federation.until(
                f"{site} works again",
                lambda site=site: federation.accepted_of[site] > before[site],  # type: ignore[misc]
            )

    def _some_site(self) -> str | None:
        there = [name for name in self.federation.honest if name not in self.federation.away]
        return self._random.choice(there) if there else None

    def _pid(self, child: str) -> tuple[int, str] | None:
        site = self._some_site()
        pid = None if site is None else self.federation.sites[site].children[child]
        return None if pid is None or site is None else (pid, site)

    def _kill_worker(self) -> bool:
        return self._kill("worker")

    def _kill_site(self) -> bool:
        return self._kill("site")

    def _kill(self, child: str) -> bool:
        found = self._pid(child)
        if found is not None:
            self.federation.kill(child, found[1])
        return found is not None

    def _stop_site(self) -> bool:
        return self._stop("site", self._random.choice([1.0, 3.0, 8.0, 25.0]))

    def _stop_worker(self) -> bool:
        return self._stop("worker", self._random.choice([1.0, 3.0, 25.0]))

    def _stop(self, child: str, seconds: float) -> bool:
        found = self._pid(child)
        if found is not None:
            self.federation.pause(found[0], seconds, found[1])
        return found is not None

    def _cut_link(self) -> bool:
        self._links.cut(self._random.choice(self.federation.honest))
        return True

    def _silence_link(self) -> bool:
        site = self._some_site()
        if site is None:
            return False
        middle = self._links.of[site]
        middle.silent = True
        self.federation.away.add(site)

        def speak() -> None:
            self.federation.away.discard(site)
            middle.silent = False

        self.federation.after(self._random.choice([1.0, 4.0, 10.0, 25.0]), speak)
        return True

    def _damage_link(self) -> bool:
        self._links.of[self._random.choice(self.federation.honest)].damaged = 1
        return True

    def _damage_answer(self) -> bool:
        """Change a byte of an answer that waits for its receipt."""
        federation, found = self.federation, self._pid("site")
        if found is None:
            return False
        federation.kill("site", found[1])  # the next process sends what is on its disk
        kept = federation.site_folder(found[1]) / "state" / "wire" / "answers"
        payloads = list(kept.glob("*.payload"))
        for path in payloads:
            content = path.read_bytes()
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        return bool(payloads)

    def _revoke(self) -> bool:
        federation = self.federation
        if "migrant" in federation.away:
            return False
        revoke_site(federation.project, "migrant")
        federation.away.add("migrant")

        def add() -> None:
            add_site(federation.project, "migrant")
            federation.away.discard("migrant")

        federation.after(self._random.uniform(0.0, 8.0), add)
        return True

    def _server_pid(self) -> int | None:
        assert self.federation.server is not None
        return self.federation.server.children.get("server")

    def _kill_server(self) -> bool:
        if self._server_pid() is None:
            return False
        self.federation.kill("server")
        return True

    def _crash_server(self) -> bool:
        self.federation.crash()
        return True

    def _stop_server(self) -> bool:
        pid = self._server_pid()
        if pid is not None:
            self.federation.pause(pid, self._random.choice([1.0, 3.0, 8.0]))
        return pid is not None

    def _kill_all(self) -> bool:
        for site in self.federation.honest:
            if self.federation.sites[site].children["site"] is not None:
                self.federation.kill("site", site)
        self.federation.crash()
        return True

    def _leave_in_quarantine(self) -> bool:
        if ROGUE in self.federation.quarantined | self.federation.kept_out:
            return False
        self.federation.play(self._leaves_and_comes_back())
        return True

    def _leaves_and_comes_back(self) -> Iterator[None]:
        """It gets into quarantine, stays away until it is gone, comes back; later it is let in."""
        federation, rogue, seen = self.federation, self._rogue, self.federation.seen
        federation.kept_out.add(ROGUE)
        misdeeds, rogue.misdeeds = rogue.misdeeds, [REFUSED]
        while ROGUE not in federation.quarantined:
            yield
        rogue.misdeeds = misdeeds
        self.stop_rogue()
        before = seen["left", ROGUE]
        while seen["left", ROGUE] == before:
            yield
        before = seen["joined", ROGUE]
        self.start_rogue()
        while seen["joined", ROGUE] == before:
            yield
        before = seen["merged", None]
        while seen["merged", None] < before + 20:  # `_take` sees that none of its updates counts
            yield
        federation.kept_out.discard(ROGUE)
        accepted, asked = federation.accepted_of[ROGUE], 0.0
        while ROGUE in federation.quarantined:
            if monotonic() > asked + 10.0:  # again where the server was killed with it in its hands
                put_request(federation.run, ROGUE, "test")
                asked = monotonic()
            yield
        while federation.accepted_of[ROGUE] == accepted:
            yield

    def _fill_disk(self) -> bool:
        """Fill the disk of the server's state; it ends in order, and goes on once there is room."""
        federation, state = self.federation, self.federation.project / "state"
        federation.expected_end = f"the disk of {state} is full"
        ballast = state / "ballast"
        fill(ballast, leave=0)
        federation.until("the server ends", lambda: federation.outcome is not None)
        ballast.unlink()
        self._resume()
        federation.expected_end = None
        return True

    def _be_impatient(self) -> bool:
        """Leave so little of the run that one site has had its share: the others have the rest."""
        federation, told, seen = self.federation, "has had its share", self.federation.seen
        had = seen[told, IMPATIENT]
        self._resume(max_updates=seen["merged", None] + LITTLE)
        federation.until(
            f"{IMPATIENT} {told}",
            lambda: seen[told, IMPATIENT] > had or federation.outcome is not None,
        )
        assert federation.outcome is None, f"used up: {federation.accepted_of}"
        merged, others = seen["merged", None], self._of_others()
        alone = federation.accepted_of[IMPATIENT]
        federation.until("others go on", lambda: seen["merged", None] >= merged + LITTLE // 20)
        alone, others = federation.accepted_of[IMPATIENT] - alone, self._of_others() - others
        even = alone * (len(PACES) - 1) <= others
        assert even, f"{alone} of {IMPATIENT}'s updates for {others} of the others"
        self._resume(max_updates=UNLIMITED)
        return True

    def _resume(self, **changed: int) -> None:
        """Stop the server in order, and start it again with other settings."""
        federation = self.federation
        federation.stop_server()
        federation.settings = federation.settings.model_copy(update=changed)
        federation.write_settings()
        federation.start_server(resume=True)


@contextmanager
def state_on_small_disk(federation: ToyFederation) -> Iterator[bool]:
    """Give the server's state a disk that can be filled; whether that could be done."""
    state = federation.project / "state"
    with ExitStack() as mounted:
        try:
            mounted.enter_context(small_disk(state, "64m"))
        except pytest.skip.Exception:
            yield False
        else:
            yield True


def foreign_certificate(federation: ToyFederation) -> Identity:
    """A site's certificate of another CA of the same name."""
    folder, own = federation.home / "foreign", federation.project / "certificates"
    folder.mkdir()
    make_authority(folder, federation.project.name)
    make_site_certificate(folder, folder, "quick")
    return Identity(own / "ca.crt", folder / "site.crt", folder / "site.key")


def soak(seconds: float, seed: int = 0, pause: float = 2.0) -> tuple[list[Row], str]:
    """Run one; its table, and what it came to in words.

    Raises:
        AssertionError: something was lost, doubled, wrongly accepted, or hangs.
    """
    random, began = Random(seed), monotonic()
    with (
        ToyFederation(PACES, **SETTINGS) as federation,
        state_on_small_disk(federation) as on_small_disk,
        loop_in_thread() as loop,
        closing(Links(loop, federation.port, federation.honest)) as links,
    ):
        federation.route(links)
        rogue = federation.rogue(pause=pause)
        foreign = foreign_certificate(federation)
        strangers = Strangers(
            federation.address, foreign, federation.ledger, Random(seed + 1), 2 * pause
        )
        federation.start()
        federation.until_more("accepted")
        calling = asyncio.run_coroutine_threadsafe(strangers.live(), loop)
        running = Soak(federation, links, rogue, loop, random, pause, small_disk=on_small_disk)
        running.start_rogue()
        row = Row("all")
        try:
            running.run(seconds)
            running.recover()
            running.stop_rogue()
            assert not calling.done(), calling.exception()
            calling.cancel()
            federation.finish(row)
        except Hang:
            print(markdown([Row(federation.ledger.latest, hangs=1, outcome="FAILED")]))
            raise
        federation.check_lies(rogue)
        rows = federation.ledger.rows(*counted_updates(federation.run))
        words = told(federation, rows, monotonic() - began)
        left_out = (
            "" if on_small_disk else " No disk was filled: it takes root to mount a small one."
        )
        return rows, words + left_out


def told(federation: ToyFederation, rows: list[Row], seconds: float) -> str:
    faults, accepted = (
        sum(getattr(row, name) for row in rows) for name in ("injected", "accepted")
    )
    refused, version = len(federation.audit("refused")), federation.version
    return (
        f"{faults} faults in {seconds / 60:.0f} minutes, on {datetime.now(UTC):%Y-%m-%d} with "
        f"{os.cpu_count()} cores: the server was resumed {federation.starts} times; "
        f"{accepted:,} updates were accepted and {refused} answers refused, {version:,} merges "
        "made. Every accepted update counts once, each merge raised the version by one, and the "
        "model computed again from the journal has the same bits."
    )


PAGE = """\
Written by `make soak`: real server, site and worker processes (the workers train without torch, in
milliseconds), a link of its own for each of the six sites, one of which answers at once, one more
site that breaks every rule, and strangers. An update belongs to the last fault before it.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--least", type=int, default=1000, help="faults that are to be caused")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between faults, at most")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    given = parser.parse_args()
    rows, words = soak(given.seconds, given.seed, given.pause)
    table = markdown(rows)
    print(f"{table}\n{words}")
    if given.page is not None:
        put_section(given.page, TITLE, f"{PAGE}{words}\n\n{table}")
    faults = sum(row.injected for row in rows)
    if faults < given.least:
        sys.exit(f"only {faults} faults were caused; wanted: {given.least}. Give it more --seconds")


if __name__ == "__main__":
    main()
