"""A client's local round: exactly so many steps from a start model, the same bits anywhere."""

from collections.abc import Iterable
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from fedcompass.aggregation.aggregator import Payload
from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.errors import SettingsError, TaskFailed
from fedcompass.settings import Settings
from fedcompass.training.bound import BoundModel, build_module
from fedcompass.training.problem import Problem, Samples
from fedcompass.training.streams import batch_indices, seeded, stream_key

__all__ = ["LocalSettings", "LocalTrainer"]

_STEPS_DRAWN_AT_ONCE = 256  # bounds the memory of drawn rows, whatever the length of the round


class LocalSettings(Settings):
    """How a client trains; the defaults are the paper's for MNIST (table of its appendix)."""

    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 0.003
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    batch_size: Annotated[int, Field(ge=1)] = 64
    rate_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor on the learning rate after every `rate_decay_steps` steps of a client; 1: none."""
    rate_decay_steps: Annotated[int, Field(ge=1)] = 200

    @model_validator(mode="after")
    def _momentum_is_for_sgd(self) -> Self:
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f"momentum is {self.momentum:g} but optimizer is {self.optimizer!r}; "
                "momentum belongs to 'sgd', leave it out"
            )
        return self

    def rate_scale(self, steps_before: int, steps: int) -> float:
        """What a task's learning rate is multiplied by, its own steps counted as done.

        That is how the paper's authors count: floor(all steps so far / Q_max) decays.
        """
        return float(self.rate_decay ** ((steps_before + steps) // self.rate_decay_steps))

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The PyTorch optimizer these settings describe.

        The fused kernels do a step in one pass: 1.4 ms instead of 4 ms for the MNIST CNN on one
        core, repeatable to the bit. PyTorch's default kernels round differently in the last bit.
        """
        rate, decay = self.learning_rate, self.weight_decay
        match self.optimizer:
            case "sgd":
                momentum = self.momentum
                return torch.optim.SGD(
                    parameters, lr=rate, momentum=momentum, weight_decay=decay, fused=True
                )
            case "adam":
                return torch.optim.Adam(parameters, lr=rate, weight_decay=decay, fused=True)
            case "adamw":
                return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)


class LocalTrainer:
    """Trains any client of a problem, one task after the other, in one reused module.

    A task's result depends on the start model, the seed, the client, the local round and the steps,
    and on nothing the trainer did before. On CPU it also depends on torch's number of threads,
    which is the caller's to set: the executors use one.
    """

    def __init__(
        self,
        problem: Problem,
        settings: LocalSettings,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.problem = problem.to(device)
        self.settings = settings
        self.seed = seed
        self.device = torch.device(device)
        self.model = BoundModel(build_module(problem, seed), device)
        trained = [p for p in self.model.module.parameters() if p.requires_grad]
        if not trained:
            raise SettingsError("the model has no parameter that trains; set requires_grad on some")
        self._optimizer = settings.build(trained)
        self._augmenting = torch.Generator(device)

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
    ) -> FlatState:
        """Carry out one local round and return what the client sends.

        Args:
            start: the model to start from; left unchanged unless it is also `out`.
            client: whose samples to train on.
            local_round: how many rounds this client has done before; selects the random stream.
            steps: how many batches, exactly.
            payload: what goes into the update's `trainable`; buffers travel as end values.
            steps_before: how many steps this client was given before; decays the learning rate.
            out: where to write the update, on `start`'s device; may be `start` itself.

        Raises:
            TaskFailed: the model, the loss or another function of the problem raised.
        """
        rate = self.settings.learning_rate * self.settings.rate_scale(steps_before, steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        try:
            self._run(start, client, local_round, steps)
        except Exception as error:
            raise TaskFailed(
                f"client {client} failed in local round {local_round} ({steps} steps): "
                f"{type(error).__name__}: {error}"
            ) from error
        finally:
            self._optimizer.zero_grad(set_to_none=True)
        return self._update(start, payload, out)

    def _run(self, start: FlatState, client: int, local_round: int, steps: int) -> None:
        if steps < 1:
            raise ValueError("a task has at least 1 step")
        samples = self.problem.clients[client]
        self.model.load(start)
        self.model.module.train()
        self._optimizer.state.clear()  # local optimizer state starts fresh in every local round
        task = (client, local_round)
        self._augmenting.manual_seed(stream_key(self.seed, "augment", *task))
        with seeded(stream_key(self.seed, "torch", *task), self.device):
            self._descend(samples, stream_key(self.seed, "batches", *task), steps)

    def _descend(self, samples: Samples, key: int, steps: int) -> None:
        for first in range(0, steps, _STEPS_DRAWN_AT_ONCE):
            drawn = batch_indices(
                key,
                first_step=first,
                steps=min(_STEPS_DRAWN_AT_ONCE, steps - first),
                batch_size=self.settings.batch_size,
                samples=len(samples),
                device=self.device,
            )
            for rows in drawn:
                self._step(*samples.batch(rows))

    def _step(self, inputs: Tensor, targets: Tensor) -> None:
        problem = self.problem
        inputs = problem.prepared(inputs)
        if problem.augment is not None:
            inputs = problem.augment(inputs, self._augmenting)
        self._optimizer.zero_grad(set_to_none=True)
        loss = problem.loss(self.model.module(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def _update(self, start: FlatState, payload: Payload, out: FlatState | None) -> FlatState:
        end = self.model.collect().to(start.trainable.device)
        if out is None:
            out = self.layout.empty(start.trainable.device)
        if payload == "delta":
            torch.sub(start.trainable, end.trainable, out=out.trainable)
        else:
            out.trainable.copy_(end.trainable)
        out.averaged.copy_(end.averaged)
        out.counted.copy_(end.counted)
        return out
