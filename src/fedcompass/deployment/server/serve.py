"""The server's whole part of a federation, in one call."""

from collections.abc import Callable
from pathlib import Path
from time import sleep

from torch.nn import functional

from fedcompass.aggregation import FlatState, Layout
from fedcompass.aggregation.layout import frozen_of
from fedcompass.deployment.app.app_file import AppFile
from fedcompass.deployment.server.background_evaluation import Evaluate
from fedcompass.deployment.server.federation import Federation
from fedcompass.deployment.server.federation_settings import FederationSettings
from fedcompass.deployment.server.federation_summary import Summary
from fedcompass.deployment.wire.transport import Transport
from fedcompass.errors import SettingsError
from fedcompass.training.bound import BoundModel, frozen_by_seed
from fedcompass.training.evaluation import begin_measuring
from fedcompass.vocabulary import ModelVersion, Seconds

__all__ = ["serve"]


def serve(
    settings: FederationSettings,
    app: AppFile,
    transport: Transport,
    folder: Path,
    resume: bool = False,
    *,
    on_step: Callable[[Federation], None] | None = None,
    pause: Callable[[Seconds], None] = sleep,
    spent: Path | None = None,
) -> Summary:
    """Run a federation to its end, or until something stops it; then it can be resumed.

    Args as of `Federation`; `on_step` is called after every poll.

    Raises:
        FedcompassError: with one line saying what is wrong and what to do.
    """
    module = app.model(settings.seed)
    frozen = frozen_of(module)
    if frozen and (name := frozen_by_seed(app.model)) is not None:
        raise SettingsError(
            f"the model's frozen parameter {name!r} is drawn at random; it is never sent, so sites "
            "would have another one: load it from a file, or draw it from a generator of its own"
        )
    layout = Layout.of(module)
    federation = Federation(
        settings,
        layout,
        layout.state_of(module),
        transport,
        folder,
        resume=resume,
        evaluate=_evaluation(app, settings, layout),
        pause=pause,
        frozen=frozen,
        spent=spent,
    )
    try:
        return federation.run(on_step)
    finally:
        federation.close()


def _evaluation(app: AppFile, settings: FederationSettings, layout: Layout) -> Evaluate | None:
    """How this app's models are measured: its own way, or on its test set."""
    if app.has("evaluate"):
        module = app.model(settings.seed)

        def by_the_app(_: ModelVersion, state: FlatState) -> dict[str, float]:
            layout.load(module, state)  # the app may have moved it to another device
            module.eval()
            return app.evaluate(module) or {}

        return by_the_app
    samples = app.test_set()
    if samples is None:
        return None
    model = BoundModel(app.model(settings.seed))

    def on_test_set(_: ModelVersion, state: FlatState) -> dict[str, float]:
        model.load(state)
        return begin_measuring(model, samples, settings.metrics, functional.cross_entropy)()

    return on_test_set
