"""What runs on a Ray cluster: an actor for one GPU or one CPU slot that carries out runs."""

from functools import partial

from fedcompass.experiment import Experiment
from fedcompass.own_code import find
from fedcompass.sweeps.one_at_a_time import nowhere, run_one
from fedcompass.sweeps.ray_problems import PackedProblem, ProblemReceiver
from fedcompass.sweeps.record import Record
from fedcompass.sweeps.stacked_runs import stacked_runs
from fedcompass.sweeps.stopping import Stop
from fedcompass.training.problem import Problem
from fedcompass.vocabulary import Seconds

__all__ = ["RayWorker"]


class RayWorker:
    """Carries out batches of runs; a tensor of the dataset is mapped from the node's store once."""

    def __init__(self, device: str, stacked: bool, max_stack: int | None) -> None:
        import ray

        self._device, self._stacked, self._max_stack = device, stacked, max_stack
        self._receiver = ProblemReceiver(ray.get)

    def ready(self) -> bool:
        """Answer, once the actor has a place and its imports are done."""
        return True

    def _unpacked(self, experiment: Experiment, packed: PackedProblem) -> Problem:
        """The problem of a run, after the user's own modules, whose functions it may name."""
        for name in experiment.code or ():
            find("own code", name)
        return self._receiver.unpack(packed)

    def run(
        self, batch: list[tuple[Experiment, PackedProblem]], budget: Seconds | None
    ) -> list[Record]:
        """The records of the runs that ended or failed within the budget."""
        stop = Stop(budget)
        problems = {e.key(): self._unpacked(e, packed) for e, packed in batch}
        if not self._stacked:
            alone = partial(run_one, device=self._device, path=None, stops=stop.is_due)
            made = (alone(e, problem=problems[e.key()]) for e, _ in batch)
            return [record for record in made if record is not None]
        records = stacked_runs(
            [experiment for experiment, _ in batch],
            device=self._device,
            max_stack=self._max_stack,
            live=None,
            place=nowhere,
            stops=stop.is_due,
            problems=problems,
        )
        return list(records)
