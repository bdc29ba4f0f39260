"""docs/settings.md says what the program does."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_of_settings_is_up_to_date() -> None:
    script = ROOT / "scripts" / "settings_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_setting_on_the_page_says_what_is_allowed() -> None:
    rows = [
        [cell.strip() for cell in line.replace("\\|", "/").split("|")[1:-1]]
        for line in (ROOT / "docs" / "settings.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) > 100
    assert [row[0] for row in rows if not row[2] or row[2].startswith(",")] == []
