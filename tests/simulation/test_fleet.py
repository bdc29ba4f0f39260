"""Paces, task times and absences of a fleet."""

import random
from collections.abc import Callable
from itertools import pairwise
from math import exp, inf
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

import pytest

from fedcompass.errors import SettingsError
from fedcompass.settings.simulation import Dropout, FleetSettings
from fedcompass.simulation.fleet import Fleet, TaskTime
from fedcompass.simulation.fleet_draws import Stream


def fleet(seed: int = 0, **values: Any) -> Fleet:
    return Fleet(FleetSettings(**values), seed)


def largest_gap(sample: list[float], cdf: Callable[[float], float]) -> float:
    """The Kolmogorov-Smirnov distance of a sample from a distribution."""
    ordered = sorted(sample)
    n = len(ordered)
    return max(max(cdf(x) - rank / n, (rank + 1) / n - cdf(x)) for rank, x in enumerate(ordered))


ALIKE = 1.95 / 20_000**0.5  # the 0.1% critical value for 20,000 draws


class TestDraws:
    def test_uniform_over_clients_over_rounds_and_over_seeds(self) -> None:
        stream = Stream(0, "test")
        for sample in (
            [stream.uniform(client, 0) for client in range(20_000)],
            [stream.uniform(3, local_round) for local_round in range(20_000)],
            [Stream(seed, "test").uniform(3, 4) for seed in range(20_000)],
        ):
            assert largest_gap(sample, lambda u: u) < ALIKE
            assert min(sample) > 0
            assert max(sample) < 1

    def test_neighbours_are_unrelated(self) -> None:
        stream = Stream(0, "test")
        here = [stream.normal(c, r) for c in range(100) for r in range(100)]
        for there in (
            [stream.normal(c + 1, r) for c in range(100) for r in range(100)],
            [stream.normal(c, r + 1) for c in range(100) for r in range(100)],
            [stream.normal(r, c) for c in range(100, 200) for r in range(100)],
            [Stream(1, "test").normal(c, r) for c in range(100) for r in range(100)],
            [Stream(0, "tests").normal(c, r) for c in range(100) for r in range(100)],
        ):
            correlation = fmean(a * b for a, b in zip(here, there, strict=True))
            assert abs(correlation) < 0.04  # 4 standard errors of 10,000 pairs

    def test_values_never_change(self) -> None:
        # A fleet belongs to its seed for good: these numbers must not move between releases.
        assert Stream(0, "pace").uniform(0, 0) == pytest.approx(0.8609150269091611, abs=1e-15)
        assert Stream(7, "jitter").uniform(3, 9) == pytest.approx(0.8729179666450965, abs=1e-15)


class TestPaces:
    def test_homogeneous_clients_are_equal(self) -> None:
        assert set(fleet(speed="homogeneous").paces) == {0.15}

    def test_normal_paces_have_the_papers_mean_and_spread(self) -> None:
        paces = fleet(clients=20_000, speed="normal").paces
        normal = NormalDist(0.15, 0.3 * 0.15)
        assert largest_gap(list(paces), normal.cdf) < ALIKE  # all but 0.05% of it above the floor
        assert fmean(paces) == pytest.approx(0.15, rel=0.01)
        assert stdev(paces) == pytest.approx(0.045, rel=0.02)

    def test_exponential_paces_have_the_papers_mean(self) -> None:
        paces = fleet(clients=20_000, floor=1e-9).paces
        assert largest_gap(list(paces), lambda t: 1 - exp(-t / 0.15)) < ALIKE
        assert fmean(paces) == pytest.approx(0.15, rel=0.03)

    def test_no_drawn_pace_falls_below_the_floor(self) -> None:
        exponential = fleet(clients=20_000)
        assert min(exponential.paces) == 0.02 * 0.15
        share = fmean(pace == 0.02 * 0.15 for pace in exponential.paces)
        assert share == pytest.approx(1 - exp(-0.02), rel=0.15)
        rounds = [exponential.seconds_per_step(c, r) for c in range(2_000) for r in range(5)]
        assert min(rounds) == 0.02 * 0.15

    def test_a_normal_pace_below_the_floor_is_drawn_again(self) -> None:
        """At the floor it would be the fastest of all: a negative time is no fast client."""
        paces = fleet(clients=20_000, speed="normal", spread=2).paces
        assert min(paces) > 0.02 * 0.15
        wide = NormalDist(0.15, 2 * 0.15)
        cut = wide.cdf(0.02 * 0.15)
        assert largest_gap(list(paces), lambda t: (wide.cdf(t) - cut) / (1 - cut)) < ALIKE

    def test_given_paces_are_taken_as_they_are(self) -> None:
        given = fleet(paces=[1e-6, 0.2, 0.3, 0.4, 50], jitter=0)
        assert list(given.paces) == [1e-6, 0.2, 0.3, 0.4, 50]
        assert [given.seconds_per_step(client, 7) for client in range(5)] == list(given.paces)
        assert given.speed_ratio == pytest.approx(5e7)

    def test_wild_jitter_on_a_given_pace_meets_a_floor_of_its_own(self) -> None:
        given = fleet(clients=1, paces=[1e-6], jitter=3)
        assert min(given.seconds_per_step(0, r) for r in range(1_000)) == 0.02 * 1e-6

    def test_jitter_is_normal_around_the_base_pace(self) -> None:
        client = fleet(clients=3, paces=[0.1, 0.2, 0.4])
        noise = [client.seconds_per_step(2, r) / 0.4 - 1 for r in range(20_000)]
        assert largest_gap(noise, NormalDist(0, 0.05).cdf) < ALIKE
        assert client.base_seconds_per_step(2) == 0.4

    def test_a_smaller_fleet_is_the_beginning_of_a_larger_one(self) -> None:
        assert fleet(clients=5).paces == fleet(clients=500).paces[:5]

    def test_another_seed_is_another_fleet(self) -> None:
        assert fleet(seed=0).paces != fleet(seed=1).paces
        assert fleet(seed=-1).paces != fleet(seed=2**64 - 1).paces

    def test_the_mean_only_scales_the_fleet(self) -> None:
        slow = fleet(mean_seconds_per_step=1.5).paces
        assert slow == pytest.approx([10 * pace for pace in fleet().paces])

    def test_an_unknown_client_is_refused(self) -> None:
        for client in (-1, 5):
            with pytest.raises(SettingsError) as refusal:
                fleet().seconds_per_step(client, 0)
            assert str(refusal.value) == f"client {client} is not in the fleet; allowed: 0 to 4"


