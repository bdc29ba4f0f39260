"""The number of groups over time: the study, its file and its figure."""

from pathlib import Path

import pytest

from fedcompass.errors import SettingsError
from fedcompass.paper.figures import draw_groups
from fedcompass.paper.groups import groups_grid, groups_of, read_study, study, write_study


def test_equal_clients_without_noise_are_one_group() -> None:
    found = groups_of(0, 5, 0.0, speed="homogeneous")
    assert (found.mu, found.bound, found.most, found.share_above) == (1.0, 1, 1, 0.0)
    assert set(found.by_round) == {1}


def test_a_fleet_within_the_range_settles_in_one_group() -> None:
    found = next(
        fleet for seed in range(50) if (fleet := groups_of(seed, 3, 0.0, rounds=20)).mu < 4
    )
    assert (found.bound, found.most) == (1, 1)


def test_a_fleet_is_the_same_every_time() -> None:
    assert groups_of(3, 5, 0.05, rounds=15) == groups_of(3, 5, 0.05, rounds=15)


def test_a_study_is_written_read_and_summed_up(tmp_path: Path) -> None:
    fleets = [groups_of(seed, 5, noise, rounds=15) for seed in range(3) for noise in (0.0, 0.05)]
    write_study(fleets, tmp_path / "results" / "groups.jsonl")
    assert read_study(tmp_path / "results" / "groups.jsonl") == fleets
    rows = groups_grid(fleets).rows
    assert [row[:3] for row in rows if row[1] == "all"] == [["0%", "all", "3"], ["5%", "all", "3"]]
    assert all(len(row) == len(groups_grid(fleets).header) for row in rows)


def test_the_study_takes_the_numbers_of_clients_by_turns() -> None:
    fleets = study(10**6)
    first = [next(fleets) for _ in range(3)]
    assert [(f.seed, f.clients, f.jitter) for f in first] == [(0, 5, 0.0), (0, 5, 0.05), (1, 10, 0)]


def test_a_study_that_is_not_there_or_something_else_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="run: fedcompass paper run figure-groups"):
        read_study(tmp_path / "groups.jsonl")
    (tmp_path / "groups.jsonl").write_text("{}\n")
    with pytest.raises(SettingsError, match="is not a study of groups"):
        read_study(tmp_path / "groups.jsonl")


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    fleets = [groups_of(seed, 5, noise, rounds=12) for seed in range(2) for noise in (0.0, 0.05)]
    draw_groups(fleets, tmp_path / "groups.png")
    assert (tmp_path / "groups.png").stat().st_size > 5000
