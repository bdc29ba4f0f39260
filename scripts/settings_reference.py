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
## [strategy]

`name` chooses the strategy; the last column says which strategies take a key. Defaults are the
strategy's own, from the paper that introduced it; with `profile = "paper"` an experiment fills in
those of the FedCompass paper's experiments. `fedcompass strategies NAME` prints one strategy's keys
with its rule in words.

"""


def page() -> str:
    """The whole page."""
    rows = [row for row in setting_rows(Experiment()) if row.table != "strategy"]
    alone = [row for row in rows if "." not in row.key]
    parts = [_HEAD, "\n## At the top of the file\n\n", *_table(alone)]
    nested = [row for row in rows if "." in row.key]
    for table, group in groupby(nested, key=lambda row: row.table):
        parts += [f"\n## [{table}]\n\n", *_table(_without(f"{table}.", group))]
    return "".join([*parts, _STRATEGIES, *_strategy_table()])


def _strategy_table() -> Iterator[str]:
    """Each key of the strategies once, with the default of each one that takes it."""
    taken: dict[tuple[str, str, str], dict[str, str]] = {}  # setting -> strategy -> default
    for name in strategies.names(installed=False):
        for row in _strategy_rows(strategies.strategy(name)):
            taken.setdefault((row.key, row.allowed, row.meaning), {})[name] = row.value
    yield from _lines(
        ("key", "default", "allowed", "meaning", "strategies"),
        (
            (f"`{key}`", _defaults(by_name), allowed, meaning, _who(list(by_name)))
            for (key, allowed, meaning), by_name in taken.items()
        ),
    )


def _defaults(by_name: dict[str, str]) -> str:
    """The usual default, then those who have another one."""
    names: dict[str, list[str]] = {}
    for name, default in by_name.items():
        names.setdefault(default, []).append(name)
    usual = max(names, key=lambda default: len(names[default]))
    others = [f"{', '.join(who)}: {value}" for value, who in names.items() if value != usual]
    return "; ".join([usual, *others])


def _who(names: list[str]) -> str:
    missing = [name for name in strategies.names(installed=False) if name not in names]
    if not missing:
        return "all"
    return f"all but {', '.join(missing)}" if len(missing) < len(names) else ", ".join(names)


def _strategy_rows(strategy: strategies.Strategy) -> Iterator[SettingRow]:
    """The settings that can be given: the scheduler's, those its aggregator heeds, the guard's."""
    known = strategies.known_keys(strategy.name)
    for settings in (strategy.scheduling, strategy.aggregation):
        yield from (row for row in setting_rows(settings) if row.table in known)
    yield from setting_rows(strategy.guard, "guard.")
    if "variant" in known:
        words = "|".join(["own", *strategies.variants(strategy.name)])
        meaning = "own: the defaults of its own paper; share: updates are scaled by p_i, too"
        yield SettingRow("variant", strategy.variant, words, meaning)


def _without(prefix: str, rows: Iterable[SettingRow]) -> Iterator[SettingRow]:
    for row in rows:
        yield row._replace(key=row.key.removeprefix(prefix))


def _table(rows: Iterable[SettingRow]) -> Iterator[str]:
    cells = ((f"`{row.key}`", row.value, row.allowed, row.meaning) for row in rows)
    yield from _lines(("key", "default", "allowed", "meaning"), cells)


def _lines(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n"


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
