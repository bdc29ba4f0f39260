"""The page's script as a whole; scripts/check-page looks at each file's types."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedcompass import report
from fedcompass.report.page import page
from fedcompass.settings.training import METRICS

CHECK = Path(__file__).parents[2] / "scripts" / "check-page"
FOLDER = Path(report.__file__).parent / "page"
TOP_LEVEL = re.compile(r"^(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)


def test_every_script_in_the_folder_is_in_the_page_once() -> None:
    html = page("{}", {})
    for path in FOLDER.glob("*.js"):
        assert html.count(f"// --- {path.name}\n") == 1, path.name


def test_every_name_of_the_script_is_used_and_stands_for_one_thing() -> None:
    script = "".join(path.read_text() for path in FOLDER.glob("*.js"))
    names = TOP_LEVEL.findall(re.sub(r"/\*\*.*?\*/", "", script, flags=re.DOTALL))
    assert len(names) > 100
    assert len(set(names)) == len(names)
    assert [name for name in names if len(re.findall(rf"\b{name}\b", script)) < 2] == []


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_without_node_the_check_says_so_in_one_line_and_fails_only_ci(
    tmp_path: Path, ci: str, status: int
) -> None:
    for program in ("bash", "dirname"):
        (tmp_path / program).symlink_to(shutil.which(program) or program)
    environment = {"PATH": str(tmp_path), "CI": ci}
    done = subprocess.run([CHECK], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "page not checked: node is not installed "
        "(the page's JavaScript is checked with Node 20 or later)"
    ]


def test_the_page_shows_the_same_metrics_in_percent_as_everything_else() -> None:
    script = (FOLDER / "numbers.js").read_text(encoding="utf-8")
    (listed,) = re.findall(r"const SHARES = (\[.*\]);", script)
    ours = [name for name, kind in METRICS.items() if kind.share and kind.make is None]
    assert sorted(json.loads(listed)) == sorted(ours)
