"""The page counts in a browser what the tally counts in Python: every number, of every client."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from math import nan
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.deployment.fake_network import (
    Clock,
    FakeNetwork,
    SentModel,
    federation,
    run_until,
    settings,
    sites,
)
from tests.report.conftest import report_of
from tests.simulation.tiny_runs import eventful, problem
from torch import nn

from fedcompass.deployment.server.federation_summary import Summary
from fedcompass.deployment.wire.transport import Reply
from fedcompass.report.figures.timeline_data import timeline_of
from fedcompass.report.recording import new_record
from fedcompass.report.tracking.measures import journal_point
from fedcompass.runs.curve import Curve
from fedcompass.runs.journal import read_journal
from fedcompass.runs.tally import Span, Tally
from fedcompass.scheduling.commands import Commit
from fedcompass.scheduling.compass import Compass, CompassSettings
from fedcompass.scheduling.events import (
    ClientJoined,
    ClientLost,
    Event,
    MergeFailed,
    QuarantineLifted,
    TaskLost,
    UpdateArrived,
    UpdateRefused,
)
from fedcompass.scheduling.metronome import Metronome, MetronomeSettings
from fedcompass.scheduling.policy import FixedStepsSettings, Policy
from fedcompass.scheduling.scheduler import Scheduler
from fedcompass.scheduling.synchronous import Synchronous
from fedcompass.simulation.run import simulate

Open = Callable[..., Page]

ON_PAGE = """() => {
  const [run] = fedcompass.state.runs;
  const outcomes = { open: "under way", done: "arrived", gone: "lost" };
  const ahead = (from, to, due) => (due === null || due <= from ? null : Math.min(due, to));
  const spans = (all) => all
    .map(([from, to, due]) => [from, to ?? run.end, ahead(from, to ?? run.end, due)])
    .filter(([a, b]) => b - a > 1e-6); // a record's times have nine digits, the run's end has all
  const client = (lane) => ({
    ...lane.until(run.end),
    tasks: lane.tasks.length,
    updates: lane.updates,
    late: lane.late,
    refused: lane.refused,
    not_finite: lane.notFinite,
    steps: lane.steps,
    weight: lane.weight,
    epsilon: lane.spent.at(-1)?.[1] ?? null,
    doing: lane.doing,
    waits: spans(lane.spans.waiting),
    rounds: lane.tasks.map((task) => [
      task.id, task.start, task.end ?? run.end, task.asked, task.group,
      outcomes[task.state] ?? task.state,
    ]),
  });
  return {
    now: run.now,
    end: run.end,
    merges: run.merges.length,
    merged: run.merges.reduce((sum, merge) => sum + merge.contributions.length, 0),
    version: run.merges.at(-1)?.version ?? 0,
    failed_merges: run.failures.length,
    lost_updates: run.failures.reduce((sum, failure) => sum + failure.lost, 0),
    uploads: run.arrived.length,
    staleness: [...run.staleness].map((count) => count ?? 0),
    mean_staleness: run.meanStaleness(),
    idle_share: run.idleShare(),
    ahead_share: run.aheadShare(),
    clients: Object.fromEntries(run.lanes.map((lane) => [lane.client, client(lane)])),
  };
}"""
OF_A_CLIENT = (
    "busy",
    "waiting",
    "ahead",
    "quarantined",
    "tasks",
    "updates",
    "late",
    "refused",
    "not_finite",
    "steps",
    "weight",
    "epsilon",
)


Told = tuple[float, str, str]  # time, client, what happened to it


def recorded(
    folder: Path,
    policy: Policy,
    told: Iterable[Told],
    *,
    leaves_out: bool = False,
    fails: bool = False,
) -> Path:
    """The journal of what happened; answers are to the task that the client then holds.

    With `leaves_out` every merge of several lacks its first update, as a secure sum may; with
    `fails` every second merge comes to nothing, as one may.
    """
    settings = policy.settings if isinstance(policy, Metronome) else CompassSettings()
    journal = new_record(folder, settings, seed=0)
    scheduler, merges = Scheduler(policy), 0
    for at, client, what in told:
        task = scheduler.outstanding(client)
        event = event_of(at, client, what, task.task if task else 0)
        journal.event(event)
        unmade = []
        for command in scheduler.handle(event):
            folds = command.contributions if isinstance(command, Commit) else ()
            notes: dict[str, Any] = (
                {"left_out": [folds[0].task]} if leaves_out and folds[1:] else {}
            )
            merges += isinstance(command, Commit)
            if fails and isinstance(command, Commit) and merges % 2:
                tasks = [fold.task for fold in folds]
                notes = {"failed": "a lie", "members": [], "left_out": tasks, "lost": tasks}
                unmade.append(MergeFailed(at=scheduler.now, version=command.version))
            journal.command(command, **notes)
        for failed in reversed(unmade):
            journal.event(failed)
            scheduler.handle(failed)
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
    return Synchronous(FixedStepsSettings(steps=10, min_clients=2, quarantine_after=2))


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
    return folder


def simulated_in_groups(folder: Path) -> Path:
    """With a client that becomes slow, so that some of its answers are late."""
    simulate(eventful("fedcompass", fleet={"jitter": 0.6}), problem=problem(), folder=folder)
    return folder


def simulated_on_beats(folder: Path) -> Path:
    """With clients that wait for their beat, and some that are late for it."""
    simulate(eventful("metronome", fleet={"jitter": 0.6}), problem=problem(), folder=folder)
    return folder


def simulated_with_profiling(folder: Path) -> Path:
    """With first tasks that no merge has."""
    profiled = eventful("fedat", strategy={"profiling": "tasks"})
    simulate(profiled, problem=problem(), folder=folder)
    return folder


def simulated_privately(folder: Path) -> Path:
    """With budgets, which fast clients spend before the run ends."""
    private = eventful("fedasync").with_settings({"privacy": {"epsilon": 12.0, "noise": 1.5}})
    simulate(private, problem=replace(problem(), model=without_batch_norm), folder=folder)
    return folder


def without_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))


def not_finite(reply: Reply, number: int) -> Reply:
    if number < 3:
        return reply
    assert isinstance(reply.payload, SentModel)
    state = reply.payload.end.clone()
    state.trainable[0] = nan
    return replace(reply, payload=SentModel(state))


def deployed(folder: Path) -> Path:
    """A federation with a site that diverges, one that slows down and one that leaves."""
    network = FakeNetwork(Clock(), sites(0.1, 0.2, 0.35, 0.15))
    network.sites[104].spoil = not_finite
    strategy = {"name": "fedcompass", "min_steps": 2, "max_steps": 10, "quarantine_after": 2}
    running = federation(folder, network, settings(strategy, max_updates=14, gone_after=1.0))
    run_until(running, lambda f: f.coordinator.version >= 5)
    network.sites[102].seconds_per_step = 0.9
    run_until(running, lambda f: f.coordinator.version >= 8)
    network.connected.discard(103)
    running.run()
    return folder


JOURNALS: dict[str, Callable[[Path], Path]] = {
    "quarantine": lambda folder: recorded(folder, in_groups(), QUARANTINED),
    "everything in rounds": lambda folder: recorded(folder, in_rounds(), EVERYTHING),
    "everything in groups": lambda folder: recorded(folder, in_groups(), EVERYTHING),
    "summed": lambda folder: recorded(folder, in_rounds(), EVERYTHING, leaves_out=True),
    "failing": lambda folder: recorded(folder, in_groups(), EVERYTHING, fails=True),
    "simulated": simulated,
    "simulated in groups": simulated_in_groups,
    "simulated on beats": simulated_on_beats,
    "simulated with profiling": simulated_with_profiling,
    "simulated privately": simulated_privately,
    "deployed": deployed,
}


def records_of(journal: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_journal(journal)][1:]


def tallied(records: list[dict[str, Any]]) -> Tally:
    tally = Tally()
    for record in records:
        tally.take(record)
    return tally


def counted(records: list[dict[str, Any]], end: float) -> dict[str, Any]:
    """What Python says, named as the page's numbers."""
    tally, timeline = tallied(records), timeline_of(records, end)
    most = max(tally.staleness, default=-1)
    return {
        **{name: getattr(tally, name) for name in ("now", "merges", "merged", "uploads")},
        "version": tally.version,
        "failed_merges": tally.failed_merges,
        "lost_updates": tally.lost_updates,
        "end": timeline.end,
        "staleness": [tally.staleness[u] for u in range(most + 1)],
        "mean_staleness": tally.mean_staleness(),
        "idle_share": tally.idle_share(end),
        "ahead_share": tally.ahead_share(end),
        "clients": {
            name: {
                **{key: getattr(client, key) for key in OF_A_CLIENT},
                "doing": tally.clients[name].doing,
                "waits": [
                    [w.start, w.end, w.ahead_until] for w in timeline.waits if w.client == name
                ],
                "rounds": [
                    [r.task, r.start, r.end, r.steps, r.group, r.outcome]
                    for r in timeline.rounds
                    if r.client == name
                ],
            }
            for name, client in tally.until(end).items()
        },
    }


