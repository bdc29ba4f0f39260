"""The paper's typed numbers: recounted, spot-checked, and compared with the LaTeX source."""

import re
from pathlib import Path

import pytest

from fedcompass.paper.numbers import PaperTable, Printed, SettingsTable, paper_tables

SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "fedcompass.tex"

NINE = [f"m={m}/{speed}" for m in (5, 10, 20) for speed in ("homo", "normal", "exp")]
SIX = [f"m={m}/{speed}" for m in (5, 10, 20) for speed in ("normal", "exp")]
COUNTS = {  # blocks, rows of each, columns of each
    "table-1": (4, 8, 9),
    "table-2": (2, 8, 3),
    "table-3": (2, 9, 9),
    "table-14": (1, 8, 9),
    "table-15": (1, 8, 9),
    "table-16": (1, 8, 9),
    "table-17": (1, 8, 9),
    "table-18": (2, 8, 3),
    "table-19": (3, 8, 9),
    "table-20": (3, 7, 9),
    "table-21": (2, 5, 6),
    "table-22": (2, 5, 6),
}
SETTINGS = {"6": (8, 3), "7": (4, 3), "8": (11, 4), "9": (12, 8), "10": (14, 4), "11": (8, 4),
            "12": (12, 8), "13": (14, 3)}  # fmt: skip


def table(name: str) -> PaperTable:
    found = paper_tables()[name]
    assert isinstance(found, PaperTable)
    return found


def settings(name: str) -> SettingsTable:
    found = paper_tables()[name]
    assert isinstance(found, SettingsTable)
    return found


@pytest.mark.parametrize("name", COUNTS)
def test_a_table_has_the_papers_blocks_rows_and_columns(name: str) -> None:
    blocks, rows, columns = COUNTS[name]
    assert len(table(name).blocks) == blocks
    for block in table(name).blocks.values():
        assert (len(block.rows), len(block.columns)) == (rows, columns)
        assert all(len(cells) == columns for cells in block.rows.values())
        expected = {9: NINE, 6: SIX}.get(columns)
        assert expected is None or list(block.columns) == expected


@pytest.mark.parametrize("number", SETTINGS)
def test_a_table_of_settings_has_the_papers_rows_and_columns(number: str) -> None:
    found = settings(f"table-{number}")
    assert (len(found.rows), len(found.columns)) == SETTINGS[number]
    assert {len(row) for row in found.rows} == {len(found.columns)}


def test_every_table_of_the_paper_but_the_two_of_notation_is_there() -> None:
    numbers = [int(name.removeprefix("table-")) for name in paper_tables()]
    assert numbers == [n for n in range(1, 23) if n not in (4, 5)]


@pytest.mark.parametrize(
    ("name", "block", "row", "column", "printed"),
    [
        ("table-1", "mnist-class", "fedavg", "m=20/exp", Printed(9.03)),
        ("table-1", "mnist-dual-dirichlet", "fedasync", "m=20/normal", Printed(None)),
        ("table-1", "cifar10-class", "fedavgm", "m=5/exp", Printed(13.12)),
        ("table-1", "cifar10-dual-dirichlet", "fedcompass+n", "m=20/homo", Printed(0.77)),
        ("table-2", "fed-isic2019", "fedbuff", "m=6/exp", Printed(1.03)),
        ("table-3", "cifar10-dual-dirichlet", "1/Q=1.00", "m=5/homo", Printed(None)),
        ("table-3", "mnist-dual-dirichlet", "1/Q=1.00", "m=5/homo", Printed(1.78)),
        ("table-14", "mnist-class", "fedasync", "m=5/normal", Printed(92.53, 5.57)),
        ("table-16", "cifar10-class", "fedavg", "m=5/exp", Printed(67.10, 6.3)),
        ("table-18", "fed-isic2019", "fedcompass+n", "m=6/homo", Printed(69.59, 0.06)),
        ("table-19", "mnist-class", "1/Q=0.40", "m=20/homo", Printed(1.01)),
        ("table-20", "cifar10-dual-dirichlet", "1/Q=0.10", "m=10/normal", Printed(55.13, 5.42)),
        ("table-21", "mnist-dual-dirichlet", "lambda=1.50", "m=10/exp", Printed(0.62)),
        ("table-22", "mnist-class", "fedat", "m=5/normal", Printed(93.56, 6.40)),
    ],
)
def test_single_cells_are_as_printed(
    name: str, block: str, row: str, column: str, printed: Printed
) -> None:
    assert table(name).blocks[block].at(row, column) == printed


def test_a_cell_the_paper_does_not_have_is_none() -> None:
    block = table("table-1").blocks["mnist-class"]
    assert block.at("fedadam", "m=5/exp") is None
    assert block.at("fedavg", "m=50/exp") is None


