"""Which way a problem's tasks can be trained together."""

from functools import partial

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedcompass.settings.training import LocalSettings
from fedcompass.training.bound import build_module, frozen_by_seed
from fedcompass.training.local import LocalTrainer
from fedcompass.training.model_steps import ModelSteps
from fedcompass.training.problem import Problem, outputs_of
from fedcompass.training.stacked.forward import CannotStack
from fedcompass.training.stacked.stacked_trainer import StackedTrainer
from fedcompass.training.stacked.tasks import StackedTask
from fedcompass.training.streams import row_stream

__all__ = ["stacked_trainer", "work_of"]

_TRIAL_STEPS = 2
_LARGE = 100_000  # values of one sample; a step on a few of these keeps a GPU busy by itself
_FILLS_A_GPU = 50e9  # operations of a step: half a millisecond at 100 TFLOP/s
_TOLERANCE = 0.01  # of the norm of a change; a forgotten buffer or a wrong axis gives far more


def stacked_trainer(
    problem: Problem, settings: LocalSettings, device: torch.device, max_stack: int | None
) -> StackedTrainer | str:
    """A trainer for stacks of the problem's tasks, or "one at a time (why)"."""
    if problem.augment is not None:
        return "one at a time (the problem augments its batches)"
    if not all(isinstance(s.inputs, Tensor) for s in (problem.clients[0], problem.test)):
        return "one at a time (its inputs are not one tensor)"
    if problem.clients[0].tensor[0].numel() > _LARGE:
        return "one at a time (its samples are large: stacked, their activations fill the memory)"
    if len({(id(samples.inputs), id(samples.targets)) for samples in problem.clients}) > 1:
        return "one at a time (its clients do not share their stored samples)"
    if settings.precision != "float32":
        return f"one at a time (in {settings.precision}, which is for models that fill a GPU)"
    try:
        if (name := frozen_by_seed(partial(build_module, problem))) is not None:
            return f"one at a time (its frozen parameter {name!r} depends on the seed)"
        if device.type == "cuda" and (work := work_of(problem, settings)) > _FILLS_A_GPU:
            return f"one at a time (a step of {work / 1e9:,.0f} GFLOP fills a GPU by itself)"
        trainer = StackedTrainer(
            build_module(problem, 0),
            settings,
            problem.loss,
            transform=problem.transform,
            device=device,
            max_stack=max_stack,
        )
        if trainer.how != "stacked":
            _try(trainer, problem)
    except Exception as reason:  # the user's model can raise anything under vmap
        return f"one at a time ({' '.join(str(reason).split())[:200]})"
    return trainer


def work_of(problem: Problem, settings: LocalSettings) -> float:
    """Floating-point operations of a step: a backward pass costs two forward ones."""
    module = build_module(problem, 0).eval()
    one = problem.clients[0].tensor[:1].cpu()
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        outputs_of(module, problem.prepared(one))
    return 3.0 * settings.batch_size * float(counter.get_total_flops())


def _try(trainer: StackedTrainer, problem: Problem) -> None:
    """Train a short round both ways and compare: vmap may miss what a module does on the side.

    Raises:
        CannotStack: the results differ.
    """
    steps = ModelSteps(
        build_module(problem, 0), trainer.settings, problem.loss, trainer.device
    )  # plain: a graph would be made for two steps
    alone = LocalTrainer(problem, trainer.settings, 0, trainer.device, steps=steps)
    start = alone.initial_state()
    task = StackedTask(
        start=start,
        samples=problem.clients[0],
        stream=row_stream(
            trainer.settings.sampling, seed=0, client=0, local_round=0, steps_before=0
        ),
        steps=_TRIAL_STEPS,
        payload="delta",
    )
    got, _ = trainer.train([task, task])
    wanted = alone.train(start, client=0, local_round=0, steps=_TRIAL_STEPS, payload="delta")
    for one, other in zip(got.tensors().values(), wanted.tensors().values(), strict=True):
        apart = torch.linalg.vector_norm(one.double() - other.double())
        if apart > _TOLERANCE * torch.linalg.vector_norm(other.double()):
            raise CannotStack("vmap gives other results than the model by itself")