def flat(value: Any, place: str = "") -> dict[str, Any]:
    """A nested value as one table, so that a difference is named by its place."""
    if isinstance(value, dict):
        entries: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    else:
        return {place: value}
    return {k: v for key, item in entries for k, v in flat(item, f"{place}/{key}").items()}


def assert_page_agrees(folder: Path, open_page: Open) -> dict[str, Any]:
    report = report_of(folder, to=folder.with_suffix(".html"))
    seen: dict[str, Any] = open_page(report).evaluate(ON_PAGE)
    wanted = flat(counted(records_of(folder / "journal.jsonl"), seen["end"]))
    shown = flat(seen)
    assert shown.keys() == wanted.keys()
    differing = {
        place: (shown[place], value)
        for place, value in wanted.items()
        if shown[place] != (pytest.approx(value) if isinstance(value, float) else value)
    }
    assert not differing
    return seen


@pytest.mark.parametrize("name", JOURNALS)
def test_the_page_counts_what_the_tally_counts(name: str, tmp_path: Path, open_page: Open) -> None:
    assert_page_agrees(JOURNALS[name](tmp_path / "run"), open_page)


@pytest.mark.parametrize("kept", [0.35, 0.7, 0.999])
@pytest.mark.parametrize("name", ["everything in groups", "deployed"])
def test_they_agree_on_a_journal_whose_end_is_cut_off(
    name: str, kept: float, tmp_path: Path, open_page: Open
) -> None:
    folder = JOURNALS[name](tmp_path / "run")
    journal = folder / "journal.jsonl"
    content = journal.read_bytes()
    journal.write_bytes(content[: int(kept * len(content))])
    assert_page_agrees(folder, open_page)


