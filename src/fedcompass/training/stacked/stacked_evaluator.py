"""Measuring many models on the same samples at once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.training.metrics import Metric, make_metrics, values_of
from fedcompass.training.problem import Loss, Samples, Transform
from fedcompass.training.stacked.blocks import Blocks, matrices_of
from fedcompass.training.stacked.forward import Forward
from fedcompass.training.stacked.stack_of_tasks import for_stacks, sized

__all__ = ["StackedEvaluator"]

_BATCH_SIZE = 256
_MODELS_ON_GPU = 64  # with batches of 256: as many samples at a time as a stack of 256 tasks
_MODELS_ON_CPU = 4


class StackedEvaluator:
    """Applies a stack of models to one test set, batch by batch."""

    def __init__(
        self,
        layout: Layout,
        forward: Forward,
        transform: Transform | None,
        device: torch.device,
        *,
        compiled: bool,
    ) -> None:
        self._layout, self._transform, self._device = layout, transform, device
        self._models = _MODELS_ON_GPU if device.type == "cuda" else _MODELS_ON_CPU
        self._forward = forward
        self._apply = torch.compile(self._outputs) if compiled else self._outputs

    def evaluate(
        self, states: Sequence[FlatState], samples: Samples, metrics: Sequence[str], loss: Loss
    ) -> list[dict[str, float]]:
        """Each model's metrics by name, in the models' order."""
        found: list[dict[str, Metric]] = []
        with torch.no_grad(), for_stacks(self._device):
            for first in range(0, len(states), self._models):
                outputs = self.outputs(states[first : first + self._models], samples)
                targets = _targets(samples)
                for of_model in outputs:
                    measures = make_metrics(metrics, loss)
                    for measure in measures.values():
                        measure.add(of_model, targets)
                    found.append(measures)
            # Last of all: each value waits for the GPU.
            return [values_of(measures) for measures in found]

    def outputs(self, states: Sequence[FlatState], samples: Samples) -> Tensor:
        """What each model gives for each sample: [models, samples, ...]."""
        models = len(states)
        width = max(2, models) if self._device.type == "cuda" else models
        blocks = Blocks(self._layout, width, self._device)
        blocks.load(matrices_of(states, self._device))
        tensors = {name: sized(block) for name, block in blocks.tensors.items()}
        size = min(_BATCH_SIZE, len(samples))
        pieces = []
        for first in range(0, len(samples), size):
            # The last batch is filled up, so that all have one shape.
            rows = torch.arange(first, first + size, device=self._device) % len(samples)
            inputs, _ = samples.batch(rows)
            if self._transform is not None:
                inputs = self._transform(inputs)
            pieces.append(self._apply(tensors, inputs)[:models])
        return torch.cat(pieces, 1)[:, : len(samples)]

    def _outputs(self, tensors: dict[str, Tensor], inputs: Tensor) -> Tensor:
        models = len(next(iter(tensors.values())))
        outputs, _ = self._forward(tensors, inputs.expand(models, *inputs.shape), False)
        return outputs.view(models, len(inputs), *outputs.shape[1:])


def _targets(samples: Samples) -> Tensor:
    return samples.targets if samples.indices is None else samples.targets[samples.indices]
