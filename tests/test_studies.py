"""The studies in `studies/`: plans that can be read, on seeds that no setting was chosen with."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from scripts.pin_model_buffers import converted

from fedcompass.advice.choice import advise
from fedcompass.advice.clients import clients_in_experiment
from fedcompass.advice.measured import RECOMMENDATIONS
from fedcompass.experiment import record_key
from fedcompass.paper_settings import strategy_settings
from fedcompass.sweeps.store import Store, is_store
from fedcompass.sweeps.sweep_file import Planned, Sweep

ROOT = Path(__file__).parents[1]
STUDIES = sorted((ROOT / "studies").glob("*.toml"))
AS_IN_THE_PAPER = ("create-group", "create-group-mnist")
"""Studies with the paper's ten seeds, and its steps for each number of clients: what is compared
are readings of the paper, and no setting was or is chosen with them."""
ON_ITS_SEEDS = (*AS_IN_THE_PAPER, "sampling", "sampling-mnist")


@cache
def plan_of(study: str) -> list[Planned]:
    return Sweep.from_toml(ROOT / "studies" / f"{study}.toml").plan()


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_judges_on_seeds_that_nothing_was_chosen_with(path: Path) -> None:
    plan = plan_of(path.stem)
    fresh = {"metronome-fresh": (30, 50), "metronome-iid": (30, 50), "unequal-speeds": (50, 70)}
    fresh |= dict.fromkeys(ON_ITS_SEEDS, (0, 10))
    judged = range(*fresh.get(path.stem, (20, 30)))
    assert {planned.experiment.seed for planned in plan} <= set(judged)
    assert len({planned.experiment.key() for planned in plan}) == len(plan)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_row_is_judged_by_one_horizon_and_has_one_setting_in_all_cells(path: Path) -> None:
    horizons: set[float] = set()
    settings: dict[tuple[str, str], dict[str, Any]] = {}
    for planned in plan_of(path.stem):
        experiment, horizon = planned.experiment, planned.experiment.horizon
        strategy = {
            key: value
            for key, value in experiment.strategy.items()
            if key != "buffer_size"  # the paper's, by the number of clients
            and f"strategy.{key}" not in planned.labels  # what the study compares
        }
        if path.stem in AS_IN_THE_PAPER:
            paper = strategy_settings(experiment.data.name, experiment.fleet.clients)
            steps = {key: strategy.pop(key) for key in ("min_steps", "max_steps")}
            assert steps.items() <= paper.items()
            horizon /= paper["steps"]  # in mean rounds, as many in every cell
        horizons.add(horizon)
        name = planned.labels.get("row", experiment.strategy["name"])
        row = (experiment.profile, name)
        assert settings.setdefault(row, strategy) == strategy
    assert len(horizons) == 1


@pytest.mark.parametrize("script", ["study_tables.py", "model_buffers.py"])
def test_a_studys_page_has_the_tables_that_the_results_give(script: str) -> None:
    command = [sys.executable, f"scripts/{script}", "--check"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert said.returncode == 0, said.stderr


def test_every_stored_run_with_batch_norm_says_how_its_statistics_were_merged() -> None:
    with_batch_norm = 0
    for store in filter(is_store, (ROOT / "results").glob("*.jsonl")):
        for record in Store(store).done():
            if re.search("resnet|efficientnet|unet|batch_norm", record.experiment["model"]):
                strategy = record.experiment["strategy"]
                assert "model_buffers" in strategy or strategy["name"] == "fedat", store
                with_batch_norm += 1
    assert with_batch_norm >= 89


def test_a_run_from_before_the_setting_is_written_down_as_what_it_was() -> None:
    store = ROOT / "results" / "metronome-hippocampus.jsonl"
    for line in store.read_text(encoding="utf-8").splitlines(keepends=True):
        before = json.loads(line)
        if "experiment" in before:
            del before["experiment"]["strategy"]["model_buffers"]
            before["key"] = record_key(before["experiment"])
        assert converted(json.dumps(before) + "\n") == converted(line) == line


def reached(
    row: str, *studies: str, fleets: tuple[str, ...] = (), beside: str = "fedcompass"
) -> tuple[int, int]:
    """How many runs of a row reached the target, and of how many; those that another has, too.

    fleets: of these alone.
    """
    pairs = [pair for study in studies for pair in pairs_of(study, row, fleets, beside)]
    return sum(pair[0] for pair in pairs), len(pairs)


def pairs_of(study: str, row: str, fleets: tuple[str, ...], beside: str) -> list[tuple[bool, bool]]:
    """For every cell and seed that a row and another have: whether they reached the target."""
    stored = Store(ROOT / "results" / f"{study}.jsonl").done()
    done = {one.key: one.numbers.time_to_target is not None for one in stored}
    found: dict[tuple[object, ...], dict[str, bool]] = {}
    for planned in plan_of(study):
        labels, key = dict(planned.labels), planned.experiment.key()
        label = labels.pop("row")
        if key in done and (not fleets or labels["fleet"] in fleets):
            cell = found.setdefault((planned.experiment.seed, *labels.values()), {})
            cell[label] = done[key]
    return [(cell[row], cell[beside]) for cell in found.values() if row in cell and beside in cell]


def test_what_is_advised_for_clients_far_apart_is_what_the_studies_measured() -> None:
    on_mnist, against_rival, _, on_cifar, on_medical = RECOMMENDATIONS["far apart"].because
    rows: tuple[str, ...] = ("metronome, catch-up", "fedcompass")
    mnist = [reached(row, "metronome-exponential") for row in rows]
    assert {planned for _, planned in mnist} == {180}
    caught_up, compass = (count for count, _ in mnist)
    assert f"reached it in {caught_up} of 180 runs, FedCompass in {compass}." in on_mnist
    rival, own = "fedcompass +a 0.05, cost apart", "metronome, catch-up"
    cost = ("floor 0.02, 0.3 s a task",)
    fresh = [reached(row, "metronome-fresh", fleets=cost, beside=rival) for row in (own, rival)]
    assert {planned for _, planned in fresh} == {120}
    caught_up, growing = (count for count, _ in fresh)
    assert f"in {caught_up} of 120 runs instead of {growing}." in against_rival
    rows = ("metronome", "fedcompass", "fedcompass +a 0.05")
    cifar = [reached(row, "metronome-cifar10") for row in rows]
    assert {planned for _, planned in cifar} == {6}
    beats, compass, growing = (count for count, _ in cifar)
    told = f"target in {beats} of 6 runs, FedCompass in {compass}, and in {growing} with min_steps"
    assert told in on_cifar
    rows = ("metronome, normalized", "metronome", "fedcompass", "fedcompass CA2FL")
    medical = [reached(row, "metronome-heart", "metronome-brca") for row in rows]
    assert {planned for _, planned in medical} == {40}
    plus_n, plain, compass, cached = (count for count, _ in medical)
    assert f"({plus_n} of 40 runs, Metronome {plain}, FedCompass {compass})" in on_medical
    assert f"CA2FL ({cached})" in on_medical


def test_what_is_advised_for_clients_that_wait_little_is_what_the_study_measured() -> None:
    rows = ("fedavg 40", "fedcompass", "metronome")
    equal, normal = (
        [reached(row, "metronome-others", fleets=(fleet,)) for row in rows]
        for fleet in ("equal", "normal")
    )
    assert {planned for fleet in (equal, normal) for _, planned in fleet} == {30}
    (because,) = RECOMMENDATIONS["alike"].because
    assert f"in {equal[0][0]} of 30 runs, FedCompass with up to 200 in {equal[1][0]}" in because
    assert f"Metronome in {equal[2][0]}; with normal speeds it was" in because
    assert f"was {normal[0][0]}, {normal[1][0]} and {normal[2][0]}." in because


def test_with_one_straggler_the_advice_says_what_the_study_measured() -> None:
    rows = ("metronome", "fedcompass", "fedcompass +a 0.05")
    counts = [reached(row, "metronome-others", fleets=("one straggler",)) for row in rows]
    assert {planned for _, planned in counts} == {30}
    beats, compass, growing = (count for count, _ in counts)
    told = f"target in {growing} of 30 runs, as written in {compass}, Metronome in {beats}."
    assert RECOMMENDATIONS["one straggler"].because[0].endswith(told)
    advised, planned = RECOMMENDATIONS["one straggler"], plan_of("metronome-others")
    row = next(one for one in planned if one.labels["row"] == "fedcompass +a 0.05").experiment
    assert row.strategy["staleness"] == advised.settings["staleness"]
    assert row.strategy["max_steps"] / row.strategy["min_steps"] == advised.step_range


@pytest.mark.parametrize(
    ("study", "fleet", "kind"),
    [
        ("metronome-others", "equal", "alike"),
        ("metronome-others", "normal", "alike"),
        ("metronome-others", "one straggler", "one straggler"),
        ("metronome-exponential", "floor 0.02", "far apart"),
        ("metronome-exponential", "floor 0.02, 1.5 s a task", "far apart"),
        ("metronome-exponential", "floor 0.2, 1.5 s a task", "far apart"),
    ],
)
def test_most_fleets_of_the_study_get_the_advice_that_was_measured_on_them(
    study: str, fleet: str, kind: str
) -> None:
    wanted = {"fleet": fleet, "row": "fedcompass", "fleet.clients": "10", "partition.kind": "class"}
    runs = [one for one in plan_of(study) if wanted.items() <= one.labels.items()]
    clients = [clients_in_experiment(one.experiment) for one in runs[:3]]
    assert sum(advise(these).kind == kind for these in clients) >= 2  # of three
