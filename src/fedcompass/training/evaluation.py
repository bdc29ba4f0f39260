"""Measuring a model on samples, in batches of a fixed size: the same bits whoever asks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from fedcompass.aggregation.layout import FlatState
from fedcompass.error_text import told
from fedcompass.errors import TaskFailed
from fedcompass.training.bound import BoundModel
from fedcompass.training.local import LocalTrainer
from fedcompass.training.metrics import make_metrics, values_of
from fedcompass.training.problem import Items, Loss, Samples, Transform, outputs_of

__all__ = ["begin_evaluation", "begin_measuring", "evaluate", "evaluate_clients"]

_CPU_BATCH, _GPU_BATCH = 128, 1024  # larger ones are slower: a CPU's cache holds no more
_CPU_VALUES, _GPU_VALUES = 1 << 21, 1 << 24  # of a batch's inputs; a network keeps many times that


def evaluate(
    trainer: LocalTrainer, state: FlatState, samples: Samples, metrics: Sequence[str]
) -> dict[str, float]:
    """Each metric of a model on samples, by name, in the given order.

    Raises:
        TaskFailed: the model or a metric raised.
    """
    return begin_evaluation(trainer, state, samples, metrics)()


def begin_evaluation(
    trainer: LocalTrainer, state: FlatState, samples: Samples, metrics: Sequence[str]
) -> Callable[[], dict[str, float]]:
    """Start measuring; what is given back is called for the result, and waits for the device.

    On a GPU other work can be queued meanwhile.

    Raises:
        TaskFailed: the model or a metric raised, here or at the call.
    """
    trainer.model.load(state)
    return _begun(trainer, samples, metrics, "test samples")


def evaluate_clients(
    trainer: LocalTrainer, state: FlatState, metrics: Sequence[str]
) -> tuple[dict[str, float], ...]:
    """Each metric on every client's own samples, by client number."""
    trainer.model.load(state)
    begun = [
        _begun(trainer, samples, metrics, f"samples of client {client}")
        for client, samples in enumerate(trainer.problem.tests_of_clients())
    ]
    return tuple(result() for result in begun)


def _begun(
    trainer: LocalTrainer, samples: Samples, names: Sequence[str], what: str
) -> Callable[[], dict[str, float]]:
    problem = trainer.problem
    return begin_measuring(trainer.model, samples, names, problem.loss, problem.transform, what)


def begin_measuring(
    model: BoundModel,
    samples: Samples,
    names: Sequence[str],
    loss: Loss,
    transform: Transform | None = None,
    what: str = "test samples",
) -> Callable[[], dict[str, float]]:
    """Start measuring what a model holds on samples on its device; call for the result.

    This is how both drivers measure: the simulator's executors and the deployed server.

    Raises:
        TaskFailed: the model or a metric raised, here or at the call; names `what`.
    """
    module, device = model.module.eval(), samples.device
    metrics = make_metrics(names, loss)
    with _failing_as_task(what), torch.inference_mode():
        everything = torch.arange(len(samples), device=device)
        for rows in torch.split(everything, _batch_size(samples)):
            # A copy of the rows, not a slice: where a slice starts in memory can change how
            # a matrix product is blocked, and so the last bit.
            inputs, targets = samples.batch(rows)
            outputs = outputs_of(module, inputs if transform is None else transform(inputs))
            for metric in metrics.values():
                metric.add(outputs, targets)

    def result() -> dict[str, float]:
        with _failing_as_task(what), torch.inference_mode():
            return values_of(metrics)

    return result


def _batch_size(samples: Samples) -> int:
    on_cpu = samples.device.type == "cpu"
    most, values = (_CPU_BATCH, _CPU_VALUES) if on_cpu else (_GPU_BATCH, _GPU_VALUES)
    inputs = samples.inputs
    if isinstance(inputs, Items):
        return most
    tensors = inputs.values() if isinstance(inputs, Mapping) else (inputs,)
    return max(1, min(most, values // max(1, sum(tensor[0].numel() for tensor in tensors))))


@contextmanager
def _failing_as_task(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise TaskFailed(f"evaluation failed on the {what}: {told(error)}") from error
