"""The catalogue: every table and figure, and the appendix's settings in every run."""

import re
from math import ceil
from pathlib import Path

import pytest

from fedcompass.errors import SettingsError
from fedcompass.experiment import Experiment
from fedcompass.paper.cells import BLOCKS, Cell, chosen
from fedcompass.paper.entries import catalogue, entry_named
from fedcompass.paper.entry import Entry
from fedcompass.paper.horizons import ROUNDS, Horizons, mean_rounds, slowest_expected
from fedcompass.paper.hyperparameters import (
    ALGORITHMS,
    CHOICES,
    row_horizons,
    settings_of,
    signature,
)
from fedcompass.paper.numbers import Printed, SettingsTable, paper_tables

SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "fedcompass.tex"
EXP = Cell("mnist-class", 5, "exp")
COLUMN = {"fedcompass+n": "FedCompass(+N)", "fedcompass": "FedCompass(+N)"}
HEADINGS = {"fedavg": "FedAvg", "fedavgm": "FedAvgM", "fedasync": "FedAsync", "fedat": "FedAT",
            "fedbuff": "FedBuff", "fedcompass+m": "FedCompass+M", **COLUMN}  # fmt: skip


@pytest.mark.skipif(not SOURCE.is_file(), reason="the paper's LaTeX source is not beside the code")
def test_every_table_and_figure_of_the_source_has_an_entry() -> None:
    source = SOURCE.read_text(encoding="utf-8")
    labels = set(re.findall(r"\\label\{((?:tab|fig):[^}]*)\}", source))
    known = {entry.label for entry in catalogue().values()} - {""}
    assert labels - known == {"tab:notation", "tab:ca_notation"}
    assert known <= labels


@pytest.mark.skipif(not SOURCE.is_file(), reason="the paper's LaTeX source is not beside the code")
def test_entries_are_numbered_as_latex_numbers_them() -> None:
    source = SOURCE.read_text(encoding="utf-8")
    for kind in ("table", "figure"):
        blocks = re.findall(rf"\\begin\{{{kind}\*?\}}.*?\\end\{{{kind}\*?\}}", source, re.DOTALL)
        for number, block in enumerate(blocks, start=1):
            label = re.search(r"\\label\{([^}]*)\}", block)
            assert label is not None
            if "notation" not in label[1]:
                assert entry_named(label[1]).name == f"{kind}-{number}"


def test_an_entry_is_found_by_name_and_an_unknown_one_is_one_line() -> None:
    assert entry_named("table-1").cells[2] == EXP
    with pytest.raises(SettingsError, match=r"no entry 'table-99' \(did you mean 'table-9'\?\)"):
        entry_named("table-99")


@pytest.mark.parametrize("name", [n for n, e in catalogue().items() if e.rows])
def test_every_run_is_an_experiment_in_which_nothing_of_the_strategy_was_left_open(
    name: str,
) -> None:
    entry = catalogue()[name]
    for run in entry.plan(entry.cells[::4], [1]):
        record = Experiment(**run.settings).to_record()
        assert record["strategy"] == run.settings["strategy"]
        assert signature(record) == signature(run.settings)


def appendix(dataset: str) -> SettingsTable:
    number = {"mnist": 9, "cifar10": 12}[dataset]
    found = paper_tables()[f"table-{number}"]
    assert isinstance(found, SettingsTable)
    return found


def value(printed: str, clients: int) -> float | None:
    """A cell of the appendix's table; a tuple holds the values for 5, 10 and 20 clients."""
    if printed == "-":
        return None
    parts = printed.strip("()").split(",")
    return float(parts[(5, 10, 20).index(clients)] if len(parts) > 1 else parts[0])


@pytest.mark.parametrize("block", ["mnist-class", "cifar10-dual-dirichlet"])
@pytest.mark.parametrize("clients", [5, 10, 20])
@pytest.mark.parametrize("row", ALGORITHMS)
def test_hyperparameters_are_those_of_the_appendix(block: str, clients: int, row: str) -> None:
    table = appendix(BLOCKS[block].dataset)
    settings = settings_of(Cell(block, clients, "exp"), row, 0)
    strategy, local = settings["strategy"], settings["local"]
    staleness = strategy.get("staleness", {})
    ours = {
        "Q": strategy.get("steps"),
        "Q_min": strategy.get("min_steps"),
        "Q_max": strategy.get("max_steps"),
        "η": local["learning_rate"],
        "β": strategy.get("server", {}).get("beta"),
        "B": local["batch_size"],
        "α": staleness.get("alpha"),
        "a": staleness.get("a"),
        "K": strategy.get("buffer_size"),
        "υ": strategy.get("tier_ratio"),
        "λ": strategy.get("latest"),
    }
    for name, found in ours.items():
        assert found == value(table.value(name, HEADINGS[row]), clients), name
    assert local["optimizer"] == table.value("Optim", HEADINGS[row]).lower()