def test_the_networks_have_as_many_parameters_as_printed() -> None:
    total = sum(int(row[-1].replace(",", "")) for row in settings("table-8").rows)
    assert total == 582_026
    total = sum(int(row[-1].replace(",", "")) for row in settings("table-10").rows)
    assert total == 11_173_962


def test_a_setting_is_found_by_row_and_column() -> None:
    assert settings("table-9").value("K", "FedBuff") == "(3, 3, 5)"
    assert settings("table-13").value("β", "Fed-ISIC2019") == "0.5"
    assert settings("table-7").value("CIFAR-10", "Mean (μ or 1/λ)") == "0.5s"


def test_the_ablations_repeat_the_main_table() -> None:
    """The 1/Q = 1 row is FedAsync's, and FedBuff's is the same in all three tables."""
    main, ablation = table("table-1"), table("table-19")
    for block, content in ablation.blocks.items():
        assert content.rows["1/Q=1.00"] == main.blocks[block].rows["fedasync"]
        assert content.rows["fedbuff"] == main.blocks[block].rows["fedbuff"]
    for block, content in table("table-3").blocks.items():
        for row in ablation.blocks[block].rows:
            assert content.rows[row] == ablation.blocks[block].rows[row]
        assert content.rows["fedat"] == main.blocks[block].rows["fedat"]


# Read anew, in another way than the data files were made: numbers in order of appearance.


def printed_numbers(label: str) -> list[str]:
    """Every number, dash and pair of a table's body, in the source's order."""
    source = SOURCE.read_text(encoding="utf-8")
    begins = source.index(rf"\label{{{label}}}")
    body = source[source.index(r"\midrule", begins) : source.index(r"\end{tabular}", begins)]
    body = re.sub(r"\\(cmidrule|tabincell)\{[^}]*\}|\\(midrule|bottomrule|times)|[${}\s]", "", body)
    cells = re.split(r"&|\\\\", body.replace(r"\pm", "±"))
    pattern = r"-|\d+\.\d+(±\d+\.\d+)?|(\d\.\d\d|-)/(\d\.\d\d|-)"
    return [cell for cell in cells if re.fullmatch(pattern, cell)]


def typed_numbers(found: PaperTable) -> list[str]:
    """The same of a data file; the first two digits after the point are what is printed."""
    out = []
    blocks = list(found.blocks.values())
    across = found.label in ("tab:flamby_time", "tab:flamby_acc")  # blocks beside each other
    paired = found.label == "tab:ablationQ_time_main"  # blocks in one cell
    if across or paired:
        for row in blocks[0].rows:
            sides = [list(map(text, block.rows[row])) for block in blocks]
            ratio = [row.removeprefix("1/Q=")] if row.startswith("1/Q=") else []
            pairs = ["/".join(pair) for pair in zip(*sides, strict=True)]
            out += ratio + (pairs if paired else [cell for side in sides for cell in side])
        return out
    for block in blocks:
        for row, cells in block.rows.items():
            name = row.partition("=")[2]
            out += ([name] if name else []) + list(map(text, cells))
    return out


def text(cell: Printed) -> str:
    if cell.mean is None:
        return "-"
    return f"{cell.mean:.2f}" + ("" if cell.deviation is None else f"±{cell.deviation:.2f}")


@pytest.mark.skipif(not SOURCE.is_file(), reason="the paper's LaTeX source is not beside the code")
@pytest.mark.parametrize("name", COUNTS)
def test_every_cell_is_the_latex_sources(name: str) -> None:
    found = table(name)
    source = [cell.replace("±6.3", "±6.30") if cell.endswith("±6.3") else cell
              for cell in printed_numbers(found.label)]  # fmt: skip
    assert source == typed_numbers(found)


@pytest.mark.skipif(not SOURCE.is_file(), reason="the paper's LaTeX source is not beside the code")
@pytest.mark.parametrize("number", SETTINGS)
def test_every_number_of_a_settings_table_is_the_latex_sources(number: str) -> None:
    found = settings(f"table-{number}")
    source = SOURCE.read_text(encoding="utf-8")
    begins = source.index(rf"\label{{{found.label}}}")
    body = source[source.index(r"\midrule", begins) : source.index(r"\end{tabular}", begins)]
    body = re.sub(r"\\citep\{[^}]*\}|\$\\times\$", " ", body)
    typed = " ".join(cell for row in found.rows for cell in row).replace("×", " ")
    assert re.findall(r"\d+", body) == re.findall(r"\d+", typed)
    assert body.count("&") == len(found.rows) * (len(found.columns) - 1)
