"""The runs on medical data as entries of `fedcompass paper`, from made-up and committed stores."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from tests.paper.stored_runs import line, write_store
from torch import nn
from torch.nn import functional

from fedcompass.experiment import Experiment
from fedcompass.models.efficientnet import efficientnet_b0, quick_efficientnet_b0
from fedcompass.paper.cells import Cell
from fedcompass.paper.entries import entry_named
from fedcompass.paper.medical_runs import MEDICAL
from fedcompass.paper.medical_tables import medical_grid, medical_lines
from fedcompass.paper.pages import write_report
from fedcompass.paper.stored_runs import StoredRuns
from fedcompass.sweeps.store import Store
from fedcompass.sweeps.sweep_file import Sweep

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli.app import app

ROOT = Path(__file__).parents[3]
HEART = entry_named("medical-heart")
EXP = Cell("heart", 4, "exp")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """FedCompass at 50 s, FedAvg at 100, FedAsync once of three."""
    times: dict[str, list[float | None]] = {
        "fedcompass": [40, 50, 60],
        "fedavg": [100, 100, 100],
        "fedasync": [None, None, 70],
    }
    records = [
        line(EXP, row, seed, time, 0.74 + 0.01 * seed if time else 0.7)
        for row, by_seed in times.items()
        for seed, time in enumerate(by_seed, start=1)
    ]
    write_store(tmp_path / "results" / "medical-tabular.jsonl", records)
    return tmp_path / "results"


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("medical_sweep", ("medical-heart", "medical-brca")),
        ("medical_gpu_sweep", ("medical-isic", "medical-hippocampus")),
    ],
)
def test_an_example_sweep_and_the_entries_are_the_same_experiments(
    file: str, names: tuple[str, ...]
) -> None:
    sweep = Sweep.from_toml(ROOT / "examples" / f"{file}.toml")
    entries = [entry_named(name) for name in names]
    runs = [run for entry in entries for run in entry.plan(entry.cells, sweep.seeds)]
    assert len(runs) == len(sweep.experiments())
    keys = {Experiment(**run.settings).key() for run in runs}
    assert keys == {experiment.key() for experiment in sweep.experiments()}


def test_a_table_has_relative_times_with_counts_and_top_values(folder: Path) -> None:
    grid = medical_grid(StoredRuns.read(folder).of(HEART, [EXP]))
    rows = {row[0]: row[1:] for row in grid.rows}
    assert grid.title == (
        "heart, m=4: time to 72% (fedcompass = 1) and top binary accuracy in percent"
    )
    assert grid.header == ["method", "exp: time", "top"]
    assert rows["fedcompass"] == ["1.00 3/3", "76.0±1.0"]
    assert rows["fedavg"] == ["2.00 3/3", "76.0±1.0"]
    assert rows["fedasync"] == ["- 1/3", "72.3±4.0"]
    assert rows["fedat"] == ["·", "·"]
    assert rows["fedcompass, seconds"] == ["50.0", ""]


def test_below_it_stand_seeds_device_and_whom_fedcompass_is_ahead_of(folder: Path) -> None:
    first, ahead = medical_lines(StoredRuns.read(folder).of(HEART, [EXP]))
    assert first == ("0 of 1 cells have every row; seeds per row: 0 to 3 (1, 2, 3); trained on cpu")
    assert ahead.endswith("(a seed that missed counts at the horizon): fedavg 1/1, fedasync 1/1")


def test_the_page_is_written_and_without_results_says_so(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- paper: medical-heart -->\n<!-- end -->\n<!-- paper: medical-isic -->\n"
                    "old\n<!-- end -->\n")  # fmt: skip
    assert write_report(page, folder) == {page: 2}
    text = page.read_text()
    assert "| fedavg | · | · | · | · | 2.00 3/3 | 76.0±1.0 |" in text
    assert "medical-isic: Fed-ISIC2019, 4 centers of 6, reduced resolution" in text
    assert "No results yet (0 of 1 cells)." in text
    assert "old" not in text


def test_a_figure_is_drawn_from_the_same_runs(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "heart.png"
    arguments = ["paper", "plot", "medical-heart", "-o", str(picture), "--results", str(folder)]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_committed_results_show_without_torch() -> None:
    code = (
        "import sys; from fedcompass.cli.app import app; "
        "sys.argv = ['fedcompass', 'paper', 'show', 'medical-heart']\n"
        "try: app()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=ROOT,
    )
    assert done.stderr.splitlines()[-1] == "False"
    assert "heart, m=4: time to 72%" in done.stdout


@pytest.mark.parametrize("store", sorted((ROOT / "results").glob("medical-*.jsonl")), ids=str)
def test_every_committed_run_has_its_place_in_a_table(store: Path) -> None:
    assert store.stat().st_size < 2_000_000
    records = [json.loads(text) for text in store.read_text(encoding="utf-8").splitlines()[1:]]
    results = StoredRuns.read(store.parent)
    placed = sum(
        len(results.runs(cell, row))
        for block in MEDICAL
        for cell in entry_named(f"medical-{block}").cells
        for row in entry_named(f"medical-{block}").rows
    )
    stores = store.parent.glob("medical-*.jsonl")
    total = sum(len(path.read_text(encoding="utf-8").splitlines()) - 1 for path in stores)
    assert records
    assert placed == total


def test_the_quick_network_is_efficientnet_b0_and_is_not_dead_at_the_start() -> None:
    shape = (3, 64, 64)
    torch.manual_seed(0)
    quick, plain = quick_efficientnet_b0(shape), efficientnet_b0(shape)
    sizes = {name: tensor.shape for name, tensor in plain.state_dict().items()}
    assert {name: tensor.shape for name, tensor in quick.state_dict().items()} == sizes
    images = functional.interpolate(torch.randn(4, 3, 6, 6), shape[1:], mode="bilinear")
    with torch.no_grad():
        spread = {name: float(network.eval()(images).std(0).mean()) for name, network in
                  (("quick", quick), ("plain", plain))}  # fmt: skip
    assert 100 > spread["quick"] > 0.05 > 1e-4 > spread["plain"]
    norms = [module for module in quick.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {norm.momentum for norm in norms} == {0.1}
    # so that a merge keeps what they say: counters of 0 are statistics that say nothing
    assert all(norm.num_batches_tracked for norm in norms)


def test_the_quick_network_is_the_same_for_the_same_seed() -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(quick_efficientnet_b0((3, 64, 64)).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_store_that_names_the_quick_network_as_it_was_named_before_is_still_found() -> None:
    path = ROOT / "results" / "medical-isic.jsonl"
    assert "fedcompass.medical.from_scratch:quick_efficientnet_b0" in path.read_text()
    store, sweep = Store(path), Sweep.from_toml(ROOT / "examples" / "medical_gpu_sweep.toml")
    done = [store.finished(experiment.key()) for experiment in sweep.experiments()]
    assert len([record for record in done if record]) == len(store.records()) > 0
