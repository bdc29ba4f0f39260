"""Work, waiting and staleness, counted by hand on schedules small enough for that."""

import pytest
from tests.simulation.tiny_runs import experiment, problem

from fedcompass.runs.tally import Tally
from fedcompass.scheduling.commands import Command, Discard, Fold, Quarantine, StartTraining
from fedcompass.scheduling.events import ClientLost, Event, UpdateArrived, UpdateRefused
from fedcompass.simulation.result import Result
from fedcompass.simulation.run import simulate


def two_clients(
    name: str, paces: list[float], horizon: float, steps: int = 10, **settings: str
) -> Result:
    """A schedule without any noise, nothing trained."""
    return simulate(
        experiment(
            name,
            fleet={"paces": paces, "jitter": 0.0},
            strategy={"steps": steps, **settings},
            horizon=horizon,
        ),
        problem=problem(len(paces)),
        executor="none",
    )


def start(task: int, at: float, client: str = "0") -> StartTraining:
    return StartTraining(at=at, client=client, task=task, steps=10, version=0, group=None)


def told(*records: Event | Command) -> Tally:
    tally = Tally()
    for record in records:
        if isinstance(record, StartTraining | Fold | Discard | Quarantine):
            tally.command(record)
        else:
            tally.event(record)  # type: ignore[arg-type]
    return tally


def test_in_rounds_the_fast_wait_for_the_slow() -> None:
    """Rounds of 3 s: client 0 works in the first second of each, client 1 all the time."""
    result = two_clients("fedavg", [0.1, 0.3], horizon=7.5)
    fast, slow = result.clients
    assert result.summary["virtual_seconds"] == pytest.approx(7.0)  # client 0's third answer
    assert (fast["tasks"], fast["updates"], fast["steps"]) == (3, 3, 30)
    assert (slow["tasks"], slow["updates"], slow["steps"]) == (3, 2, 20)
    assert (fast["busy"], fast["waiting"]) == pytest.approx((3.0, 4.0))
    assert (slow["busy"], slow["waiting"]) == pytest.approx((7.0, 0.0))  # 1 s of a task not over
    assert result.summary["idle_share"] == pytest.approx(4 / 14)
    assert result.summary["updates_per_client"] == [3, 2]
    assert result.summary["steps_per_client"] == [30, 20]
    assert result.summary["mean_staleness"] == 0
    assert result.summary["global_updates"] == 2
    assert result.pending == [["0", 5, 0]]


def test_the_wait_that_a_run_ends_in_counts() -> None:
    """Client 1 answers at 1.5 s, the second client at 4 s, the third not before the end."""
    result = two_clients("fedavg", [0.15, 0.4, 9.0], horizon=8.0)
    assert [row["waiting"] for row in result.clients] == pytest.approx([2.5, 0.0, 0.0])
    assert [row["busy"] for row in result.clients] == pytest.approx([1.5, 4.0, 4.0])
    assert result.summary["idle_share"] == pytest.approx(2.5 / 12)


def test_without_rounds_nobody_waits_and_the_slow_are_stale() -> None:
    """Client 0 answers every second, client 1 at 2.5 and 5 s; at 5 s the older task goes first.

    Staleness: 0, 0 (client 0); 2 (client 1); 1, 0 (client 0); 2 (client 1); 1 (client 0).
    """
    result = two_clients("fedasync", [0.1, 0.25], horizon=5.0)
    assert result.summary["global_updates"] == 7
    assert result.summary["mean_staleness"] == pytest.approx(6 / 7)
    assert result.summary["max_staleness"] == 2
    assert result.summary["idle_share"] == 0
    assert [row["updates"] for row in result.clients] == [5, 2]
    assert result.summary["local_steps"] == 70


def test_weights_add_up_per_client() -> None:
    result = two_clients("fedasync", [0.1, 0.25], horizon=2.6)
    fast, slow = (row["weight"] for row in result.clients)
    assert fast == pytest.approx(2 * 0.9 * 0.5)  # share 1/2, alpha 0.9, staleness 0
    assert slow == pytest.approx(0.9 * 0.5 * 3**-0.5)  # staleness 2


def test_a_refused_answer_ends_its_task() -> None:
    tally = told(
        start(1, at=0.0),
        UpdateRefused(at=2.0, client="0", task=1, reason="not-finite"),
        start(2, at=3.0),
        UpdateArrived(at=4.0, client="0", task=2, steps_done=10),
    )
    client, time = tally.clients["0"], tally.clients["0"].until(6.0)
    assert (client.tasks, client.refused, client.not_finite) == (2, 1, 1)
    assert (time.busy, time.waiting) == (3.0, 3.0)


def test_a_forged_answer_does_not_end_a_live_task() -> None:
    tally = told(
        start(1, at=0.0), UpdateRefused(at=2.0, client="0", task=7, reason="unexpected-task")
    )
    time = tally.clients["0"].until(5.0)
    assert (time.busy, time.waiting) == (5.0, 0.0)
    assert (tally.clients["0"].refused, tally.clients["0"].not_finite) == (1, 0)


def test_a_discarded_answer_is_work_but_no_update() -> None:
    tally = told(
        start(1, at=0.0),
        UpdateArrived(at=2.0, client="0", task=1, steps_done=10),
        Discard(at=2.0, client="0", task=1, steps=10),
    )
    tally.take({"command": "Discard", "client": "1", "task": 9, "steps": 3, "epsilon": 0.5})
    client, other = tally.clients["0"], tally.clients["1"]
    assert (client.updates, client.steps, client.until(3.0).busy) == (0, 10, 2.0)
    assert (tally.uploads, tally.staleness.total(), tally.rounds) == (1, 0, {})
    assert (other.steps, other.epsilon) == (3, 0.5)  # of a journal that was cut


def test_profiling_costs_steps_and_time_but_merges_nothing() -> None:
    """Of a tenth of the steps: client 0 at 0.2 s, client 1 at 1 s, when tiers of one are formed."""
    result = two_clients("fedat", [0.1, 0.5], horizon=3.5, steps=20, profiling="tasks")
    assert result.summary["global_updates"] == 1  # client 0's 20 steps from 1 s on
    assert result.summary["steps_per_client"] == [22, 2]
    assert result.summary["updates_per_client"] == [1, 0]
    assert result.summary["local_steps"] == 24


def test_who_is_gone_or_in_quarantine_neither_works_nor_waits() -> None:
    gone = ClientLost(at=3.0, client="0")
    tally = told(
        start(1, at=0.0),
        UpdateArrived(at=2.0, client="0", task=1, steps_done=10),
        start(2, at=2.0),
        gone,
        start(3, at=1.0, client="1"),
        UpdateRefused(at=2.0, client="1", task=3, reason="not-finite"),
        Quarantine(at=2.0, client="1"),
    )
    left, excluded = (tally.clients[client].until(99.0) for client in "01")
    assert (left.busy, left.waiting) == (3.0, 0.0)  # the task it left in counts until then
    assert (excluded.busy, excluded.waiting, excluded.quarantined) == (1.0, 0.0, 97.0)
    assert tally.quarantined() == ["1"]


def test_nothing_has_happened_yet() -> None:
    assert Tally().idle_share(0.0) == 0
    assert Tally().mean_staleness() == 0
