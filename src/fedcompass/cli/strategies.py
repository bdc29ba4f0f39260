"""`fedcompass strategies`: which there are, what each does and how to set it."""

import shutil
import sys
import textwrap
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcompass.cli.text import plain_table, wrapped
from fedcompass.strategy_summaries import SUMMARIES

if TYPE_CHECKING:
    from fedcompass.cli.setting_rows import SettingRow
    from fedcompass.strategies import Strategy

__all__ = ["strategies"]

_SYMBOLS = (
    "w: the global model; Δ_i: start minus end of client i's local training, w_i its end; p_i: "
    "its share of the samples; Q_i: its local steps; u: global updates since it got its model."
)

_PIECES = """\
Pieces of other papers, for all but fedat (docs/pieces.md):
  calibrated              CA2FL: less what the client sent last, plus the mean of all
  since_last              AREA: the change against what the client sent last
  staleness_window        FedStaleWeight: who is stale on average weighs more
  server.delay_limit      FADAS: a merge of stale updates has a smaller rate"""


def strategies(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Explain this one; left out: list them all.",
            autocompletion=lambda: list(SUMMARIES),
        ),
    ] = None,
) -> None:
    """List the strategies, or explain one of them."""
    print(_list(_summaries()) if name is None else _explained(name))


def _summaries() -> dict[str, str]:
    """One line each; the strategies themselves are loaded only if packages bring more."""
    if not entry_points(group="fedcompass.strategies"):
        return SUMMARIES
    from fedcompass.strategies import describe

    return describe()


def _list(summaries: dict[str, str]) -> str:
    """A line each; only a terminal narrower than the line gets it wrapped, below itself."""
    indent = max(map(len, summaries)) + 2
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    lines = [
        textwrap.fill(f"{name:<{indent}}{summary}", max(width, 40), subsequent_indent=" " * indent)
        for name, summary in summaries.items()
    ]
    return "\n".join([*lines, "", _PIECES, "", "`fedcompass strategies NAME` explains one."])


def _explained(name: str) -> str:
    from fedcompass.cli.rule_in_words import rule_in_words
    from fedcompass.strategies import known_keys, strategy, summary, variants

    chosen = strategy(name)
    rules = [rule_in_words(chosen)]
    if "variant" in known_keys(name):
        rules += [
            f'variant = "{variant}"\n{rule_in_words(strategy(name, variant=variant))}'
            for variant in variants(name)
        ]
    parts = [
        wrapped(f"{name}: {summary(name)}"),
        *rules,
        wrapped(_SYMBOLS),
        _settings(chosen),
        wrapped(_profile(name)),
        f"In an experiment's TOML file:\n\n{_snippet(chosen)}",
    ]
    return "\n\n".join(parts)


def _settings(chosen: "Strategy") -> str:
    """Each setting on a line of its own, what it is for below it: fits 80 columns unwrapped."""
    rows = _rows(chosen)
    table = plain_table(
        ["setting", "default", "allowed"], [row[:3] for row in rows], left=(0, 1, 2)
    ).splitlines()
    lines = [table[0]]
    for line, row in zip(table[1:], rows, strict=True):
        lines.append(line)
        if row.meaning:
            lines.append(wrapped(row.meaning, " " * 4))
    return "\n".join(lines)


def _rows(chosen: "Strategy") -> "list[SettingRow]":
    """What the strategy can be told: first what is its own, last what every scheduler has."""
    from fedcompass.cli.setting_rows import SettingRow, setting_rows
    from fedcompass.scheduling.policy import SchedulerSettings
    from fedcompass.strategies import known_keys, variants

    known = known_keys(chosen.name)
    rows = list(setting_rows(chosen.scheduling))
    if "variant" in known:
        allowed = "|".join(["own", *variants(chosen.name)])
        rows.append(SettingRow("variant", chosen.variant, allowed, "whose formula; see above"))
    rows += [*setting_rows(chosen.aggregation), *setting_rows(chosen.guard, "guard.")]
    shared = SchedulerSettings.model_fields
    rows = [row for row in rows if row.table in known]
    return sorted(rows, key=lambda row: row.table in shared)


_AS_RUN = (
    ' profile="as-run" (fedcompass run --strategy {} --profile as-run) is what the public code of '
    "the paper's authors did when the paper was written, where a stale update weighs more "
    "(docs/as-run.md)."
)


def _profile(name: str) -> str:
    """What an experiment fills in unless told otherwise."""
    from fedcompass.paper_settings import STRATEGY_KEYS, strategy_settings
    from fedcompass.strategies import known_keys, strategy

    known, is_the_papers = known_keys(name), name in STRATEGY_KEYS
    filled = [f"{k}={v}" for k, v in strategy_settings("mnist", 5, name).items() if k in known]
    source = "what the FedCompass paper used for" if is_the_papers else "what suits"
    has_as_run = is_the_papers and strategy(name).weighs_staleness
    return (
        f"An experiment fills in {source} its dataset and number of "
        f'clients (mnist with 5: {", ".join(filled)}); with profile="own" it is the defaults '
        "above." + (_AS_RUN.format(name) if has_as_run else "")
    )


def _snippet(chosen: "Strategy") -> str:
    import tomli_w

    from fedcompass.scheduling.policy import SchedulerSettings
    from fedcompass.strategies import variants

    table: dict[str, Any] = {"name": chosen.name}
    table |= chosen.scheduling.model_dump(exclude=set(SchedulerSettings.model_fields))
    if variants(chosen.name):
        table["variant"] = chosen.variant
    rule = chosen.aggregation
    if chosen.weighs_staleness:
        table["staleness"] = rule.staleness.model_dump(include={"kind", "alpha", "a"})
    if server := rule.server.model_dump(exclude_unset=True):
        table["server"] = server
    return tomli_w.dumps({"strategy": table}).rstrip()
