"""Options made from settings, which give them their type, help and allowed values."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from fedcompass.cli.options import parse_assignment
from fedcompass.cli.track_options import TrackingCommand
from fedcompass.setting_tables import merged, nested
from fedcompass.strategy_summaries import SUMMARIES

if TYPE_CHECKING:
    from fedcompass.cli.setting_rows import SettingRow
    from fedcompass.experiment import Experiment

__all__ = [
    "OPTIONS",
    "all_given",
    "assigned",
    "experiment_from",
    "file_and_options",
    "given",
    "option_help",
    "settings_command",
]

OPTIONS = {
    "strategy": "strategy.name",
    "seed": "seed",
    "data": "data.name",
    "data-root": "data.root",
    "model": "model",
    "loss": "loss",
    "metric": "evaluation.target_metric",
    "clients": "fleet.clients",
    "partition": "partition.kind",
    "speed": "fleet.speed",
    "speed-change": "fleet.resample_probability",
    "steps": "strategy.steps",
    "min-steps": "strategy.min_steps",
    "max-steps": "strategy.max_steps",
    "latest": "strategy.latest",
    "buffer-size": "strategy.buffer_size",
    "tier-ratio": "strategy.tier_ratio",
    "learning-rate": "local.learning_rate",
    "batch-size": "local.batch_size",
    "horizon": "horizon",
    "target": "target",
    "stop-at-target": "stop_at_target",
    "profile": "profile",
    "secure": "secure.enabled",
}
"""Each option and the setting it stands for, in the order of --help; a new one is a line here."""

_KINDS: dict[str, type] = {
    "seed": int,
    "data-root": Path,
    "clients": int,
    "speed-change": float,
    "steps": int,
    "min-steps": int,
    "max-steps": int,
    "latest": float,
    "buffer-size": int,
    "tier-ratio": float,
    "learning-rate": float,
    "batch-size": int,
    "horizon": float,
    "target": float,
    "stop-at-target": bool,
    "secure": bool,
}
"""What an option's values are unless they are text: a command line is read without the settings,
whose loading takes as long as all of `fedcompass --help`."""

_GIVEN = "fedcompass.given"  # in click's context: key -> value of the options that were used
_BEFORE = "assignments"  # --set, which stands for all the settings without an option


def settings_command(*without: str) -> type[TrackingCommand]:
    """A command class with these options except some; `given` says which were used."""

    class SettingsCommand(TrackingCommand):
        def get_params(self, ctx: click.Context) -> list[click.Parameter]:
            own = super().get_params(ctx)
            place = [parameter.name for parameter in own].index(_BEFORE)
            return [*own[:place], *_setting_options(without), *own[place:]]

    return SettingsCommand


def given(context: click.Context) -> dict[str, Any]:
    """The settings that were given as options: dotted key -> value."""
    found: dict[str, Any] = context.meta.get(_GIVEN, {})
    return dict(found)


def all_given(
    file: Path | None, assignments: list[str] | None, options: dict[str, Any]
) -> dict[str, Any]:
    """The settings of a file, then the options, then --set; the later ones win. None is checked.

    Raises:
        SettingsError: the file or a --set cannot be read.
    """
    return merged(file_and_options(file, options), assigned(assignments))


def experiment_from(
    file: Path | None, assignments: list[str] | None, options: dict[str, Any]
) -> "Experiment":
    """The experiment that `all_given` describes.

    Raises:
        SettingsError: one line about the first thing that is wrong.
    """
    from fedcompass.experiment import Experiment

    return Experiment(**all_given(file, assignments, options))


def file_and_options(file: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """A file's settings, overridden by those of `given`."""
    layers = [nested(key, value) for key, value in options.items()]
    return merged(_read(file) if file else {}, *layers)


def _read(file: Path) -> dict[str, Any]:
    from fedcompass.experiment import read_experiment

    return read_experiment(file)


def assigned(assignments: list[str] | None) -> dict[str, Any]:
    """The --set assignments as nested tables; later ones win."""
    return merged(*(parse_assignment(text) for text in assignments or ()))


def option_help(option: str) -> str:
    """What an option is for, in its setting's own words, and the values it may have if few."""
    row, owners = _row(OPTIONS[option])
    text = row.meaning
    if text[:1].isascii():  # λ stays λ
        text = text[:1].upper() + text[1:]
    if any(f"`{choice}`" not in text for choice in row.choices):  # else it explains each
        text = f"{text}; allowed: {', '.join(row.choices)}"
    if owners:
        text = f"{text} ({', '.join(owners[:3])}{', …' if len(owners) > 3 else ''})"
    return f"{text}."


@cache
def _setting_options(without: tuple[str, ...]) -> list[click.Parameter]:
    return [_option(option) for option in OPTIONS if option not in without]


class _SettingOption(click.Option):
    """An option whose help is made when it is shown: that loads the settings."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = option_help(_name_of(self))
        return super().get_help_record(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        key = OPTIONS[_name_of(self)]
        choices = SUMMARIES if key == "strategy.name" else _row(key)[0].choices
        return [CompletionItem(each) for each in choices if each.startswith(incomplete)]


def _option(option: str) -> click.Option:
    kind = _KINDS.get(option, str)
    return _SettingOption(
        [f"--{option}"],
        type=str if kind is Path else kind,  # as a settings file has it
        is_flag=kind is bool,
        default=None,
        metavar="PATH" if kind is Path else None,
        expose_value=False,
        callback=_keep,
    )


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        context.meta.setdefault(_GIVEN, {})[OPTIONS[_name_of(parameter)]] = value


def _name_of(parameter: click.Parameter) -> str:
    return (parameter.name or "").replace("_", "-")


def _row(key: str) -> "tuple[SettingRow, list[str]]":
    """A setting, and the strategies that have it if it is one of strategies."""
    found = _rows()[key]
    return found[0][0], [name for _, name in found if name]


@cache
def _rows() -> "dict[str, list[tuple[SettingRow, str]]]":
    """Every setting that an option could stand for."""
    from fedcompass.cli.setting_rows import SettingRow, setting_rows
    from fedcompass.experiment import Experiment
    from fedcompass.strategies import names, strategy

    name = SettingRow(
        key="strategy.name",
        value="fedcompass",
        allowed="text",
        meaning=f"one of {', '.join(names())}; see `fedcompass strategies`",
    )
    rows = {row.key: [(row, "")] for row in (name, *setting_rows(Experiment()))}
    for each in names(installed=False):  # others' keys are for --set
        for row in setting_rows(strategy(each).scheduling, "strategy."):
            rows.setdefault(row.key, []).append((row, each))
    return rows