def test_the_page_draws_what_each_client_has_spent_of_its_budget(
    tmp_path: Path, open_page: Open
) -> None:
    folder = simulated_privately(tmp_path / "run")
    page = open_page(report_of(folder, to=tmp_path / "report.html"))
    assert page.locator("#budget path.series").count() == 4
    plain = simulated(tmp_path / "plain")
    assert open_page(report_of(plain, to=tmp_path / "plain.html")).locator("#budget").is_hidden()


def test_these_journals_have_everything_that_is_counted(tmp_path: Path) -> None:
    total: dict[str, float] = {}
    outcomes: set[str] = set()
    all_records: list[dict[str, Any]] = []
    for number, write in enumerate(JOURNALS.values()):
        records = records_of(write(tmp_path / str(number)) / "journal.jsonl")
        tally = tallied(records)
        all_records += records
        outcomes |= {entry.outcome for entry in timeline_of(records).rounds}
        for client in tally.until(tally.now).values():
            counts = {k: v for k, v in asdict(client).items() if isinstance(v, int | float)}
            total = {name: total.get(name, 0) + value for name, value in counts.items()}
    assert outcomes == {"arrived", "late", "discarded", "refused", "lost", "under way"}
    assert [name for name, value in total.items() if value == 0] == []
    assert any("left_out" in record for record in all_records)


@pytest.mark.parametrize("name", JOURNALS)
def test_every_reader_in_python_has_the_tallys_share_of_waiting(name: str, tmp_path: Path) -> None:
    """Up to the last merge, at which even the trackers give one."""
    records = records_of(JOURNALS[name](tmp_path / "run") / "journal.jsonl")
    last = max(n for n, record in enumerate(records) if record.get("command") == "Commit")
    records = records[: last + 1]
    now = records[-1]["at"]
    share = tallied(records).idle_share(now)
    tally = Tally()
    (*_, tracked) = [p for record in records if (p := journal_point(tally, record)) is not None]
    assert tracked.values["idle_share"] == share
    summary = Summary(
        strategy="fedcompass",
        seed=0,
        reason="stopped",
        seconds=now,
        target=None,
        curve=Curve("accuracy", rises=True),
        tally=tallied(records),
    )
    assert summary.to_json()["idle_share"] == share
    timeline = timeline_of(records, now)
    busy, waiting = (
        sum(bar.end - bar.start for bar in bars) for bars in (timeline.rounds, timeline.waits)
    )
    assert waiting / (busy + waiting) == pytest.approx(share)


