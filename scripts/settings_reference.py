"""Writes docs/settings.md: every key of an experiment file with its default and what is allowed.

    python scripts/settings_reference.py          # write it
    python scripts/settings_reference.py --check  # say whether it is up to date

The text comes from the settings' own definitions, so the page cannot say something else than the
program does.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from fedcompass import strategies
from fedcompass.cli.setting_rows import SettingRow, setting_rows
from fedcompass.experiment import Experiment

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

_HEAD = """# Settings

Every key of an experiment, as it stands in `experiment.toml` or after `--set` on the command line
(`fedcompass run --set fleet.clients=10`). Defaults are those of `fedcompass run` without options:
mnist-mini, 5 clients, seed 0. What is left out of a file is filled in from the paper's appendix
for the dataset and the number of clients; a run's folder keeps the complete file. `python
scripts/settings_reference.py` writes this page.
"""

_STRATEGIES = """
## [strategy], by name

`name` chooses the strategy; the other keys are its own. Defaults are the strategy's own, from the
paper that introduced it; with `profile = "paper"` an experiment fills in those of the FedCompass
paper's experiments. `fedcompass strategies NAME` prints the same with the rule in words.
"""


def page() -> str:
    """The whole page."""
    rows = [row for row in setting_rows(Experiment()) if row.table != "strategy"]
    alone = [row for row in rows if "." not in row.key]
    parts = [_HEAD, "\n## At the top of the file\n\n", *_table(alone)]
    nested = [row for row in rows if "." in row.key]
    for table, group in groupby(nested, key=lambda row: row.table):
        parts += [f"\n## [{table}]\n\n", *_table(_without(f"{table}.", group))]
    parts.append(_STRATEGIES)
    for name in strategies.names():
        settings = strategies.strategy(name)
        parts += [f"\n### {name}\n\n", *_table(_strategy_rows(settings))]
    return "".join(parts)


def _strategy_rows(strategy: strategies.Strategy) -> Iterator[SettingRow]:
    """The settings that can be given: the scheduler's, those its aggregator heeds, the guard's."""
    known = strategies.known_keys(strategy.name)
    for settings in (strategy.scheduling, strategy.aggregation):
        yield from (row for row in setting_rows(settings) if row.table in known)
    yield from setting_rows(strategy.guard)


def _without(prefix: str, rows: Iterable[SettingRow]) -> Iterator[SettingRow]:
    for row in rows:
        yield row._replace(key=row.key.removeprefix(prefix))


def _table(rows: Iterable[SettingRow]) -> Iterator[str]:
    yield "| key | default | allowed | meaning |\n|---|---|---|---|\n"
    for row in rows:
        cells = (f"`{row.key}`", row.value, row.allowed, row.meaning)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def main() -> int:
    """Write or check the page."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE} is not up to date: run python scripts/settings_reference.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
