"""Five readers of a journal count the same training, waiting and quarantine."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.report.conftest import report_of
from tests.simulation.tiny_runs import eventful, problem

from fedcompass.deployment.server_settings import FederationSettings
from fedcompass.deployment.summary import summarize
from fedcompass.figures.timeline_data import read_timeline
from fedcompass.report.recording import RecordedScheduler, new_record
from fedcompass.runs.codec import event_from_json
from fedcompass.runs.curve import Curve
from fedcompass.scheduling.commands import Fold, Quarantine, StartTraining
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.events import (
    ClientJoined,
    ClientLost,
    Event,
    QuarantineLifted,
    TaskLost,
    UpdateArrived,
    UpdateRefused,
)
from fedcompass.scheduling.policy import Policy
from fedcompass.scheduling.synchronous import Synchronous, SynchronousSettings
from fedcompass.simulation.run import simulate
from fedcompass.simulation.statistics import Statistics
from fedcompass.tracking.measures import JournalMeasures

Open = Callable[..., Page]
Times = dict[str, tuple[float, float]]  # of each client: busy, waiting

SUMS = """() => {
  const [run] = fedcompass.state.runs;
  const lanes = run.lanes.map((lane) => [lane.client, lane.until(run.end)]);
  return { idle: run.idleShare(), lanes: Object.fromEntries(lanes) };
}"""


Told = tuple[float, str, str]  # time, client, what happened to it


def recorded(folder: Path, policy: Policy, told: Iterable[Told]) -> Path:
    """The journal of what happened; answers are to the task that the client then holds."""
    journal = new_record(folder, CompassSettings(), seed=0)
    scheduler = RecordedScheduler(policy, journal)
    for at, client, what in told:
        task = scheduler.outstanding(client)
        scheduler.handle(event_of(at, client, what, task.task if task else 0))
    journal.close()
    return folder


def event_of(at: float, client: str, what: str, task: int) -> Event:
    match what:
        case "joins":
            return ClientJoined(at=at, client=client, samples=10)
        case "answers":
            return UpdateArrived(at=at, client=client, task=task, steps_done=10)
        case "did nothing":
            return UpdateArrived(at=at, client=client, task=task, steps_done=0)
        case "sends NaN":
            return UpdateRefused(at=at, client=client, task=task, reason="not-finite")
        case "sends a stray":
            return UpdateRefused(at=at, client=client, task=99, reason="unexpected-task")
        case "fails":
            return TaskLost(at=at, client=client, task=task)
        case "is readmitted":
            return QuarantineLifted(at=at, client=client)
        case _:
            assert what == "leaves"
            return ClientLost(at=at, client=client)


def in_rounds() -> Policy:
    return Synchronous(SynchronousSettings(steps=10, min_clients=2, quarantine_after=2))


def in_groups() -> Policy:
    return Compass(CompassSettings(min_steps=10, max_steps=20, min_clients=2, quarantine_after=2))


QUARANTINED = [
    (0.0, "a", "joins"),
    (0.0, "b", "joins"),
    (5.0, "b", "sends NaN"),
    (10.0, "b", "sends NaN"),  # at t = 10 of 100 it is quarantined
    (50.0, "a", "answers"),
    (100.0, "a", "answers"),
]
EVERYTHING = [
    (0.0, "a", "joins"),
    (3.0, "b", "joins"),  # the run begins: nobody waited before
    (4.0, "a", "sends a stray"),
    (8.0, "a", "answers"),
    (9.0, "b", "fails"),
    (10.0, "b", "leaves"),  # in the middle of a task
    (15.0, "b", "joins"),
    (16.0, "c", "joins"),
    (18.0, "b", "joins"),  # again, without having left
    (19.0, "a", "answers"),
    (20.0, "b", "answers"),
    (22.0, "c", "did nothing"),
    (23.0, "c", "sends NaN"),
    (24.0, "c", "sends NaN"),  # quarantined
    (30.0, "c", "is readmitted"),
    (32.0, "a", "answers"),
    (40.0, "b", "answers"),
    (90.0, "c", "answers"),  # very late
    (91.0, "a", "answers"),
    (92.0, "a", "leaves"),  # while it waits, in rounds
    (93.0, "b", "answers"),
    (94.0, "c", "answers"),
]


def simulated(folder: Path) -> Path:
    simulate(eventful("fedavg"), problem=problem(broken=2), folder=folder)
    for name in ("experiment.toml", "metrics.jsonl", "summary.json", "clients.json"):
        (folder / name).unlink()
    return folder


JOURNALS: dict[str, Callable[[Path], Path]] = {
    "quarantine": lambda folder: recorded(folder, in_groups(), QUARANTINED),
    "everything in rounds": lambda folder: recorded(folder, in_rounds(), EVERYTHING),
    "everything in groups": lambda folder: recorded(folder, in_groups(), EVERYTHING),
    "simulated": simulated,
}


def up_to_the_last_merge(journal: Path) -> list[dict[str, Any]]:
    """Cut a journal after its last merge, at which even the trackers give a share of time."""
    lines = journal.read_text().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if json.loads(line).get("command") == "Commit")
    journal.write_text("".join(lines[: last + 1]))
    return [json.loads(line) for line in lines[: last + 1]][1:]


def statistics_of(records: list[dict[str, Any]], now: float) -> tuple[float, Times]:
    statistics = Statistics()
    kinds = {kind.__name__: kind for kind in (StartTraining, Fold, Quarantine)}
    for record in records:
        if "event" in record:
            statistics.event(event_from_json(record))
        elif record["command"] in kinds:
            kind = kinds[record["command"]]
            fields = {key: record[key] for key in kind.__dataclass_fields__}
            statistics.command(kind(**fields))
    times = {client: statistics.time_of(client, now) for client in statistics.clients}
    return statistics.idle_share(now), {c: (t.busy, t.waiting) for c, t in times.items()}


def summary_of(journal: Path, now: float) -> tuple[float, Times]:
    curve = Curve("accuracy", rises=True)
    settings = FederationSettings(max_updates=1)
    summary = summarize(settings, curve, journal, reason="stopped", now=now)
    return summary.idle_share, {c: (s.busy, s.waiting) for c, s in summary.sites.items()}


def timeline_of(journal: Path, now: float) -> Times:
    timeline = read_timeline(journal, now)
    return {
        client: (
            sum(r.end - r.start for r in timeline.rounds if r.client == client),
            sum(w.end - w.start for w in timeline.waits if w.client == client),
        )
        for client in timeline.clients
    }


def share_of(times: Times) -> float:
    busy, waiting = (sum(time[n] for time in times.values()) for n in (0, 1))
    return waiting / (busy + waiting)


def assert_alike(seen: Times, wanted: Times) -> None:
    assert seen.keys() == wanted.keys()
    for client, times in wanted.items():
        assert seen[client] == pytest.approx(times), client


@pytest.mark.parametrize("name", JOURNALS)
def test_all_readers_of_a_journal_count_the_same_time(
    name: str, tmp_path: Path, open_page: Open
) -> None:
    folder = JOURNALS[name](tmp_path / "run")
    journal = folder / "journal.jsonl"
    records = up_to_the_last_merge(journal)
    now = max(record["at"] for record in records if "event" in record)
    share, times = statistics_of(records, now)
    assert times.keys() == {r["client"] for r in records if r.get("event") == "ClientJoined"}
    deployed_share, deployed = summary_of(journal, now)
    assert_alike(deployed, times)
    assert deployed_share == pytest.approx(share)
    drawn = timeline_of(journal, now)
    assert_alike(drawn, times)
    assert share_of(drawn) == pytest.approx(share)
    measures = JournalMeasures()
    (*_, tracked) = [point for record in records if (point := measures.take(record)) is not None]
    assert tracked.values["idle_share"] == pytest.approx(share)
    seen = open_page(report_of(folder, to=tmp_path / "report.html")).evaluate(SUMS)
    assert seen["idle"] == pytest.approx(share)
    assert_alike({c: (t["busy"], t["waiting"]) for c, t in seen["lanes"].items()}, times)


def test_a_client_in_quarantine_neither_waits_nor_is_away(tmp_path: Path, open_page: Open) -> None:
    folder = recorded(tmp_path / "run", in_groups(), QUARANTINED)
    page = open_page(report_of(folder, to=tmp_path / "report.html"))
    seen = page.evaluate(SUMS)
    assert seen["idle"] == 0.0
    assert seen["lanes"]["b"] == {"busy": 10.0, "waiting": 0.0, "quarantined": 90.0}
    page.locator("#idle summary").click()
    row = page.locator("#idle details tbody tr").nth(1).locator("td")
    assert row.all_inner_texts() == ["10.0%", "0.0%", "90.0%", "0.0%"]


def test_a_client_waits_from_when_it_could_have_trained(tmp_path: Path) -> None:
    """Nobody waits before the first task; who joins during a round waits for the next."""
    folder = recorded(
        tmp_path / "run",
        in_rounds(),
        [
            (0.0, "a", "joins"),
            (3.0, "b", "joins"),
            (5.0, "c", "joins"),
            (8.0, "a", "answers"),
            (9.0, "b", "answers"),
        ],
    )
    lines = (folder / "journal.jsonl").read_text().splitlines()[1:]
    _, times = statistics_of([json.loads(line) for line in lines], 10.0)
    assert times == {"a": (6.0, 1.0), "b": (7.0, 0.0), "c": (1.0, 4.0)}
