"""Measuring a model on samples, in batches of a fixed size: the same bits whoever asks."""

from collections.abc import Sequence

import torch

from fedcompass.aggregation.layout import FlatState
from fedcompass.errors import TaskFailed
from fedcompass.training.local import LocalTrainer
from fedcompass.training.metrics import make_metrics
from fedcompass.training.problem import Samples

__all__ = ["evaluate", "evaluate_clients"]

_BATCH_SIZE = {"cpu": 128, "cuda": 1024}  # larger ones are slower: a CPU's cache holds no more
_VALUES = {"cpu": 1 << 21, "cuda": 1 << 24}  # of a batch's inputs; a network keeps many times that


def evaluate(
    trainer: LocalTrainer, state: FlatState, samples: Samples, metrics: Sequence[str]
) -> dict[str, float]:
    """Each metric of a model on samples, by name, in the given order.

    Raises:
        TaskFailed: the model or a metric raised.
    """
    trainer.model.load(state)
    return _measure(trainer, samples, metrics, "test samples")


def evaluate_clients(
    trainer: LocalTrainer, state: FlatState, metrics: Sequence[str]
) -> tuple[dict[str, float], ...]:
    """Each metric on every client's own samples, by client number."""
    trainer.model.load(state)
    return tuple(
        _measure(trainer, samples, metrics, f"samples of client {client}")
        for client, samples in enumerate(trainer.problem.tests_of_clients())
    )


def _measure(
    trainer: LocalTrainer, samples: Samples, names: Sequence[str], what: str
) -> dict[str, float]:
    problem, module = trainer.problem, trainer.model.module.eval()
    metrics = make_metrics(names, problem.loss)
    kind = trainer.device.type
    size = max(1, min(_BATCH_SIZE[kind], _VALUES[kind] // max(1, samples.inputs[0].numel())))
    try:
        with torch.inference_mode():
            for rows in torch.split(torch.arange(len(samples), device=trainer.device), size):
                # A copy of the rows, not a slice: where a slice starts in memory can change how
                # a matrix product is blocked, and so the last bit.
                inputs, targets = samples.batch(rows)
                outputs = module(problem.prepared(inputs))
                for metric in metrics.values():
                    metric.add(outputs, targets)
            return {name: metric.value() for name, metric in metrics.items()}
    except Exception as error:
        raise TaskFailed(
            f"evaluation failed on the {what}: {type(error).__name__}: {error}"
        ) from error
