"""Weighted sums of updates: every strategy but FedAT (Algorithm 1's GroupAggregate)."""

from collections.abc import Sequence
from typing import assert_never

import torch

from fedcompass.aggregation import server_optimizers
from fedcompass.aggregation.aggregator import AggregatorState, check_sections
from fedcompass.aggregation.buffers import Buffer, Buffers, Contribution, Totals
from fedcompass.aggregation.layout import FlatState
from fedcompass.aggregation.saved_tensors import (
    named_state,
    named_tensors,
    restored_state,
    restored_tensors,
)
from fedcompass.aggregation.staleness import staleness_factor
from fedcompass.settings.aggregation import AggregationSettings, Payload
from fedcompass.vocabulary import DIRECT, BufferId

__all__ = ["WeightedSum"]


class WeightedSum:
    """The global model moves by the scaled sum of the weighted updates in the merged buffers."""

    def __init__(self, model: FlatState, settings: AggregationSettings) -> None:
        self.model = model
        self.payload: Payload = settings.payload
        self._settings = settings
        self._optimizer = server_optimizers.build(settings.server)
        self._buffers = Buffers(model)

    def fold(self, buffer: BufferId, update: FlatState, contribution: Contribution) -> float:
        """Add an update to a buffer and return its weight (before division by its steps)."""
        step_weight, weight = self.weights(buffer, contribution)
        self._buffers.fold(buffer, update, contribution, weight=weight, step_weight=step_weight)
        return weight

    def weights(self, buffer: BufferId, contribution: Contribution) -> tuple[float, float]:
        """What the trainable and the averaged part of an update count for in a buffer."""
        weight = self._weight(contribution)
        normalized = self._settings.normalized and buffer != DIRECT
        return weight / contribution.steps if normalized else weight, weight

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
        """
        direct = DIRECT in buffers
        if direct and len(buffers) > 1:
            raise ValueError(f"buffers are {buffers}; allowed: {DIRECT} alone, or others")
        merged = self._buffers.take(buffers)
        divisor = 1.0 if direct else self._divisor(merged.totals)
        self._merge_model_buffers(merged, divisor)
        self._form_step(merged, self._effective_steps(merged.totals, direct) / divisor)
        if direct:
            self.model.trainable.sub_(merged.sums.trainable)
        else:
            slower = self._rate_factor(merged.totals)
            self._optimizer.apply(self.model.trainable, merged.sums.trainable, rate_factor=slower)
        self._buffers.recycle(merged)

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
        """Move BatchNorm statistics towards their weighted mean, by at most all the way.

        b = (1-s) b + s Σ weight b_i / Σ weight with s = min(1, Σ weight / divisor): a mean of
        non-negative values, so a variance stays one whatever the server optimizer does.
        """
        weight_sum = merged.totals.weight_sum
        divisor = max(divisor, weight_sum)  # so that s = weight_sum / divisor is at most 1
        averaged, counted = self.model.averaged, self.model.counted
        averaged.mul_(1.0 - weight_sum / divisor).add_(merged.sums.averaged, alpha=1.0 / divisor)
        torch.maximum(counted, merged.sums.counted, out=counted)

    def state(self) -> AggregatorState:
        """The model, the open buffers and the optimizer's state."""
        tensors = named_state("model", self.model) | self._buffers.tensors()
        tensors |= named_tensors("server", self._optimizer.state())
        return AggregatorState(tensors, {"buffers": self._buffers.facts()})

    def restore(self, state: AggregatorState) -> None:
        """Continue from a checkpoint, bit-equal to never having stopped.

        Raises:
            CheckpointError: it does not fit; nothing was changed.
        """
        check_sections(state.facts, "buffers")
        model = restored_state(state.tensors, "model", self.model)
        buffers = Buffers.restored(self.model, state.tensors, state.facts["buffers"])
        # The optimizer checks before it changes, and nothing after it can fail.
        self._optimizer.restore(restored_tensors(state.tensors, "server", model.trainable))
        self.model.copy_(model)
        self._buffers = buffers
