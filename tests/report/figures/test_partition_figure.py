import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedcompass.errors import SettingsError
from fedcompass.report.figures.setup import draw_partition

pytest.importorskip("matplotlib", reason="drawing needs the plot extra")

COUNTS = torch.tensor([[30, 0, 12], [0, 25, 4]])


@pytest.mark.parametrize(
    ("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_the_ending_decides_the_format(tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / f"partition.{ending}"
    draw_partition(COUNTS, path, "two clients")
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize("shape", [(1, 1), (20, 15), (120, 10), (3, 40)])
def test_any_number_of_clients_and_classes_can_be_drawn(
    tmp_path: Path, shape: tuple[int, int]
) -> None:
    path = tmp_path / "partition.png"
    draw_partition(torch.ones(shape, dtype=torch.int64), path)
    assert path.stat().st_size > 1_000


def test_an_unknown_ending_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"partition.xyz has no ending .* allowed: .*png.*svg"):
        draw_partition(COUNTS, tmp_path / "partition.xyz")


def test_without_matplotlib_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None; sys.modules['matplotlib.figure'] = None\n"
        "import pathlib, torch\n"
        "from fedcompass.report.figures.setup import draw_partition\n"
        "try: draw_partition(torch.ones(2, 2), pathlib.Path('x.png'))\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "drawing needs matplotlib, which is not installed. Run in its checkout: "
        "pip install -c constraints.txt '.[plot]'\n"
    )
