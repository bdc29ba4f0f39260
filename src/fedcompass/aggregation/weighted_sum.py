"""Weighted sums of updates: every strategy but FedAT (Algorithm 1's GroupAggregate)."""

from collections.abc import Sequence
from functools import partial
from typing import assert_never

import torch
from torch import Tensor

from fedcompass.aggregation import server_optimizers
from fedcompass.aggregation.aggregator import AggregatorState, check_finite, check_sections
from fedcompass.aggregation.buffers import Buffer, Buffers, Contribution, Totals
from fedcompass.aggregation.layout import FlatState
from fedcompass.aggregation.saved_tensors import (
    named_state,
    named_tensors,
    restored_state,
    restored_tensor,
    restored_tensors,
)
from fedcompass.aggregation.staleness import staleness_factor
from fedcompass.settings.aggregation import AggregationSettings, Payload
from fedcompass.vocabulary import DIRECT, BufferId

__all__ = ["WeightedSum"]

_INFORMED = "model_buffers.informed"


class WeightedSum:
    """The global model moves by the scaled sum of the weighted updates in the merged buffers."""

    def __init__(self, model: FlatState, settings: AggregationSettings) -> None:
        self.model = model
        self.payload: Payload = settings.payload
        self._settings = settings
        self._optimizer = server_optimizers.build(settings.server)
        self._buffers = Buffers(model)
        # c, how much of the model buffers is information: 0 where no batch has been counted yet, as
        # in a fresh network; pretrained ones, and what has no counters, are taken as they are.
        is_fresh = model.counted.numel() > 0 and not model.counted.any()
        self._informed = 0.0 if is_fresh else 1.0

    def fold(self, buffer: BufferId, update: FlatState, contribution: Contribution) -> float:
        """Add an update to a buffer and return its weight (before division by its steps)."""
        weight = self._weight(contribution)
        step_weight, averaged_weight = self.weights(buffer, contribution)
        self._buffers.fold(
            buffer,
            update,
            contribution,
            weight=weight,
            step_weight=step_weight,
            averaged_weight=averaged_weight,
        )
        return weight

    def weights(self, buffer: BufferId, contribution: Contribution) -> tuple[float, float]:
        """What the trainable and the averaged part of an update count for in a buffer."""
        weight = self._weight(contribution)
        normalized = self._settings.normalized and buffer != DIRECT
        replaces = self._settings.model_buffers == "replace"
        return weight / contribution.steps if normalized else weight, 1.0 if replaces else weight

    def put(self, buffer: BufferId, sums: FlatState, contributions: Sequence[Contribution]) -> None:
        """Fill an empty buffer with the weighted sum of updates that nobody has seen."""
        totals = Totals()
        for contribution in contributions:
            totals.add(contribution, self._weight(contribution))
        self._buffers.put(buffer, Buffer(sums, totals))

    def _weight(self, contribution: Contribution) -> float:
        match self._settings.weighting:
            case "share":
                return contribution.share
            case "staleness":
                return staleness_factor(self._settings.staleness, contribution.staleness)
            case "staleness-share":
                factor = staleness_factor(self._settings.staleness, contribution.staleness)
                return factor * contribution.share
            case _:
                assert_never(self._settings.weighting)

    def commit(self, buffers: Sequence[BufferId]) -> None:
        """Merge these buffers into the model and empty them.

        Raises:
            ValueError: none of them holds anything, or the direct one is not alone; nothing was
                changed.
            MergeNotFinite: the model would not be finite; only the buffers were emptied.
        """
        direct = DIRECT in buffers
        if direct and len(buffers) > 1:
            raise ValueError(f"buffers are {buffers}; allowed: {DIRECT} alone, or others")
        merged = self._buffers.take(buffers)
        divisor = 1.0 if direct else self._divisor(merged.totals)
        self._form_step(merged, self._effective_steps(merged.totals, direct) / divisor)
        check_finite(merged.sums, partial(self._moved, merged.sums.trainable, direct))
        self._merge_model_buffers(merged, divisor)
        if direct:
            self.model.trainable.sub_(merged.sums.trainable)
        else:
            slower = self._rate_factor(merged.totals)
            self._optimizer.apply(self.model.trainable, merged.sums.trainable, rate_factor=slower)
        self._buffers.recycle(merged)

    def _moved(self, step: Tensor, direct: bool) -> Tensor:
        """Where a step whose square overflows would lead; other optimizers keep its square."""
        server = self._settings.server
        if not direct and server.optimizer != "plain":
            return step.square()
        return self.model.trainable - step * (1.0 if direct else server.learning_rate)

    def _rate_factor(self, totals: Totals) -> float:
        """1, or one over the greatest staleness where that is above FADAS's limit."""
        limit = self._settings.server.delay_limit
        if limit is None or totals.max_staleness <= limit:
            return 1.0
        return 1.0 / totals.max_staleness

    def _divisor(self, totals: Totals) -> float:
        match self._settings.scale:
            case "none":
                return 1.0
            case "mean-share":
                return totals.share_sum
            case "mean-count":
                return float(totals.count)
            case _:
                assert_never(self._settings.scale)

    def _effective_steps(self, totals: Totals, direct: bool) -> float:
        """The factor τ_eff = Σ p_i Q_i / Σ p_i of normalized averaging; otherwise 1."""
        if self._settings.normalized and not direct:
            return totals.share_steps_sum / totals.share_sum
        return 1.0

    def _form_step(self, merged: Buffer, factor: float) -> None:
        """Turn the sum into the step, in the same memory: what w has to move against.

        End models give (1-s) w + factor Σ weight w_i with s = factor Σ weight.
        """
        step = merged.sums.trainable
        if self._settings.payload == "model":
            step.mul_(-factor).add_(self.model.trainable, alpha=factor * merged.totals.weight_sum)
        elif factor != 1.0:
            step.mul_(factor)

    def _merge_model_buffers(self, merged: Buffer, divisor: float) -> None:
        """Move BatchNorm statistics towards the merged ones, by at most all the way.

        moving: b = (1-s) b + s mean, with mean = Σ weight b_i / Σ weight and
        s = min(1, Σ weight / divisor). Means of non-negative values: a variance stays one whatever
        the server optimizer does.

        corrected: the statistics of a fresh network (mean 0, variance 1) are no information, but
        with a small s they would stay in b for many merges. As with Adam's moments, what they still
        count for is divided out: c = (1-s) c + s, g = s / c, b = (1-g) b + g mean. The first merge
        replaces, later ones smooth; with s = 1 or c = 1 it is `moving`, bit for bit.

        replace: the plain mean of the merged contributions, as the paper's authors' code.
        """
        averaged, sums, totals = self.model.averaged, merged.sums, merged.totals
        torch.maximum(self.model.counted, sums.counted, out=self.model.counted)
        if self._settings.model_buffers == "replace":
            torch.div(sums.averaged, totals.count, out=averaged)
            return
        divisor = max(divisor, totals.weight_sum)  # so that s = weight_sum / divisor is at most 1
        if self._settings.model_buffers == "corrected" and totals.weight_sum > 0:
            self._informed += totals.weight_sum / divisor * (1.0 - self._informed)
            # g = weight_sum / (divisor c); rounding must not make it more than 1.
            divisor = max(divisor * self._informed, totals.weight_sum)
        averaged.mul_(1.0 - totals.weight_sum / divisor).add_(sums.averaged, alpha=1.0 / divisor)

    def state(self) -> AggregatorState:
        """The model, the open buffers, c of the model buffers and the optimizer's state."""
        tensors = named_state("model", self.model) | self._buffers.tensors()
        tensors |= named_tensors("server", self._optimizer.state())
        tensors[_INFORMED] = torch.tensor(self._informed, dtype=torch.float64)
        return AggregatorState(tensors, {"buffers": self._buffers.facts()})

    def restore(self, state: AggregatorState) -> None:
        """Continue from a checkpoint, bit-equal to never having stopped.

        Raises:
            CheckpointError: it does not fit; nothing was changed.
        """
        check_sections(state.facts, "buffers")
        model = restored_state(state.tensors, "model", self.model)
        buffers = Buffers.restored(self.model, state.tensors, state.facts["buffers"])
        informed = restored_tensor(
            state.tensors, _INFORMED, torch.tensor(self._informed, dtype=torch.float64)
        )
        # The optimizer checks before it changes, and nothing after it can fail.
        self._optimizer.restore(restored_tensors(state.tensors, "server", model.trainable))
        self.model.copy_(model)
        self._buffers, self._informed = buffers, informed.item()
