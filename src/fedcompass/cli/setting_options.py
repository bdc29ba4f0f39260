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

_OPTIONS: dict[str, tuple[str, type]] = {
    "strategy": ("strategy.name", str),
    "seed": ("seed", int),
    "data": ("data.name", str),
    "data-root": ("data.root", Path),
    "model": ("model", str),
    "loss": ("loss", str),
    "metric": ("evaluation.target_metric", str),
    "clients": ("fleet.clients", int),
    "partition": ("partition.kind", str),
    "speed": ("fleet.speed", str),
    "speed-change": ("fleet.resample_probability", float),
    "steps": ("strategy.steps", int),
    "min-steps": ("strategy.min_steps", int),
    "max-steps": ("strategy.max_steps", int),
    "latest": ("strategy.latest", float),
    "buffer-size": ("strategy.buffer_size", int),
    "tier-ratio": ("strategy.tier_ratio", float),
    "learning-rate": ("local.learning_rate", float),
    "batch-size": ("local.batch_size", int),
    "horizon": ("horizon", float),
    "target": ("target", float),
    "stop-at-target": ("stop_at_target", bool),
    "profile": ("profile", str),
    "secure": ("secure.enabled", bool),
}
"""Each option, the setting it stands for and the type of its values, in the order of --help.

The type stands here, too: a command line is read without the settings, whose loading takes as long
as all of `fedcompass --help`.
"""

OPTIONS = {option: key for option, (key, _) in _OPTIONS.items()}

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
    values: dict[str, Any] = {}
    if file is not None:
        from fedcompass.experiment import read_experiment

        values = read_experiment(file)
    return merged(values, *(nested(key, value) for key, value in options.items()))


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
    return [_SettingOption(option) for option in OPTIONS if option not in without]


class _SettingOption(click.Option):
    """An option whose help is made when it is shown: that loads the settings."""

    def __init__(self, option: str) -> None:
        self._option = option
        self._key, kind = _OPTIONS[option]
        super().__init__(
            [f"--{option}"],
            type=str if kind is Path else kind,  # as a settings file has it
            is_flag=kind is bool,
            default=None,
            metavar="PATH" if kind is Path else None,
            expose_value=False,
            callback=self._keep,
        )

    def _keep(self, context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            context.meta.setdefault(_GIVEN, {})[self._key] = value

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = option_help(self._option)
        return super().get_help_record(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        choices = SUMMARIES if self._key == "strategy.name" else _row(self._key)[0].choices
        return [CompletionItem(each) for each in choices if each.startswith(incomplete)]


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