class TestPurity:
    def test_the_order_of_questions_is_irrelevant(self) -> None:
        values = {
            "clients": 20,
            "resample_probability": 0.3,
            "changes": [[3, 10, 0.5]],
            "dropout_probability": 0.2,
            "dropout_seconds": 10,
        }
        questions = [(client, r) for client in range(20) for r in range(30)]
        answers = {}
        in_order = fleet(seed=4, **values)
        for client, r in questions:
            answers[client, r] = (
                in_order.seconds_per_step(client, r),
                in_order.drops_out(client, r),
            )
        shuffled = fleet(seed=4, **values)
        random.Random(0).shuffle(questions)
        for client, r in questions:
            assert shuffled.drops_out(client, r) == answers[client, r][1]
            assert shuffled.seconds_per_step(client, r) == answers[client, r][0]
            assert shuffled.seconds_per_step(client, r) == answers[client, r][0]

    def test_chance_events_do_not_move_the_paces(self) -> None:
        calm, troubled = fleet(), fleet(dropout_probability=0.5, dropout_seconds=9)
        assert calm.paces == troubled.paces
        assert calm.seconds_per_step(2, 5) == troubled.seconds_per_step(2, 5)


class TestChangesOfPace:
    def test_a_resampled_pace_holds_until_the_next_resampling(self) -> None:
        client = fleet(clients=200, resample_probability=0.1)
        rounds = [[client.base_seconds_per_step(c, r) for r in range(200)] for c in range(200)]
        changes = [earlier != later for paces in rounds for earlier, later in pairwise(paces)]
        assert fmean(changes) == pytest.approx(0.1, abs=0.005)  # 39,800 chances: 3 standard errors
        assert [paces[0] for paces in rounds] == list(fleet(clients=200).paces)

    def test_resampled_paces_follow_the_same_distribution(self) -> None:
        client = fleet(clients=1, resample_probability=1, floor=1e-9)
        paces = [client.base_seconds_per_step(0, r) for r in range(20_000)]
        assert largest_gap(paces, lambda t: 1 - exp(-t / 0.15)) < ALIKE

    def test_a_scripted_change_holds_from_its_round_on(self) -> None:
        client = fleet(paces=[0.1, 0.2, 0.25, 0.4, 0.5], changes=[[2, 5, 0.9], [2, 1, 0.3]])
        paces = [client.base_seconds_per_step(2, r) for r in range(7)]
        assert paces == [0.25, 0.3, 0.3, 0.3, 0.3, 0.9, 0.9]
        assert client.base_seconds_per_step(1, 6) == 0.2

    def test_a_change_from_round_0_replaces_the_draw(self) -> None:
        assert fleet(changes=[[0, 0, 9.0]]).paces[0] == 9.0
        assert fleet(changes=[[0, 0, 9.0]]).paces[1:] == fleet().paces[1:]

    def test_of_a_change_and_a_redraw_the_later_counts(self) -> None:
        redrawn = fleet(clients=1, resample_probability=0.2)
        paces = [redrawn.base_seconds_per_step(0, r) for r in range(60)]
        redraw = next(r for r in range(5, 60) if paces[r] != paces[r - 1])

        def changed(from_round: int) -> Fleet:
            change = [[0, from_round, 7.0]]
            return fleet(clients=1, resample_probability=0.2, changes=change)

        before = changed(redraw - 1)
        assert before.base_seconds_per_step(0, redraw - 2) == paces[redraw - 2]
        assert before.base_seconds_per_step(0, redraw - 1) == 7.0
        assert before.base_seconds_per_step(0, redraw) == paces[redraw]
        assert changed(redraw).base_seconds_per_step(0, redraw) == 7.0


