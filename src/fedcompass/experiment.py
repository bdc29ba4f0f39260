"""A run described in full: what is trained, by whom, how fast they are, and under which strategy.

Read from TOML or built in Python; every key is checked. What is left out is filled in from the
paper's appendix for the dataset and the number of clients, so that a record is always complete.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from fedcompass import as_run, own_code, strategies
from fedcompass.data.medical.loading import usual_clients
from fedcompass.data.sources import MEDICAL
from fedcompass.errors import SettingsError
from fedcompass.paper_settings import authors_settings, paper_settings, strategy_settings
from fedcompass.setting_tables import merged
from fedcompass.settings import Settings
from fedcompass.settings.data import PartitionSettings
from fedcompass.settings.privacy import PrivacySettings
from fedcompass.settings.secure import SecureSettings
from fedcompass.settings.simulation import FleetSettings
from fedcompass.settings.training import (
    REGRESSION,
    LocalSettings,
    Sampling,
    check_loss,
    check_metrics,
    is_share,
)
from fedcompass.strategies import Strategy, known_keys
from fedcompass.vocabulary import FEWEST_IN_A_SUM

if TYPE_CHECKING:
    from fedcompass.data.own_data import OwnData

__all__ = [
    "DataSettings",
    "EvaluationSettings",
    "Experiment",
    "read_experiment",
    "read_toml",
    "record_key",
]

OWN_DATA, OWN_MODEL = "own problem", "own model"
"""What stands in the record of a run on a problem given in Python for a dataset and a network."""

_REPLACED = ("data", "model", "weights", "loss", "partition", "problem", "fingerprint", "code")
"""Settings that such a problem takes the place of."""

_RENAMED_MODELS = {
    "fedcompass.medical.from_scratch:quick_efficientnet_b0": "quick_efficientnet_b0",
}
"""Names that stand in stores and run folders of earlier versions."""

_UNSET = "none"
"""How a file says that a setting with a default is unset: TOML has no null."""

_Unsettable = BeforeValidator(lambda value: None if value == _UNSET else value)


class DataSettings(Settings):
    """Which dataset, and where it lies."""

    name: str = "mnist-mini"
    """A dataset: mnist-mini, mnist, cifar10, …, which `fedcompass data list` has; or your own:
    package.module:name or FILE.py:name of a function that returns it (docs/own-data.md)."""

    root: Path | None = None
    """Folder to look in first; then $FEDCOMPASS_DATA and the cache folder."""


class EvaluationSettings(Settings):
    """When the global model is measured, and what."""

    every_updates: Annotated[int | None, _Unsettable] = Field(default=1, ge=1)
    """After every so many global updates; None, or "none" in a file: not by updates."""

    every_seconds: float | None = Field(default=None, gt=0)
    """At every multiple of so much virtual time; unset: not by time."""

    metrics: tuple[str, ...] = ("loss", "accuracy")
    """What is measured on the test set; your own by FILE.py:name (docs/own-metric.md)."""

    target_metric: str = "accuracy"
    """The metric that `target` and the best model are about; it rises or falls by its direction."""

    per_client: bool = False
    """Also measure the target metric on each client's own samples."""

    @model_validator(mode="after")
    def _target_is_measured(self) -> "EvaluationSettings":
        check_metrics(self.metrics)
        if self.target_metric not in self.metrics:
            raise ValueError(
                f"target_metric is {self.target_metric!r}; allowed: one of the metrics, "
                f"{', '.join(self.metrics)}"
            )
        return self