def test_a_client_in_quarantine_neither_waits_nor_is_away(tmp_path: Path, open_page: Open) -> None:
    folder = recorded(tmp_path / "run", in_groups(), QUARANTINED)
    page = open_page(report_of(folder, to=tmp_path / "report.html"))
    seen = page.evaluate(ON_PAGE)
    assert seen["idle_share"] == 0.0
    times = {key: seen["clients"]["b"][key] for key in ("busy", "waiting", "quarantined")}
    assert times == {"busy": 10.0, "waiting": 0.0, "quarantined": 90.0}
    page.locator("#idle summary").click()
    row = page.locator("#idle details tbody tr").nth(1).locator("td")
    assert row.all_inner_texts() == ["10.0%", "0.0%", "0.0%", "90.0%", "0.0%"]


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
    clients = tallied(records_of(folder / "journal.jsonl")).until(10.0)
    times = {name: (client.busy, client.waiting) for name, client in clients.items()}
    assert times == {"a": (6.0, 1.0), "b": (7.0, 0.0), "c": (1.0, 4.0)}


def on_beats() -> Policy:
    return Metronome(MetronomeSettings(min_steps=10, max_steps=20, min_clients=2))


WAITS = [
    (0.0, "a", "joins"),
    (0.0, "b", "joins"),
    (1.0, "a", "answers"),
    (10.0, "b", "answers"),  # the warm-up is over: a waited 9 s for b; a beat lasts 10 s
    (12.0, "a", "answers"),  # all that it is asked for: it is ahead of its beat, due at 20
    (21.0, "b", "answers"),  # late
]


def test_a_client_that_is_ahead_of_its_beat_waits_by_plan_until_that_is_due(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", on_beats(), WAITS)
    records = records_of(folder / "journal.jsonl")
    a = tallied(records).until(21.0)["a"]
    assert (a.busy, a.waiting, a.ahead) == (3.0, 18.0, 8.0)
    waits = [wait for wait in timeline_of(records).waits if wait.client == "a"]
    assert waits == [
        Span("a", "waiting", 1.0, 10.0),
        Span("a", "waiting", 12.0, 21.0, ahead_until=20.0),
    ]


def test_the_page_says_why_a_client_waits(tmp_path: Path, open_page: Open) -> None:
    folder = recorded(tmp_path / "run", on_beats(), WAITS)
    page = open_page(report_of(folder, to=tmp_path / "report.html"))
    summary = page.locator("#summary").inner_text()
    share = "clients spent 43% of their time waiting (19% by plan, ahead of their beat, 24% waiting"
    assert share in summary
    legend = page.locator("#timeline .legend").inner_text()
    for words in ("beat 1", "waiting by plan: its beat is not due", "waiting for others"):
        assert words in legend
    assert pointed_at(page, 5.0) == ["a", "waits 9 s", "1 s to 10 s", "for others"]
    assert pointed_at(page, 16.0) == [
        "a",
        "waits 9 s",
        "12 s to 21 s",
        "by plan: its beat is due at 20 s",
        "for others: 1 s of it, since its beat is late",
    ]


def pointed_at(page: Page, time: float) -> list[str]:
    """What the page says of its first lane at a time."""
    place = """(time) => {
      const [timeline] = fedcompass.state.view.timelines;
      const box = timeline.canvas.getBoundingClientRect();
      return [box.left + timeline.x(time), box.top + timeline.y(0) + timeline.rowHeight / 2];
    }"""
    page.locator("#timeline").scroll_into_view_if_needed()
    page.mouse.move(*page.evaluate(place, time))
    said: list[str] = page.locator("#tip").inner_text().splitlines()
    return said


def test_a_journal_that_does_not_tell_when_a_group_is_due_has_no_waits_by_plan(
    tmp_path: Path,
) -> None:
    records = records_of(recorded(tmp_path / "run", on_beats(), WAITS) / "journal.jsonl")
    a = tallied([{k: v for k, v in r.items() if k != "due"} for r in records]).until(21.0)["a"]
    assert (a.waiting, a.ahead) == (18.0, 0.0)