class TestTaskTimes:
    def test_a_task_takes_its_steps_times_the_pace_of_its_round(self) -> None:
        client = fleet()
        time = client.task_seconds(1, 4, steps=100, model_bytes=2_000_000)
        assert time == TaskTime(compute=100 * client.seconds_per_step(1, 4), overhead=0)
        assert time.total == time.compute

    def test_the_model_travels_down_and_up(self) -> None:
        client = fleet(latency_seconds=0.1, bandwidth_bytes_per_second=1e6)
        time = client.task_seconds(0, 0, steps=10, model_bytes=3_000_000)
        assert time.overhead == pytest.approx(2 * 0.1 + 2 * 3.0)
        assert time.total == time.compute + time.overhead

    def test_each_client_has_its_own_link(self) -> None:
        client = fleet(clients=2, latency_seconds=[0, 0.5], bandwidth_bytes_per_second=[1e6, 2e6])
        assert client.task_seconds(0, 0, 1, 1_000_000).overhead == pytest.approx(2.0)
        assert client.task_seconds(1, 0, 1, 1_000_000).overhead == pytest.approx(2.0)
        assert client.task_seconds(1, 0, 1).overhead == pytest.approx(1.0)


class TestAbsences:
    def test_scripted_ones_come_in_order_of_time(self) -> None:
        client = fleet(dropouts=[[1, 50], [1, 10, 20], [0, 5, 6]])
        assert client.outages(1) == (
            Dropout(client=1, at=10, returns_at=20),
            Dropout(client=1, at=50),
        )
        assert client.outages(4) == ()

    def test_chance_ones_have_the_given_probability_and_mean(self) -> None:
        client = fleet(clients=100, dropout_probability=0.1, dropout_seconds=60)
        drops = [client.drops_out(c, r) for c in range(100) for r in range(500)]
        downtimes = [seconds for seconds in drops if seconds is not None]
        assert len(downtimes) / len(drops) == pytest.approx(0.1, abs=0.005)
        assert fmean(downtimes) == pytest.approx(60, rel=0.05)
        assert min(downtimes) > 0
        assert max(downtimes) < inf

    def test_nobody_drops_out_unless_asked_to(self) -> None:
        assert all(fleet().drops_out(c, r) is None for c in range(5) for r in range(100))


def test_rows_describe_each_client() -> None:
    described = fleet(
        clients=2,
        paces=[0.2, 0.1],
        changes=[[1, 3, 0.4]],
        dropouts=[[0, 5]],
        latency_seconds=[0.1, 0.2],
    )
    assert len(described) == 2
    assert described.rows() == [
        {
            "client": 0,
            "seconds_per_step": 0.2,
            "times_fastest": 2.0,
            "latency_seconds": 0.1,
            "bandwidth_bytes_per_second": None,
            "changes": 0,
            "outages": 1,
        },
        {
            "client": 1,
            "seconds_per_step": 0.1,
            "times_fastest": 1.0,
            "latency_seconds": 0.2,
            "bandwidth_bytes_per_second": None,
            "changes": 1,
            "outages": 0,
        },
    ]
    limited = fleet(clients=1, bandwidth_bytes_per_second=1e6).rows()[0]
    assert limited["bandwidth_bytes_per_second"] == 1e6


def test_a_trace_is_the_fleet(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("client,round,seconds_per_step\n1,0,0.2\n0,0,0.1\n0,3,0.5\n")
    traced = fleet(clients=2, speed="trace", trace=path)
    assert traced.paces == (0.1, 0.2)
    assert [traced.seconds_per_step(0, r) for r in range(5)] == [0.1, 0.1, 0.1, 0.5, 0.5]
    assert traced.rows()[0]["changes"] == 1


def test_a_trace_without_rounds_gets_jitter(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("client,seconds_per_step\n0,0.1\n1,0.2\n")
    traced = fleet(clients=2, speed="trace", trace=path)
    assert traced.paces == (0.1, 0.2)
    assert traced.seconds_per_step(0, 0) != traced.seconds_per_step(0, 1)
    assert traced.seconds_per_step(0, 0) == pytest.approx(0.1, rel=0.3)