class Experiment(Settings):
    """One run of one strategy with one seed."""

    seed: int = Field(default=0, ge=0)
    """Decides everything random."""

    profile: Literal["paper", "as-run", "authors", "own"] = "paper"
    """Where settings that are not given come from: the FedCompass paper (`as-written` is another
    name of it); the paper as its authors' public code ran it (docs/as-run.md); the paper with a
    later release's habits of Compass (`authors`); or each strategy's own paper."""

    data: DataSettings = DataSettings()
    model: str = ""
    """A network's name, package.module:name or FILE.py:name; empty: the data's usual one."""

    weights: Path | None = None
    """A .safetensors or PyTorch file with weights to start from; unset: random ones."""

    loss: str | None = None
    """A loss by name, package.module:name or FILE.py:name; unset: the dataset's usual one."""

    problem: str | None = None
    """Written by a run on a problem given in Python: what that was; such a run needs it again."""

    fingerprint: str | None = None
    """Likewise: tells that problem from others, so that a run is resumed with the same one."""

    code: dict[str, str] | None = None
    """Written by a run with things of your own: a hash of each one's file, so that a run is resumed
    with the same code."""

    partition: PartitionSettings = PartitionSettings()
    fleet: FleetSettings = FleetSettings()
    local: LocalSettings = LocalSettings()
    privacy: PrivacySettings = PrivacySettings()
    secure: SecureSettings = SecureSettings()
    strategy: dict[str, Any] = Field(default_factory=lambda: {"name": "fedcompass"})
    """`name`, or your own by package.module:name or FILE.py:name (docs/own-strategy.md), and any
    setting of that strategy."""

    evaluation: EvaluationSettings = EvaluationSettings()
    horizon: float = Field(default=60.0, gt=0)
    """Virtual seconds after which the run ends."""

    max_updates: int | None = Field(default=None, ge=1)
    """Global updates after which the run ends, if that comes first."""

    target: Annotated[float | None, _Unsettable] = None
    """What the target metric should reach; None, or "none" in a file: nothing."""

    stop_at_target: bool = False
    """End the run at the first evaluation that reaches the target."""

    stop_late_by: int = Field(default=0, ge=0)
    """A run that stops at its target stops so many evaluations later: with 4 its training need not
    wait for each measurement, which is faster where many runs share a GPU."""

    run_at_least: float = Field(default=0.0, ge=0)
    """A run that stops at its target goes on at least so long, in virtual seconds."""

    _given: dict[str, Any] = PrivateAttr(default_factory=dict)  # before the filling in

    def __init__(self, **given: Any) -> None:
        plain = {key: _plain(value) for key, value in given.items()}
        plain = own_code.with_names(plain, own_code.absolute)
        super().__init__(**plain)
        self._given = plain
        if self.privacy.is_on and "sampling" in plain.get("local", {}):
            raise SettingsError(
                f"local.sampling is {self.local.sampling!r} with a privacy budget, under which "
                "every sample is in a batch by chance (docs/privacy.md); leave it out"
            )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        values = {key: _plain(value) for key, value in given.items()}
        if isinstance(model := values.get("model"), str):
            values["model"] = _RENAMED_MODELS.get(model, model)
        if model == "":
            del values["model"]
        if "profile" in values:
            values["profile"] = as_run.profile_named(values["profile"])
        name, clients = _dataset(values.get("data")), _clients(values)
        filled = merged(_usual_for_own(values), paper_settings(name, clients), values)
        strategy = _filled_strategy(filled, name, clients)
        extra = _habits(values.get("profile"), filled, name, clients, strategy)
        usual = {"local": {"sampling": _usual_sampling(name)}}  # a habit goes before it
        filled = merged(usual, extra, filled)
        strategy = merged({"name": strategy["name"]}, extra.get("strategy", {}), strategy)
        return {**filled, "strategy": strategy, "code": _code(filled, strategy)}

    @model_validator(mode="after")
    def _strategy_is_right(self) -> "Experiment":
        self.chosen_strategy()
        if self.loss is not None:
            check_loss(self.loss)
        share = self.target if is_share(self.evaluation.target_metric) else None
        if share is not None and not 0 <= share <= 1:
            raise ValueError(
                f"target is {share:g}; allowed: at least 0 and at most 1 for "
                f"{self.evaluation.target_metric} (80% is 0.8)"
            )
        if self.stop_at_target and self.target is None:
            raise ValueError("stop_at_target is true, but there is no target; set target")
        self._check_run_at_least()
        self.privacy.check_clients(self.fleet.clients)
        if self.secure.enabled and self.fleet.clients < FEWEST_IN_A_SUM:
            raise ValueError(
                f"secure.enabled is true with {self.fleet.clients} clients; allowed: "
                f"{FEWEST_IN_A_SUM} or more, or no sum would ever be opened"
            )
        return self

    def _check_run_at_least(self) -> None:
        if self.run_at_least and not self.stop_at_target:
            raise ValueError(
                f"run_at_least is {self.run_at_least:g}, but stop_at_target is false, so every run "
                "goes on to the horizon; set stop_at_target, or leave it out"
            )
        if self.run_at_least > self.horizon:
            raise ValueError(
                f"run_at_least is {self.run_at_least:g}; allowed: at most the horizon, "
                f"{self.horizon:g}"
            )

    def chosen_strategy(self) -> Strategy:
        """The strategy with its settings; it starts when all clients have joined."""
        settings = {key: value for key, value in self.strategy.items() if key != "name"}
        make = strategies.secured if self.secure.enabled else strategies.strategy
        return make(self.strategy["name"], **settings, min_clients=self.fleet.clients)

    def with_settings(self, changes: Mapping[str, Any]) -> "Experiment":
        """The same experiment with some settings changed, nested tables key by key.

        What was filled in is filled in anew. Another strategy's name drops the settings that were
        given for the one before.
        """
        values = {key: value for key, value in self._given.items() if key != "code"}
        strategy = changes.get("strategy")
        named = strategy.get("name") if isinstance(strategy, Mapping) else None
        if isinstance(named, str) and own_code.absolute(named) != self.strategy["name"]:
            values.pop("strategy", None)
        return Experiment(**merged(values, changes))

    def on_problem(self, words: str, fingerprint: str) -> "Experiment":
        """The same experiment on a problem given in Python instead of a dataset and a network."""
        record = {k: v for k, v in self.to_record().items() if k not in _REPLACED}
        own = {"data": {"name": OWN_DATA}, "model": OWN_MODEL}
        if "sampling" in self._given.get("local", {}):  # usual for the dataset, but not for this
            record["local"]["sampling"] = self.local.sampling
        return Experiment(**record, **own, problem=words, fingerprint=fingerprint)

    def to_record(self) -> dict[str, Any]:
        """All settings as TOML and JSON values; what is unset by default is left out."""
        record: dict[str, Any] = json.loads(self.model_dump_json(exclude_none=True))
        if self.problem is not None:
            del record["partition"]  # the problem brings its own
        if not self.privacy.is_on:
            del record["privacy"]  # records from before there was any are of the same experiments
        if not self.secure.enabled:
            del record["secure"]  # likewise
        # Under as-run it is written out, where left out would mean the habit.
        usual = self.profile != "as-run" and self.local.sampling == _usual_sampling(self.data.name)
        if usual or self.privacy.is_on:
            del record["local"]["sampling"]  # likewise
        record.setdefault("target", _UNSET)
        record["evaluation"].setdefault("every_updates", _UNSET)
        return record

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and self.to_record() == other.to_record()

    def __hash__(self) -> int:
        return hash(self.key())

    def key(self) -> str:
        """A short hash of everything that decides the result."""
        return record_key(self.to_record())

    def changed_code(self) -> list[str]:
        """The user's own things whose files have changed since the experiment was written down."""
        return [
            name for name, digest in (self.code or {}).items() if own_code.digest(name) != digest
        ]

    @classmethod
    def from_toml(cls, path: Path) -> "Experiment":
        """Read an experiment from a file.

        Raises:
            SettingsError: the file cannot be read, or a setting is wrong.
        """
        return cls(**read_experiment(path))


