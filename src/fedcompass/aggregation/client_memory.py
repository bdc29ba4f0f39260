"""What the server keeps of each client between its updates, and what an update becomes by it.

These pieces combine with any scheduler and any aggregator: an update goes through them before it
is folded into its buffer (docs/pieces.md).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from fedcompass.aggregation.buffers import Contribution
from fedcompass.aggregation.calibration import Calibration
from fedcompass.aggregation.last_sent import LastSent
from fedcompass.aggregation.layout import FlatState
from fedcompass.aggregation.mean_staleness import MeanStaleness
from fedcompass.aggregation.saved_tensors import named_state, restored_state
from fedcompass.errors import CheckpointError
from fedcompass.settings.aggregation import AggregationSettings, Payload
from fedcompass.vocabulary import DIRECT, BufferId, ClientId, TaskId

__all__ = ["ClientMemory"]


class ClientMemory:
    """Keeps what the settings ask for; by default nothing, and updates stay as they are.

    Args:
        settings: which pieces there are.
        like: the global model.
        keeps_updates: the scheduler may ask for a client's last update once more.
    """

    def __init__(
        self, settings: AggregationSettings, like: FlatState, *, keeps_updates: bool = False
    ) -> None:
        self._like = like
        self._last: dict[ClientId, FlatState] | None = {} if keeps_updates else None
        self._calibration = (
            Calibration(like.trainable, per_step=settings.normalized)
            if settings.calibrated
            else None
        )
        self._sent = LastSent(like.trainable) if settings.since_last else None
        window = settings.staleness_window
        self._staleness = None if window is None else MeanStaleness(window)

    @property
    def payload(self) -> Payload | None:
        """What clients have to send for it, None if it does not matter."""
        return "model" if self._sent is not None else None

    def started(self, client: ClientId, model: FlatState) -> None:
        """A client was given a task on this model."""
        if self._sent is not None:
            self._sent.started(client, model.trainable)

    def reference(self, client: ClientId, model: Tensor) -> Tensor:
        """The weights that the change is taken against where a client sends its end model."""
        return model if self._sent is None else self._sent.model_of(client)

    def prepared(
        self,
        client: ClientId,
        task: TaskId,
        buffer: BufferId,
        update: FlatState,
        contribution: Contribution,
    ) -> tuple[FlatState, Contribution]:
        """What to fold of a client's update, and as what; neither is changed nor kept itself."""
        if self._last is not None:
            self._last[client] = update.clone()
        trainable = self._changed(client, task, buffer, update.trainable, contribution)
        prepared = FlatState(trainable, update.averaged, update.counted)
        return prepared, self.taken(client, contribution)

    def taken(self, client: ClientId, contribution: Contribution) -> Contribution:
        """What a client's newest update counts as, whoever has it."""
        if self._staleness is not None:
            self._staleness.take(client, contribution.staleness)
        return self._weighed(client, contribution)

    def _changed(
        self,
        client: ClientId,
        task: TaskId,
        buffer: BufferId,
        trainable: Tensor,
        contribution: Contribution,
    ) -> Tensor:
        if self._sent is not None:
            return self._sent.change(client, trainable)
        if self._calibration is None:
            return trainable
        self._calibration.take(client, task, trainable, contribution.share, contribution.steps)
        if buffer == DIRECT:
            return trainable  # applied as it is
        return self._calibration.calibrated(client, trainable, contribution.steps)

    def _weighed(self, client: ClientId, contribution: Contribution) -> Contribution:
        if self._staleness is None:
            return contribution
        return Contribution(
            staleness=contribution.staleness,
            share=contribution.share * self._staleness.of(client),
            steps=contribution.steps,
        )

    def repeated(
        self, client: ClientId, contribution: Contribution
    ) -> tuple[FlatState, Contribution]:
        """A client's last update, to be folded once more."""
        assert self._last is not None  # only a scheduler that repeats updates asks
        return self._last[client], self._weighed(client, contribution)

    def merged(self, tasks: Iterable[TaskId]) -> None:
        """The updates that answered these tasks are in the model now."""
        if self._calibration is not None:
            self._calibration.merged(tasks)

    def forget(self, client: ClientId) -> None:
        """The client left or is in quarantine: what it sent no longer counts by itself."""
        if self._last is not None:
            self._last.pop(client, None)
        if self._calibration is not None:
            self._calibration.forget(client)
        if self._staleness is not None:
            self._staleness.forget(client)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a checkpoint has to keep: tensors by name (live), and JSON facts by piece."""
        tensors: dict[str, Tensor] = {}
        facts: dict[str, Any] = {}
        if self._last is not None:
            facts["last"] = list(self._last)
            for number, update in enumerate(self._last.values()):
                tensors |= named_state(f"last.{number}", update)
        for name, piece in (("calibration", self._calibration), ("sent", self._sent)):
            if piece is not None:
                kept, facts[name] = piece.state()
                tensors |= kept
        if self._staleness is not None:
            facts["staleness"] = self._staleness.to_json()
        return tensors, facts

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Take over copies of what `state` gave; one that raised must not be used any more.

        Raises:
            CheckpointError: something is missing or does not fit.
        """
        ours = self.state()[1]
        if set(facts) != set(ours):
            raise CheckpointError(
                f"the checkpoint keeps {sorted(facts)} of each client, this run keeps "
                f"{sorted(ours)}; resume with the settings the checkpoint was made with"
            )
        if self._last is not None:
            self._last = {
                client: restored_state(tensors, f"last.{number}", self._like)
                for number, client in enumerate(facts["last"])
            }
        if self._calibration is not None:
            self._calibration.restore(tensors, facts["calibration"])
        if self._sent is not None:
            self._sent.restore(tensors, facts["sent"])
        if self._staleness is not None:
            self._staleness.restore(facts["staleness"])
