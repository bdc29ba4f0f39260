"""The ServerApp: one of our strategies on the nodes of a Flower run, in either of its runtimes."""

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from fedcompass import own_code
from fedcompass.aggregation import Layout
from fedcompass.deployment.server.audit_words import in_words
from fedcompass.deployment.server.background_evaluation import Evaluate
from fedcompass.deployment.server.federation import Federation
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.errors import AppError, FedcompassError, SettingsError
from fedcompass.flower.flower_settings import FlowerSettings, read_settings
from fedcompass.flower.grid_transport import GridTransport
from fedcompass.flower.measured_models import by_clients, by_function
from fedcompass.runs.curve import metrics_of
from fedcompass.runs.files import GrowingFile
from fedcompass.training.streams import seeded, stream_key

__all__ = ["app", "load_object", "main", "make_model"]

_log = logging.getLogger("flwr")  # what it is told is printed, and streamed by `flwr run --stream`

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the strategy that the project's settings name, until a stop condition holds."""
    try:
        _serve(grid, context)
    except FedcompassError as error:  # Flower prints a traceback, and more, after it
        _log.error("fedcompass: %s", error)
        raise


def _serve(grid: Grid, context: Context) -> None:
    own, settings = read_settings(context.run_config)
    module = make_model(own.model, settings.seed)
    layout = Layout.of(module)
    folder = own.run_folder(context.run_id)
    stopped, transport = Event(), GridTransport(grid, layout, own.train, settings.ttl)
    federation = Federation(
        settings,
        layout,
        layout.state_of(module),
        transport,
        folder,
        resume=bool(own.resume),
        evaluate=_evaluation(own, settings, grid, layout, stopped),
    )
    members = federation.coordinator.scheduler.roster.members
    transport.recognise({client: member.samples for client, member in members.items()})
    try:
        _run(federation, folder)
    finally:
        stopped.set()
        federation.close()


def _run(federation: Federation, folder: Path) -> None:
    name = federation.settings.chosen_strategy().name
    _log.info("fedcompass: strategy %s, run folder %s", name, folder)
    _log.info("fedcompass: begins with %d clients (min_clients)", federation.settings.min_clients)
    told = _Told(federation, folder)
    summary = federation.run(told.tell)
    told.tell(federation)
    _log.info(
        "fedcompass: over (%s): %d global updates in %.0f s; `fedcompass report %s` draws them",
        summary.reason,
        summary.global_updates,
        summary.seconds,
        folder,
    )


class _Told:
    """What the log was told of a run."""

    def __init__(self, federation: Federation, folder: Path) -> None:
        self._version = federation.coordinator.version
        self._rows = len(federation.curve.rows)
        self._audit = GrowingFile(folder / "audit.jsonl")
        self._audit.new_records()  # what was before a resume has been told

    def tell(self, federation: Federation) -> None:
        """Log what has happened since the last call: clients, merges and evaluations."""
        for line in self._audit.new_records():
            if told := in_words(line):
                _log.info("fedcompass: %s", told.strip())
        now, version = federation.now(), federation.coordinator.version
        if version > self._version:
            _log.info("fedcompass: %.0f s: global update %d", now, version)
            self._version = version
        for row in federation.curve.rows[self._rows :]:
            values = ", ".join(f"{key} {value:.4g}" for key, value in metrics_of(row).items())
            _log.info("fedcompass: model %d measured: %s", row["version"], values)
        self._rows = len(federation.curve.rows)


def _evaluation(
    own: FlowerSettings,
    settings: FederationSettings,
    grid: Grid,
    layout: Layout,
    stopped: Event,
) -> Evaluate | None:
    if own.evaluate == "none":
        return None
    if own.evaluate == "clients":
        return by_clients(grid, layout, settings.task_timeout, stopped)
    return by_function(load_object("evaluate", own.evaluate), layout)


def load_object(setting: str, reference: str) -> Callable[..., Any]:
    """The callable that a setting names.

    Raises:
        SettingsError: it cannot be imported, or called.
    """
    found = own_code.find(setting, reference)
    if not callable(found):
        raise SettingsError(own_code.wrong(setting, reference, found, "a function or a class"))
    return found  # type: ignore[no-any-return]


def make_model(reference: str, seed: int) -> nn.Module:
    """A project's model, with initial weights that depend only on the seed.

    Frozen parameters travel, too: a ClientApp loads a whole `state_dict`, and sends one.

    Raises:
        SettingsError: there is none of that name.
        AppError: it raises, or makes something else.
    """
    function = load_object("model", reference)
    try:
        with seeded(stream_key(seed, "model")):
            made = function()
    except Exception as error:
        why = one_line(f"{type(error).__name__}: {error}")
        raise AppError(f"model {reference!r} does not work without arguments: {why}") from error
    if not isinstance(made, nn.Module):
        raise AppError(
            f"model {reference!r} made a {type(made).__name__}; it must make a torch.nn.Module"
        )
    return made.requires_grad_()