@pytest.mark.parametrize(("block", "column"), [("fed-ixi", 1), ("fed-isic2019", 2)])
def test_hyperparameters_of_the_flamby_tasks(block: str, column: int) -> None:
    table = paper_tables()["table-13"]
    assert isinstance(table, SettingsTable)
    printed = {row[0]: row[column] for row in table.rows}
    cell = Cell(block, int(printed["m (Client #)"]), "exp")
    compass, buff = (settings_of(cell, row, 0) for row in ("fedcompass+m", "fedbuff"))
    strategy = {**buff["strategy"], **compass["strategy"]}
    assert cell.clients in BLOCKS[block].clients
    assert strategy["steps"] == int(printed["Q"])
    assert strategy["min_steps"] == int(printed["Q_min"])
    assert strategy["max_steps"] == int(printed["Q_max"])
    assert strategy["server"] == {"beta": float(printed["β"])}
    assert strategy["buffer_size"] == int(printed["K"])
    assert strategy["latest"] == float(printed["λ"])
    assert compass["local"]["optimizer"] == printed["Optimizer"].lower()
    assert compass["local"]["learning_rate"] == float(printed["η"])
    assert compass["local"]["batch_size"] == int(printed["B"])


def test_mean_paces_are_the_papers() -> None:
    means = paper_tables()["table-7"]
    assert isinstance(means, SettingsTable)
    for row, block in zip(means.rows, ("mnist-class", "cifar10-class", "fed-ixi", "fed-isic2019"),
                          strict=True):  # fmt: skip
        clients = BLOCKS[block].clients[0]
        settings = settings_of(Cell(block, clients, "exp"), "fedcompass", 0)
        assert f"{settings['fleet']['mean_seconds_per_step']:g}s" == row[2]
        assert str(settings["local"]["batch_size"]) == row[1]


def test_the_middle_ratio_is_fedcompass_itself_and_one_is_a_run_of_its_own() -> None:
    same = [signature(settings_of(EXP, row, 0)) for row in ("fedcompass", "1/Q=0.20")]
    assert same[0] == same[1]
    one = settings_of(EXP, "1/Q=1.00", 0)["strategy"]
    assert (one["name"], one["min_steps"], one["max_steps"]) == ("fedcompass", 200, 200)
    table = entry_named("table-19")
    assert {"1/Q=1.00", "fedasync"} <= set(table.rows)
    assert table.printed(EXP, "fedasync") == table.printed(EXP, "1/Q=1.00") == Printed(2.35)


def test_the_lambda_tables_run_with_clients_that_change_their_speed() -> None:
    table = entry_named("table-21")
    assert all(cell.changing for cell in table.cells)
    settings = settings_of(table.cells[1], "lambda=1.50", 3)
    assert settings["fleet"]["resample_probability"] == 0.1
    assert settings["strategy"]["latest"] == 1.5
    assert str(table.cells[1]) == "mnist-class/m=5/exp/changing"
    assert table.printed(table.cells[1], "fedat") == Printed(3.20)


def test_the_authors_choice_is_the_authors_profile() -> None:
    chosen_settings = settings_of(EXP, "fedcompass@authors", 0)
    plain = {key: chosen_settings[key] for key in ("data", "fleet", "seed", "profile")}
    assert Experiment(**chosen_settings).local == Experiment(**plain).local
    habits = ("join_up_to", "aim", "pace")
    profile = Experiment(**plain).strategy
    assert all(chosen_settings["strategy"][key] == profile[key] for key in habits)


def test_choices_differ_from_the_plain_run_and_from_each_other() -> None:
    rows = [f"fedcompass@{choice}" for choice in CHOICES if choice != "own"]
    rows = [row for row in rows if row != "fedcompass@long"]
    signatures = {signature(settings_of(EXP, row, 0)) for row in ["fedcompass", *rows]}
    assert len(signatures) == len(rows) + 1
    own = settings_of(EXP, "fedasync@own", 0)["strategy"]
    assert (own["variant"], own["staleness"]["alpha"]) == ("own", 0.6)


def test_a_row_that_is_not_known_is_one_line() -> None:
    for row in ("fedprox", "fedcompass@sunday"):
        with pytest.raises(SettingsError, match=f"row is '{row}'; allowed: fedavg, "):
            settings_of(EXP, row, 0)


@pytest.mark.parametrize(
    "row", ["fedavg@long", "fedavgm@long", "fedavg@own", "fedavg@sign", "fedasync@join"]
)
def test_a_choice_that_changes_nothing_of_a_row_is_refused(row: str) -> None:
    strategy, _, choice = row.partition("@")
    with pytest.raises(SettingsError, match=f"'{choice}' changes nothing of {strategy}; leave it"):
        settings_of(EXP, row, 0)


def test_all_of_one_kind_share_a_cells_horizon() -> None:
    for cell in entry_named("table-1").cells:
        horizons = {row: both_horizons(cell, row) for row in ALGORITHMS}
        assert horizons["fedavg"] == horizons["fedavgm"]
        asynchronous = {horizons[row] for row in ALGORITHMS if row not in ("fedavg", "fedavgm")}
        assert len(asynchronous) == 1
        accuracy, target = asynchronous.pop()
        assert horizons["fedavg"].accuracy >= accuracy
        assert horizons["fedavg"].target >= target


def both_horizons(cell: Cell, row: str) -> Horizons:
    settings = settings_of(cell, row, 0)
    return Horizons(settings["run_at_least"], settings["horizon"])


def test_horizons_are_numbers_of_mean_rounds() -> None:
    assert mean_rounds(EXP, "fedcompass") == ROUNDS["mnist"].exponential == Horizons(4, 15)
    assert both_horizons(EXP, "fedcompass") == (4 * 30.0, 15 * 30.0)
    assert both_horizons(Cell("mnist-class", 20, "homo"), "fedbuff") == (10 * 15.0, 25 * 15.0)
    slowest = slowest_expected("exp", 5)
    assert mean_rounds(EXP, "fedavg") == (ceil(10 * slowest), ceil(25 * slowest))
    assert mean_rounds(Cell("cifar10-class", 5, "exp"), "fedat") == (2, 5)
    ablation = Cell("mnist-class", 5, "exp", ablation=True)
    assert both_horizons(ablation, "1/Q=0.40") == (2 * 30.0, 8 * 30.0)
    assert row_horizons(EXP, "fedcompass@long") == (4, mean_rounds(EXP, "fedavg").target)
    assert slowest_expected("exp", 5) == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5)
    assert slowest_expected("normal", 5) == pytest.approx(1 + 0.3 * 1.163, abs=1e-3)
    assert slowest_expected("homo", 20) == 1.0


def test_runs_of_accuracies_go_on_to_their_horizon_and_runs_of_times_end_at_the_target() -> None:
    for name, entry in catalogue().items():
        for run in entry.plan(entry.cells, [0]) if entry.rows else ():
            stops = run.cell.settings.dataset in ("mnist", "mnist-mini", "cifar10")
            times = entry.kind == "table" and entry.quantity == "time"
            assert bool(run.settings.get("stop_at_target")) is (stops or times), name
            assert bool(run.settings.get("run_at_least")) is (stops and not times)


def test_the_model_is_measured_by_time_and_at_the_accuracy_horizon() -> None:
    """Else a run that stops there would be measured then, and one that goes on a bit later."""
    for name in ("table-1", "table-1-mini", "table-21"):
        entry = entry_named(name)
        for run in entry.plan(entry.cells, [0]):
            every = run.settings["evaluation"]["every_seconds"]
            ticks = round(run.settings["run_at_least"] / every)
            assert ticks * every <= run.settings["run_at_least"] < (ticks + 1) * every
            assert run.settings["run_at_least"] - ticks * every < 1e-9
    assert settings_of(EXP, "fedavg", 0)["evaluation"]["every_seconds"] == 3.0
    assert settings_of(Cell("fed-ixi", 3, "exp"), "fedavg", 0)["evaluation"]["every_updates"] == 1


def test_cells_are_chosen_by_address_beginning_or_pattern() -> None:
    cells = entry_named("table-1").cells
    assert chosen(cells, "mnist-class/m=5/exp") == [EXP]
    assert len(chosen(cells, "mnist-class")) == 9
    assert len(chosen(cells, "mnist-*/m=20/exp")) == 2
    assert len(chosen(cells, "mnist-class/m=5, cifar10-class/m=5/homo")) == 4
    assert chosen(cells, None) == list(cells)
    changing = entry_named("table-21").cells
    assert chosen(changing, "mnist-class/m=5/exp") == [Cell("mnist-class", 5, "exp", True, True)]
    with pytest.raises(SettingsError, match="--cells is 'mnist'; the cells are: mnist-class/m=5"):
        chosen(cells, "mnist")


def test_some_rows_of_an_entry() -> None:
    some = entry_named("table-1").only("fedcompass, fedavg")
    assert some.rows == ("fedavg", "fedcompass")
    assert entry_named("table-1").only(None).rows == ALGORITHMS
    with pytest.raises(SettingsError, match=r"table-1 has no row 'fedavgg' \(did you mean"):
        entry_named("table-1").only("fedavgg")


def test_a_choice_is_compared_with_the_reference_under_the_same_choice() -> None:
    entry = entry_named("choices")
    assert entry.reference_of("fedavg@floor") == "fedcompass@floor"
    assert entry.reference_of("fedcompass@floor") == "fedcompass"
    assert entry.reference_of("fedasync@own") == "fedcompass"
    assert entry.printed(EXP, "fedavg@floor") == Printed(4.32)
    assert entry.printed(EXP, "fedcompass@floor") is None


def test_an_entry_without_numbers_prints_none() -> None:
    assert Entry(name="x", kind="table", title="x").printed(EXP, "fedavg") is None