def record_key(record: Mapping[str, Any]) -> str:
    """The key of an experiment that `to_record` gave, perhaps that of an earlier version."""
    if record.get("code"):  # a user's own things count by their names and text, wherever they lie
        code = {own_code.short(name): digest for name, digest in record["code"].items()}
        record = {**own_code.with_names(record, own_code.short), "code": code}
    data = {key: value for key, value in record["data"].items() if key != "root"}
    text = json.dumps({**record, "data": data}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_experiment(path: Path) -> dict[str, Any]:
    """The values of an experiment's file.

    Raises:
        SettingsError: it cannot be read, or is another kind of file.
    """
    values = read_toml(path)
    sweeps = [key for key in ("grid", "base", "seeds") if key in values]
    if sweeps:
        raise SettingsError(
            f"{path} is a sweep's file (it has {', '.join(sweeps)}); run: fedcompass sweep {path}"
        )
    if "federation" in values:
        raise SettingsError(
            f"{path} is a federation's file (it has [federation]); run: fedcompass deploy server "
            f"{path.parent}"
        )
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's values, or one clear line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; give the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None


def _dataset(data: Any) -> str:
    """The dataset's name as far as it can be told; a wrong one is refused field by field."""
    name = data.get("name") if isinstance(data, Mapping) else None
    return name if isinstance(name, str) else DataSettings().name


def _clients(values: Mapping[str, Any]) -> int:
    """The number of clients as far as it can be told; given paces tell it too.

    A naturally split dataset has one for each of its centers that are there.
    """
    fleet, data = values.get("fleet"), values.get("data")
    given: Mapping[str, Any] = fleet if isinstance(fleet, Mapping) else {}
    clients, paces = given.get("clients"), given.get("paces")
    if isinstance(clients, int):
        return clients
    if isinstance(paces, (list, tuple)):
        return len(paces)
    name, root = _dataset(data), data.get("root") if isinstance(data, Mapping) else None
    if own_code.is_own(name):
        return _own_data(values).own_clients or FleetSettings().clients
    if name not in MEDICAL:
        return FleetSettings().clients
    return usual_clients(name, Path(root) if isinstance(root, (str, Path)) else None)


def _own_data(values: Mapping[str, Any]) -> "OwnData":
    from fedcompass.data.own_data import own_data  # with torch

    fleet, seed = values.get("fleet"), values.get("seed")
    clients = fleet.get("clients") if isinstance(fleet, Mapping) else None
    return own_data(
        _dataset(values["data"]),
        clients=clients if isinstance(clients, int) else FleetSettings().clients,
        seed=seed if isinstance(seed, int) else 0,
    )


def _losses_kind(values: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The loss's name, and whether it is the user's own: the one that is given, or the data's.

    A complete record is read without its data.
    """
    loss, given = values.get("loss"), values.get("evaluation")
    is_complete = "partition" in values and isinstance(given, Mapping) and "metrics" in given
    if loss or is_complete or not own_code.is_own(_dataset(values.get("data"))):
        return loss, own_code.is_own(loss)
    data = _own_data(values)
    return data.loss_name, data.loss is not None and data.loss_name is None


def _usual_for_own(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is usual for data, a loss or a metric of the user's own, where it is not given."""
    filled: dict[str, Any] = {}
    loss, is_own_loss = _losses_kind(values)
    if loss in REGRESSION:
        filled["partition"] = {"kind": "iid"}
        filled["evaluation"] = {"metrics": ["loss", "mae"], "target_metric": "mae"}
    is_own = own_code.is_own(_dataset(values.get("data")))
    if is_own and "partition" not in values and _own_data(values).own_clients is not None:
        filled["partition"] = {"kind": "own"}
    given = values.get("evaluation")
    target = given.get("target_metric") if isinstance(given, Mapping) else None
    usual = filled.get("evaluation", {}).get("metrics", EvaluationSettings().metrics)
    if isinstance(target, str) and target not in usual:
        filled["evaluation"] = {"metrics": ["loss", target]}
    if target == "loss" and is_own_loss:
        filled["evaluation"] = {"metrics": ["loss"]}  # who knows what its outputs are
    return filled


def _code(filled: Mapping[str, Any], strategy: Mapping[str, Any]) -> dict[str, str] | None:
    """A hash of each file with a thing of the user's own; what was written down before stays."""
    if filled.get("code") is not None:
        return dict(filled["code"])
    names = own_code.names_in({**filled, "strategy": strategy})
    hashed = {name: own_code.digest(name) for name in names}
    return {name: digest for name, digest in hashed.items() if digest is not None} or None


def _usual_sampling(data: str) -> Sampling:
    """How batches are drawn where that is not given.

    Your own data are read as everybody reads them, ours as in the paper's Algorithm 1: "random
    training batch".
    """
    return "epochs" if own_code.is_own(data) or data == OWN_DATA else "replacement"


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_unset=True) if isinstance(value, Settings) else value


def _filled_strategy(values: dict[str, Any], dataset: str, clients: int) -> dict[str, Any]:
    given = values.get("strategy") or {}
    if not isinstance(given, Mapping):
        raise ValueError(f"strategy is {given!r}; allowed: a table with a name")
    name = given.get("name", "fedcompass")
    if not isinstance(name, str):
        raise ValueError(f"strategy.name is {name!r}; allowed: {', '.join(strategies.names())}")
    filled = {"name": name}
    if values.get("profile", "paper") in ("paper", "authors", "as-run"):
        known = known_keys(name)
        settings = strategy_settings(dataset, clients, name)
        filled |= {k: v for k, v in settings.items() if k in known}
    if "min_clients" in given:
        raise ValueError("strategy.min_clients is not for a simulation: all clients join at once")
    return _without_none(merged(filled, given))


def _habits(
    profile: Any, filled: Mapping[str, Any], dataset: str, clients: int, strategy: dict[str, Any]
) -> dict[str, Any]:
    """What a profile adds to the paper's settings."""
    if profile == "authors" and "join_up_to" in known_keys(strategy["name"]):
        return authors_settings(strategy["max_steps"])
    if profile != "as-run":
        return {}
    fleet = filled["fleet"]
    default = FleetSettings()
    steps = strategy.get("max_steps") or strategy.get("steps")
    setup = as_run.Setup(
        dataset=dataset,
        strategy=strategy["name"],
        clients=clients,
        speed=fleet.get("speed", default.speed),
        mean_seconds_per_step=fleet.get("mean_seconds_per_step", default.mean_seconds_per_step),
        max_steps=steps or LocalSettings().rate_decay_steps,
    )
    habits = as_run.habits(setup)
    # A budget draws batches its own way, and secure sums have no plain means: these two habits
    # would be refused there, and the user has not asked for them.
    if (filled.get("privacy") or {}).get("epsilon") is not None:
        habits["local"].pop("sampling")
    if (filled.get("secure") or {}).get("enabled"):
        habits.get("strategy", {}).pop("model_buffers", None)
    return habits


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """The same without what is unset, which is every such setting's default."""
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }
