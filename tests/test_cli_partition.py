"""The `fedcompass partition` command, as a user sees it."""

import json
import os
import warnings
from pathlib import Path

import pytest
from click.testing import Result

from fedcompass.data import catalogue
from fedcompass.data.dataset import Dataset
from fedcompass.data.partition import class_counts
from fedcompass.data.partition import partition as deal
from fedcompass.errors import DataError, FedcompassError, SettingsError
from fedcompass.settings.data import PartitionSettings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer imports what click deprecates
    from typer.testing import CliRunner

    from fedcompass.cli.app import app

BESIDE_THE_REPOSITORY = Path(__file__).parents[2] / "shared" / "data"

CLASSES_OF_TEN_CLIENTS = """\
mnist-mini, class partition, 10 clients, seed 0
10000 training samples, 4 to 5 classes per client

client    0     1    2     3    4    5    6     7    8    9  total  share
     0  319     .  305     .    .    .  192   133    .    .    949   9.5%
     1    .     .    .   261  156  193  299   228    .    .   1137  11.4%
     2  432   243  205     .    .  173    .     .    .    .   1053  10.5%
     3    .   205    .     .  125  193  185     .    .  385   1093  10.9%
     4    .   163    .     .  126    .    .   224  975    .   1488  14.9%
     5    .     .    .   516  105  206  310     .    .    .   1137  11.4%
     6    .     .  282     .  156  139    .     .    .  267    844   8.4%
     7  236   165   59     .  155    .    .   266    .    .    881   8.8%
     8    .   182    .   245  114    .    .   193    .    .    734   7.3%
     9    .   166  142     .   37    .    .     .    .  339    684   6.8%
   all  987  1124  993  1022  974  904  986  1044  975  991  10000   100%
"""


def partition(*arguments: str) -> Result:
    return CliRunner(mix_stderr=False).invoke(
        app, ["partition", *arguments], catch_exceptions=False
    )


def records(*arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in partition(*arguments, "--json").output.splitlines()]


@pytest.fixture(scope="module")
def mnist_mini() -> Dataset:
    return catalogue.load("mnist-mini")


def test_without_arguments_the_bundled_data_go_to_ten_clients() -> None:
    result = partition()
    assert result.output == CLASSES_OF_TEN_CLIENTS
    assert result.exit_code == 0


@pytest.mark.parametrize("kind", ["class", "dual-dirichlet", "iid"])
def test_json_lines_hold_what_an_experiment_deals_out(kind: str, mnist_mini: Dataset) -> None:
    settings = PartitionSettings(kind=kind)  # type: ignore[arg-type]  # a name from the list
    targets = mnist_mini.train_targets
    parts = deal(targets, 10, 5, settings, seed=3)
    expected = class_counts(parts, targets, 10).tolist()
    told = records("--kind", kind, "--clients", "5", "--seed", "3")
    assert [record["counts"] for record in told] == expected
    assert [record["client"] for record in told] == list(range(5))
    assert [record["samples"] for record in told] == [sum(row) for row in expected]
    assert sum(float(str(record["share"])) for record in told) == pytest.approx(1)


def test_the_class_range_can_be_given() -> None:
    told = records("--clients", "10", "--n-min", "2", "--n-max", "2")
    held = [sum(n > 0 for n in record["counts"]) for record in told]  # type: ignore[attr-defined]
    assert held == [2] * 10
    assert "2 classes each" in partition("--n-min", "2", "--n-max", "2").output


def test_the_concentrations_can_be_given() -> None:
    even = records("--kind", "dual-dirichlet", "--alpha1", "1000000", "--alpha2", "1000000")
    assert all(950 < int(str(record["samples"])) < 1050 for record in even)
    assert even != records("--kind", "dual-dirichlet")


def test_the_law_of_a_class_can_be_given() -> None:
    assert records("--mean", "10", "--std", "3") == records()
    assert records("--std", "0") != records()


@pytest.mark.parametrize("kind", ["class", "dual-dirichlet", "iid"])
def test_no_line_of_the_table_is_wider_than_a_terminal(kind: str) -> None:
    given = os.environ.get("FEDCOMPASS_DATA")
    root = Path(given) if given else BESIDE_THE_REPOSITORY
    if not (root / "mnist").is_dir():
        pytest.skip(f"no real data: {root / 'mnist'} does not exist")
    output = partition("mnist", "--kind", kind, "--data-root", str(root)).output
    assert max(map(len, output.splitlines())) <= 80
    assert output.splitlines()[-1].split()[-2:] == ["60000", "100%"]


def test_the_figure_is_drawn_into_a_folder_that_is_made(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs the plot extra")
    path = tmp_path / "figures" / "partition.svg"
    result = partition("--json", "-o", str(path))
    assert path.read_bytes().startswith(b"<?xml")
    assert len(result.stdout.splitlines()) == 10  # nothing but JSON lines
    assert result.stderr == f"picture: {path}\n"


def test_a_figure_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs the plot extra")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SettingsError, match=r"picture .*x\.png cannot be written: .*; choose"):
        partition("-o", str(tmp_path / "file" / "x.png"))
    with pytest.raises(SettingsError, match=r"x\.doc has no ending for a figure; allowed: "):
        partition("-o", str(tmp_path / "x.doc"))


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["--kind", "classy"], SettingsError, "kind is 'classy'; allowed: one of 'class', "),
        (["--kind", "iid", "--n-min", "2"], SettingsError, "n_min belongs to the 'class'"),
        (["--kind", "center"], SettingsError, "this dataset has no natural centers; choose"),
        (["--clients", "0"], SettingsError, "clients is 0; allowed: 1 to 10000"),
        (["--seed", "-1"], SettingsError, "seed is -1; allowed: a whole number at least 0"),
        (["mnits"], SettingsError, "the catalogue has no dataset 'mnits' .did you mean 'mnist"),
        (["cifar10"], DataError, "'cifar10' was not found: .*`fedcompass data fetch cifar10`"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str],
    kind: type[FedcompassError],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FEDCOMPASS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(kind, match=message) as caught:
        partition(*arguments)
    assert "\n" not in str(caught.value)
