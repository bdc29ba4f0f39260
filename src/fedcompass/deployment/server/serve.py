"""The server's whole part of a federation, in one call."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional

from fedcompass.aggregation import FlatState, Layout
from fedcompass.deployment.app.app_file import AppFile
from fedcompass.deployment.server.background_evaluation import Evaluate
from fedcompass.deployment.server.federation import Federation
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.federation_summary import Summary
from fedcompass.deployment.wire.transport import Transport
from fedcompass.training.metrics import make_metrics
from fedcompass.training.problem import Samples

__all__ = ["serve"]

_BATCH_SIZE = 128


def serve(
    settings: FederationSettings,
    app: AppFile,
    transport: Transport,
    folder: Path,
    resume: bool = False,
    *,
    on_step: Callable[[Federation], None] | None = None,
) -> Summary:
    """Run a federation to its end, or until something stops it; then it can be resumed.

    Args:
        settings: of the run.
        app: the user's model, and what to measure it on.
        transport: carries messages to sites and back.
        folder: the run's.
        resume: go on with the run in the folder.
        on_step: called after every poll.

    Raises:
        FedcompassError: with one line saying what is wrong and what to do.
    """
    module = app.model(settings.seed)
    layout = Layout.of(module)
    federation = Federation(
        settings,
        layout,
        layout.state_of(module),
        transport,
        folder,
        resume=resume,
        evaluate=_evaluation(app, settings, layout),
    )
    try:
        return federation.run(on_step)
    finally:
        federation.close()


def _evaluation(app: AppFile, settings: FederationSettings, layout: Layout) -> Evaluate | None:
    """How this app's models are measured: its own way, or on its test set."""
    samples = None if app.has("evaluate") else app.test_set()
    if samples is None and not app.has("evaluate"):
        return None
    module = app.model(settings.seed)

    def evaluate(state: FlatState) -> dict[str, float]:
        layout.load(module, state)
        module.eval()
        if samples is None:
            return app.evaluate(module) or {}
        return _measured(module, samples, settings.metrics)

    return evaluate


def _measured(
    module: torch.nn.Module, samples: Samples, names: tuple[str, ...]
) -> dict[str, float]:
    metrics = make_metrics(names, functional.cross_entropy)
    with torch.inference_mode():
        for rows in torch.split(torch.arange(len(samples)), _BATCH_SIZE):
            inputs, targets = samples.batch(rows)
            outputs = module(inputs)
            for metric in metrics.values():
                metric.add(outputs, targets)
    return {name: metric.value() for name, metric in metrics.items()}
