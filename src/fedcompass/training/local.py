"""A client's local round: so many steps from a start model, the same bits anywhere.

`take_steps` is the round of a simulated client and of a site; what differs is handed to it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.error_text import told
from fedcompass.errors import TaskFailed
from fedcompass.settings.aggregation import Payload
from fedcompass.settings.training import LocalSettings, Sampling
from fedcompass.training.bound import BoundModel, build_module
from fedcompass.training.graphed_steps import GraphedSteps
from fedcompass.training.model_steps import ModelSteps
from fedcompass.training.problem import Inputs, Problem
from fedcompass.training.streams import RowStream, row_stream, seeded, stream_key
from fedcompass.vocabulary import Steps

if TYPE_CHECKING:
    from fedcompass.privacy.account import PrivacyPlan
    from fedcompass.training.private_steps import PrivateSteps

__all__ = ["Draw", "LocalTrainer", "Step", "change_or_model", "model_steps", "take_steps"]

Draw: TypeAlias = Callable[[RowStream, Steps], Iterator[Any]]
"""(where rows come from, steps) -> so many batches on the device."""

Step: TypeAlias = Callable[[Any, torch.Generator], object]
"""Trains on one batch; may vary it at random, drawing from the generator alone."""


def take_steps(
    begin: Callable[[], Step],
    draw: Draw,
    steps: Steps,
    *,
    seed: int,
    client: int,
    local_round: int,
    sampling: Sampling,
    steps_before: Steps,
    device: torch.device,
    is_over: Callable[[Steps], bool] = lambda _done: False,
) -> Steps:
    """Train on one batch after the other, and return on how many.

    What is random in it depends on the seed, the client, the local round and the steps of the
    client's tasks before. `begin` gives what does a step; `is_over` is asked after each, with the
    steps done, whether to stop early.
    """
    if steps < 1:
        raise TaskFailed(f"task {local_round} asks for {steps} steps; a task has at least 1")

    def key(purpose: str) -> int:
        return stream_key(seed, purpose, client, local_round)

    augmenting = torch.Generator(device)
    augmenting.manual_seed(key("augment"))
    stream = row_stream(
        sampling, seed=seed, client=client, local_round=local_round, steps_before=steps_before
    )
    done = 0
    with seeded(key("torch"), device):
        step = begin()
        for batch in draw(stream, steps):
            step(batch, augmenting)
            done += 1
            if is_over(done):
                break
    return done


def change_or_model(
    payload: Payload, start: FlatState, end: FlatState, out: FlatState
) -> FlatState:
    """What is merged of a client's end model, written into `out`, which may be one of the two.

    Buffers travel as end values.
    """
    if payload == "delta":
        torch.sub(start.trainable, end.trainable, out=out.trainable)
    else:
        out.trainable.copy_(end.trainable)
    out.averaged.copy_(end.averaged)
    out.counted.copy_(end.counted)
    return out


def model_steps(
    problem: Problem, settings: LocalSettings, seed: int, device: torch.device | str
) -> ModelSteps:
    """What takes the steps of a problem's clients on a device."""
    device = torch.device(device)
    made = GraphedSteps if device.type == "cuda" else ModelSteps
    return made(build_module(problem, seed), settings, problem.loss, device)


