"""Keeping a simulation so that it can be stopped at any moment and resumed to the same result."""

from collections.abc import Callable, Generator, Mapping
from time import monotonic
from typing import Any

from fedcompass.aggregation.saved_tensors import named_state, restored_state
from fedcompass.errors import CheckpointError, FedcompassError
from fedcompass.runs.checkpoint import Checkpoint
from fedcompass.runs.folder import RunFolder
from fedcompass.runs.journal import FileJournal
from fedcompass.simulation.engine import Simulation
from fedcompass.simulation.executors import Job
from fedcompass.vocabulary import Seconds

__all__ = ["Paused", "Saver", "restore"]

_SHOWN_EVERY: Seconds = 1.0  # wall-clock time until a live page sees what has happened


class Paused(FedcompassError):
    """The run was put away; its folder, if it has one, holds where it stood."""


class Saver:
    """Saves a simulation to a run's folder now and then, reports progress, and stops when asked.

    Args:
        folder: where to; None saves nothing.
        journal: the folder's.
        identity: facts kept there too, by which a resumed run is told from another.
        every: seconds of wall-clock time between two checkpoints: what a crash can cost at most.
        on_progress: called after every event.
        stops: whether to pause, after saving once more.
    """

    def __init__(
        self,
        folder: RunFolder | None,
        journal: FileJournal | None,
        *,
        identity: Mapping[str, Any],
        every: Seconds,
        on_progress: Callable[[Simulation], None] | None,
        stops: Callable[[], bool],
    ) -> None:
        self._folder, self._journal, self._every = folder, journal, every
        self._identity = identity
        self._on_progress, self._stops = on_progress, stops
        self._saved_at = self._shown_at = monotonic()

    def after_event(self, simulation: Simulation) -> Generator[Job, Any, None]:
        """An `Observer`: report progress, let readers of the folder see it, and save if it is time.

        Raises:
            Paused: it was asked to stop.
        """
        if self._on_progress is not None:
            self._on_progress(simulation)
        if self._folder is None or self._journal is None:
            self._pause_if_asked()
            return
        if monotonic() - self._shown_at >= _SHOWN_EVERY:
            self._journal.show()
            self._folder.write_metrics(simulation.evaluations.rows)
            self._shown_at = monotonic()
        if simulation.can_be_saved and (
            self._stops() or monotonic() - self._saved_at >= self._every
        ):
            yield from simulation.evaluations.collect(but=0)
            self.save(simulation)
            self._pause_if_asked()

    def _pause_if_asked(self) -> None:
        if self._stops():
            raise Paused("stopped")

    def save(self, simulation: Simulation) -> None:
        """Write everything a resumed run needs, while all that was to be measured is."""
        if self._folder is None or self._journal is None:
            return
        tensors, facts = simulation.coordinator.state(simulation.starts())
        evaluations = simulation.evaluations
        if evaluations.best is not None:
            tensors |= named_state("best", evaluations.best.clone())  # may be a start, too
        self._folder.write_metrics(evaluations.rows)
        self._folder.save_checkpoint(
            tensors,
            {
                **facts,
                **self._identity,
                "simulation": simulation.to_json(),
                "evaluations": evaluations.to_json(),
                "rows": evaluations.rows,
                "journal_bytes": self._journal.flush(),
                "journal_crc": self._journal.crc,
            },
        )
        self._saved_at = monotonic()


def restore(simulation: Simulation, saved: Checkpoint) -> None:
    """Bring a fresh simulation to where a checkpoint was made.

    Raises:
        CheckpointError: it does not fit.
    """
    facts, tensors, coordinator = saved.facts, saved.tensors, simulation.coordinator
    try:
        has_best = "best.trainable" in tensors
        best = restored_state(tensors, "best", coordinator.model) if has_best else None
        simulation.evaluations.restore(facts["evaluations"], facts["rows"], best)
        simulation.restore(facts["simulation"], coordinator.restore(tensors, facts))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint is incomplete: {error!r}; start the run anew"
        ) from None
