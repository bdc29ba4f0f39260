"""A client's local round: exactly so many steps from a start model, the same bits anywhere."""

import torch

from fedcompass.aggregation.layout import FlatState, Layout
from fedcompass.error_text import told
from fedcompass.errors import TaskFailed
from fedcompass.settings.aggregation import Payload
from fedcompass.settings.training import LocalSettings
from fedcompass.training.bound import BoundModel, build_module
from fedcompass.training.graphed_steps import GraphedSteps
from fedcompass.training.model_steps import ModelSteps
from fedcompass.training.problem import Problem, Samples
from fedcompass.training.streams import batch_indices, seeded, stream_key

__all__ = ["LocalTrainer", "model_steps"]

_STEPS_DRAWN_AT_ONCE = 256  # bounds the memory of drawn rows, whatever the length of the round


def model_steps(
    problem: Problem, settings: LocalSettings, seed: int, device: torch.device | str
) -> ModelSteps:
    """What takes the steps of a problem's clients on a device."""
    device = torch.device(device)
    made = GraphedSteps if device.type == "cuda" else ModelSteps
    return made(build_module(problem, seed), settings, problem.loss, device)


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
        self._augmenting = torch.Generator(device)

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
        try:
            self._run(start, client, local_round, steps, rate)
        except Exception as error:
            raise TaskFailed(
                f"client {client} failed in local round {local_round} ({steps} steps): "
                f"{told(error)}"
            ) from error
        finally:
            self._steps.end()
        return self._update(start, payload, out)

    def _run(
        self, start: FlatState, client: int, local_round: int, steps: int, rate: float
    ) -> None:
        if steps < 1:
            raise ValueError("a task has at least 1 step")
        samples = self.problem.clients[client]
        self._steps.begin(start, rate)
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

    def _step(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        problem = self.problem
        inputs = problem.prepared(inputs)
        if problem.augment is not None:
            inputs = problem.augment(inputs, self._augmenting)
        self._steps.step(inputs, targets)

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
