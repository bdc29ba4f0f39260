"""A soak: one run of a federation of real processes, and more than a thousand random faults.

    python -m tests.faults.soak --seconds 3600 --least 1000 --page docs/faults.md

Sites, workers and the server are killed and stopped, links cut, silenced and damaged, sites revoked
and added; a site on the roster breaks every rule, and strangers call. In the end nothing may be
lost or merged twice, and the model is computed again from the journal, to the bit.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from tests.faults.links import Links, loop_in_thread
from tests.faults.loopback import Hang
from tests.faults.strangers import Strangers
from tests.faults.tally import Row, counted_updates, markdown, put_section
from tests.faults.toy_federation import ToyFederation

from fedcompass.deployment.operator.certificates import make_authority, make_site_certificate
from fedcompass.deployment.operator.site_admission import add_site, revoke_site
from fedcompass.deployment.wire.connections import Identity

TITLE = "A soak: many faults in one run"
PACES = {"quick": 0.01, "brisk": 0.02, "steady": 0.03, "slow": 0.05, "migrant": 0.02}
STRATEGY = {"name": "fedcompass", "min_steps": 5, "max_steps": 20}
SETTINGS: dict[str, Any] = {
    "strategy": STRATEGY,
    "min_clients": 3,
    "gone_after": 5.0,
    "task_timeout": 20.0,
}

Inject = Callable[[], bool]
"""Causes a fault; False: it could not be caused now."""


class Soak:
    """Causes faults until its time is over.

    Args:
        federation: runs.
        links: between its sites and its server.
        random: which fault, on whom, when.
        pause: seconds between two faults, at most.
    """

    def __init__(
        self, federation: ToyFederation, links: Links, random: Random, pause: float = 2.0
    ) -> None:
        self.federation, self._links, self._random, self._pause = federation, links, random, pause
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
            "the server and all sites: kill -9": (1, self._kill_all),
        }

    def run(self, seconds: float) -> None:
        """Cause faults for so long."""
        federation, end = self.federation, monotonic() + seconds
        faults, weights = list(self._ways), [weight for weight, _ in self._ways.values()]
        while monotonic() < end:
            federation.until_passed(self._random.uniform(0, self._pause))
            fault = self._random.choices(faults, weights)[0]
            if self._ways[fault][1]():
                federation.ledger.caused(fault)
                if fault.startswith("the server"):
                    self._work_goes_on()

    def _work_goes_on(self) -> None:
        wanted = self.federation.ledger.accepted + 1
        told = "an update is accepted after a fault of the server"
        self.federation.until(told, lambda: self.federation.ledger.accepted >= wanted)

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
        hostile = [asyncio.run_coroutine_threadsafe(w.live(), loop) for w in (rogue, strangers)]
        running = Soak(federation, links, random, pause)
        row = Row("all")
        try:
            running.run(seconds)
            running.recover()
            for work in hostile:
                assert not work.done(), work.exception()
                work.cancel()
            federation.finish(row)
        except Hang:
            print(markdown([Row(federation.ledger.latest, hangs=1, outcome="FAILED")]))
            raise
        federation.check_lies(rogue)
        rows = federation.ledger.rows(*counted_updates(federation.run))
        return rows, told(federation, rows, monotonic() - began)


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
milliseconds), a link of its own for each of the five sites, one more site that breaks every rule,
and strangers. An update belongs to the last fault before it.

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
