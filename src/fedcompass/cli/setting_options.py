"""Options made from settings, which give them their type, help and allowed values."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedcompass.cli.track_options import TrackingCommand

if TYPE_CHECKING:
    from fedcompass.cli.setting_rows import SettingRow
    from fedcompass.experiment import Experiment

__all__ = [
    "OPTIONS",
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
}
"""Each option and the setting it stands for, in the order of --help; a new one is a line here."""

_GIVEN = "fedcompass.given"  # in click's context: key -> value of the options that were used
_BEFORE = "assignments"  # --set, which stands for all the settings without an option


def settings_command(*without: str) -> type[TrackingCommand]:
    """A command class with these options except some; `given` says which were used."""

    class SettingsCommand(TrackingCommand):
        # Made when they are asked for: the settings are not loaded to list the commands.
        def get_params(self, ctx: click.Context) -> list[click.Parameter]:
            own = super().get_params(ctx)
            place = [parameter.name for parameter in own].index(_BEFORE)
            return [*own[:place], *_setting_options(without), *own[place:]]

    return SettingsCommand


def given(context: click.Context) -> dict[str, Any]:
    """The settings that were given as options: dotted key -> value."""
    found: dict[str, Any] = context.meta.get(_GIVEN, {})
    return dict(found)


def experiment_from(
    file: Path | None, assignments: list[str] | None, options: dict[str, Any]
) -> "Experiment":
    """An experiment from a file, then the options, then --set; the later ones win.

    Raises:
        SettingsError: one line about the first thing that is wrong.
    """
    from fedcompass.experiment import Experiment
    from fedcompass.settings import merged

    return Experiment(**merged(file_and_options(file, options), assigned(assignments)))


def file_and_options(file: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """A file's settings, overridden by those of `given`."""
    from fedcompass.experiment import read_experiment
    from fedcompass.settings import merged, nested

    layers = [nested(key, value) for key, value in options.items()]
    return merged(read_experiment(file) if file else {}, *layers)


def assigned(assignments: list[str] | None) -> dict[str, Any]:
    """The --set assignments as nested tables; later ones win."""
    from fedcompass.cli.options import parse_assignment
    from fedcompass.settings import merged

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


def _option(option: str) -> click.Option:
    row, _ = _row(OPTIONS[option])
    return click.Option(
        [f"--{option}"],
        type=str if row.kind is Path else row.kind,  # as a settings file has it
        is_flag=row.kind is bool,
        default=None,
        metavar="PATH" if row.kind is Path else None,
        help=option_help(option),
        expose_value=False,
        callback=_keep,
    )


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        option = (parameter.name or "").replace("_", "-")
        context.meta.setdefault(_GIVEN, {})[OPTIONS[option]] = value


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