class LocalTrainer:
    """Trains any client of a problem, one task after the other, in one reused module.

    A task's result depends on the start model, the seed, the client, the local round, the steps and
    those of the client's tasks before, and on nothing the trainer did before. On CPU it also
    depends on torch's number of threads, which is the caller's to set: the executors use one.
    """

    def __init__(
        self,
        problem: Problem,
        settings: LocalSettings,
        seed: int,
        device: torch.device | str = "cpu",
        *,
        steps: ModelSteps | None = None,
    ) -> None:
        """Build the model on the device.

        Args:
            problem: the clients' samples, the model and the loss.
            settings: how clients train.
            seed: of all random streams.
            device: where to train.
            steps: from `model_steps`, shared with trainers of the same model, loss and settings;
                on a GPU it is compiled once then.
        """
        self.problem = problem.to(device)
        self.settings = settings
        self.seed = seed
        self.device = torch.device(device)
        self._steps = steps or model_steps(problem, settings, seed, device)
        self._private: PrivateSteps | None = None  # made when a task is to be private

    @property
    def model(self) -> BoundModel:
        """The module that is trained and measured."""
        return self._steps.model

    @property
    def how(self) -> str:
        """How steps are taken: "eager", "CUDA graph" or "compiled, CUDA graph"."""
        return self._steps.how

    @property
    def layout(self) -> Layout:
        """Where each of the model's tensors lies in a flat state."""
        return self.model.layout

    def initial_state(self) -> FlatState:
        """The untrained model, the same for the same seed."""
        return self.layout.state_of(build_module(self.problem, self.seed))

    def train(
        self,
        start: FlatState,
        *,
        client: int,
        local_round: int,
        steps: int,
        payload: Payload,
        steps_before: int = 0,
        out: FlatState | None = None,
        privacy: "PrivacyPlan | None" = None,
    ) -> FlatState:
        """Carry out one local round and return what the client sends.

        Args:
            start: the model to start from; left unchanged unless it is also `out`.
            client: whose samples to train on.
            local_round: how many rounds this client has done before; selects the random stream.
            steps: how many batches, exactly.
            payload: what goes into the update's `trainable`; buffers travel as end values.
            steps_before: how many steps this client was given before; decays the learning rate, and
                says where its epoch goes on.
            out: where to write the update, on `start`'s device; may be `start` itself.
            privacy: train by DP-SGD with this noise; None: plainly.

        Raises:
            TaskFailed: the model, the loss or another function of the problem raised.
        """
        rate = self.settings.learning_rate * self.settings.rate_scale(steps_before, steps)
        taken = self._steps if privacy is None else self._private_steps()

        def begun() -> Step:
            begin()
            return partial(self._step, taken)

        try:
            begin, draw = self._round(start, client, local_round, rate, privacy)
            take_steps(
                begun,
                draw,
                steps,
                seed=self.seed,
                client=client,
                local_round=local_round,
                sampling=self.settings.sampling,
                steps_before=steps_before,
                device=self.device,
            )
        except Exception as error:
            raise TaskFailed(
                f"client {client} failed in local round {local_round} ({steps} steps): "
                f"{told(error)}"
            ) from error
        finally:
            taken.end()
        there = start.trainable.device
        end = taken.model.collect().to(there)
        return change_or_model(payload, start, end, out=out or self.layout.empty(there))

    def _round(
        self,
        start: FlatState,
        client: int,
        local_round: int,
        rate: float,
        plan: "PrivacyPlan | None",
    ) -> tuple[Callable[[], None], Draw]:
        """How a round begins, and what it trains on."""
        samples = self.problem.clients[client]
        if plan is None:
            plain = partial(samples.batches, size=self.settings.batch_size)
            return partial(self._steps.begin, start, rate), plain
        from fedcompass.training.private_steps import (
            check_buffers,
            poisson_batches,
            simulated_draws,
        )

        taken, draws = self._private_steps(), simulated_draws(self.seed, client, local_round)

        def draw(_stream: RowStream, steps: int) -> Iterator[Any]:
            yield from poisson_batches(samples, plan.sample_rate, draws, steps)
            check_buffers(start, taken.model.collect())  # the last step is done

        return partial(taken.begin_private, start, rate, plan, draws), draw

    def _private_steps(self) -> "PrivateSteps":
        if self._private is None:
            from fedcompass.training.private_steps import PrivateSteps

            module = build_module(self.problem, self.seed)
            self._private = PrivateSteps(module, self.settings, self.problem.loss, self.device)
        return self._private

    def _step(
        self, taken: ModelSteps, batch: tuple[Inputs, Tensor], augmenting: torch.Generator
    ) -> None:
        problem, (inputs, targets) = self.problem, batch
        inputs = problem.prepared(inputs)
        if problem.augment is not None:
            inputs = problem.augment(inputs, augmenting)
        taken.step(inputs, targets)
