"""Writes the tables of the studies studies/metronome-*.toml into docs/metronome.md, from results/.

    python scripts/study_tables.py          # write them
    python scripts/study_tables.py --check  # say whether they are up to date

The tables are those of `fedcompass table studies/NAME.toml --store results/NAME.jsonl --paired
--columns fleet --format markdown`. A study without results is left out.
"""

import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from fedcompass.cli.table import table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "metronome.md"
_SECTION = re.compile(r"(<!-- study: tables -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """The page with the tables as the results give them now."""
    tables = "".join(_tables(file) for file in sorted((ROOT / "studies").glob("metronome-*.toml")))
    return _SECTION.sub(lambda found: f"{found[1]}{tables}{found[2]}", text)


def _tables(study: Path) -> str:
    store = ROOT / "results" / f"{study.stem}.jsonl"
    if not store.exists():
        return ""
    printed = StringIO()
    with redirect_stdout(printed):
        table(study, output_format="markdown", columns="fleet", paired=True, store=store)
    command = f"fedcompass table studies/{study.name} --store results/{store.name} --paired"
    return f"\n### {study.stem}\n\n`{command} --columns fleet`\n\n{printed.getvalue().strip()}\n\n"


def main() -> None:
    """Write the page, or with --check fail where it is not what the results give."""
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if "--check" not in sys.argv:
        PAGE.write_text(new, encoding="utf-8")
    elif new != old:
        sys.exit(f"{PAGE} is not what results/ gives; run: python scripts/study_tables.py")


if __name__ == "__main__":
    main()
