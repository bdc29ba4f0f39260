"""The examples print what their `.out` files say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_its_out_file_says(script: Path, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert finished.stderr == ""
    assert finished.stdout == script.with_suffix(".out").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "most"),
    [("own_model_and_data", 20), ("custom_scheduler", 60), ("fedcompass_by_hand", 135)],
)
def test_an_example_is_as_short_as_promised(name: str, most: int) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    code = re.sub(r'\A""".*?"""', "", text, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= most
