"""What a Flower project says to our ServerApp: `[tool.flwr.app.config.fedcompass]`."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from fedcompass import strategies
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.errors import SettingsError
from fedcompass.setting_tables import merged, nested, unknown_key
from fedcompass.settings import Settings

__all__ = ["FlowerSettings", "read_settings"]

_log = logging.getLogger("flwr")
_PREFIX = "fedcompass."
_OURS = ("steps", "task", "version", "run", "protocol", "refused", "server-round")
_DEFAULTS = {"poll_interval": 0.2}  # each is a request to the SuperLink


class FlowerSettings(Settings):
    """The part that only a Flower project has; all others are those of a federation."""

    model: str
    """A function without arguments, or a class, that makes the torch module: `module:name`."""

    evaluate: str = "clients"
    """Who measures merged models: `clients` (their `@app.evaluate`, weighted by `num-examples`),
    `none`, or `module:name`, a function (server_round, arrays) -> MetricRecord."""

    train: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """What each train message's config has besides `steps`, such as a learning rate."""

    folder: str = "~/fedcompass-runs"
    """Where the folders of runs are, each named after Flower's number of the run."""

    resume: str = ""
    """The name of a run's folder to go on with; empty: a new run."""

    @field_validator("folder")
    @classmethod
    def _absolute(cls, folder: str) -> str:
        if not Path(folder).expanduser().is_absolute():
            raise ValueError(
                f"folder is {folder!r}; allowed: an absolute path, or one that starts with ~: a "
                "ServerApp does not run in the project's folder"
            )
        return folder

    @field_validator("evaluate")
    @classmethod
    def _known(cls, evaluate: str) -> str:
        if evaluate not in ("clients", "none") and ":" not in evaluate:
            raise ValueError(f"evaluate is {evaluate!r}; allowed: clients, none, or module:name")
        return evaluate

    @field_validator("resume", mode="before")
    @classmethod
    def _as_text(cls, resume: object) -> object:
        return str(resume) if isinstance(resume, int) else resume  # as `flwr run -c` reads it

    @field_validator("train")
    @classmethod
    def _not_ours(cls, train: dict[str, Any]) -> dict[str, Any]:
        for key in _OURS:
            if key in train:
                raise ValueError(f"train.{key} is set by the server; choose another name")
        return train

    def run_folder(self, run_id: int) -> Path:
        """The folder of the run to begin or to go on with."""
        return Path(self.folder).expanduser() / (self.resume or str(run_id))


def read_settings(config: Mapping[str, Any]) -> tuple[FlowerSettings, FederationSettings]:
    """The settings in a run's config, which Flower hands over flat: "fedcompass.strategy.name".

    `flwr run -c` can choose another strategy, but not take away the settings of the first: those
    that only other strategies have are left out, and the log says so.

    Raises:
        SettingsError: one is missing, unknown or out of range.
    """
    ours = [key for key in config if key.startswith(_PREFIX)]
    given = merged(_DEFAULTS, *(nested(key.removeprefix(_PREFIX), config[key]) for key in ours))
    own = FlowerSettings.model_fields
    known = [*own, *FederationSettings.model_fields]
    for key in given:
        if key not in known:
            raise SettingsError(unknown_key(key, known, "[tool.flwr.app.config.fedcompass]"))
    if isinstance(given.get("strategy"), dict):
        given["strategy"] = _of_the_chosen(given["strategy"])
    return (
        FlowerSettings(**{key: value for key, value in given.items() if key in own}),
        FederationSettings(**{key: value for key, value in given.items() if key not in own}),
    )


def _of_the_chosen(table: Mapping[str, Any]) -> dict[str, Any]:
    """A strategy's table without what only other strategies have."""
    name = table.get("name", "fedcompass")
    if name not in strategies.names():
        return dict(table)  # the check of it says which there are
    kept = {"name", *strategies.known_keys(name)}
    others = {key for other in strategies.names() for key in strategies.known_keys(other)}
    left_out = [key for key in table if key in others - kept]
    if left_out:
        _log.info("fedcompass: strategy %s has no %s: left out", name, ", ".join(left_out))
    return {key: value for key, value in table.items() if key not in left_out}
