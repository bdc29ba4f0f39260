"""FedAT: a model for each tier, and a global model that weighs rarely updated tiers more."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcompass.aggregation import server_optimizers
from fedcompass.aggregation.aggregator import AggregatorState, check_finite, check_sections
from fedcompass.aggregation.buffers import Buffer, Buffers, Contribution
from fedcompass.aggregation.layout import FlatState
from fedcompass.aggregation.saved_tensors import (
    named_state,
    named_tensors,
    restored_state,
    restored_tensor,
    restored_tensors,
)
from fedcompass.errors import CheckpointError
from fedcompass.settings.aggregation import Payload, TierSettings
from fedcompass.vocabulary import DIRECT, GENERAL, BufferId

__all__ = ["TierAverage"]


@dataclass(slots=True)
class _Tier:
    """A tier that has finished a round: its latest mean, of whose share of the samples, and T_m."""

    trainable: Tensor
    averaged: Tensor
    share: float
    rounds: int


class TierAverage:
    """The global model is the cross-tier weighted mean of the tiers' models.

    A buffer's id is its tier's number, 1 being the fastest; the round that all clients share
    before there are tiers has the general buffer. Tier m weighs T_{M+1-m} / T; tiers that have not
    finished yet are left out before the mirroring, so that the weights always sum to 1.

    Where the fastest tier is far ahead nearly all weight, T_1 / T, is on the slowest, whatever its
    samples. If that is a single client, the global model is little more than that client's.
    """

    payload: Payload = "model"  # clients send their end models

    def __init__(self, model: FlatState, settings: TierSettings | None = None) -> None:
        settings = settings or TierSettings()
        server = settings.server
        self.model = model
        self._mirrors = settings.tier_weights == "mirrored"
        self._optimizer = server_optimizers.build(server)
        # The plain optimizer moves exactly to the target: written there without rounding.
        self._moves_to_target = server.optimizer == "plain" and server.learning_rate == 1.0
        self._buffers = Buffers(model)
        self._tiers: dict[int, _Tier] = {}

    def fold(self, buffer: BufferId, update: FlatState, contribution: Contribution) -> float:
        """Add an end model to its tier's sum, weighted with its share of the samples."""
        share = contribution.share
        self._buffers.fold(
            buffer, update, contribution, weight=share, step_weight=share, averaged_weight=share
        )
        return share

    def commit(self, buffers: Sequence[BufferId]) -> None:
        """Finish one tier's round, or the common first round (the general buffer).

        Raises:
            ValueError: not exactly one buffer, the direct one, or an empty one.
            MergeNotFinite: the round's mean is not finite; only its buffer was emptied.
        """
        if len(buffers) != 1 or DIRECT in buffers:
            raise ValueError(f"FedAT commits one tier at a time, not the buffers {buffers}")
        merged = self._buffers.take(buffers)
        mean = _mean(merged)
        check_finite(mean, lambda: mean.trainable)
        torch.maximum(self.model.counted, mean.counted, out=self.model.counted)
        if buffers[0] == GENERAL:
            self.model.trainable.copy_(mean.trainable)
            self.model.averaged.copy_(mean.averaged)
            return
        number, share = buffers[0], merged.totals.share_sum
        rounds = self._tiers[number].rounds + 1 if number in self._tiers else 1
        self._tiers[number] = _Tier(mean.trainable, mean.averaged, share, rounds)
        self._move_to_tiers()

    def _move_to_tiers(self) -> None:
        tiers = [self._tiers[number] for number in sorted(self._tiers)]
        if self._mirrors:
            total = sum(tier.rounds for tier in tiers)
            weights = [tier.rounds / total for tier in reversed(tiers)]  # T_{M+1-m} / T
        else:
            samples = sum(tier.share for tier in tiers)
            weights = [tier.share / samples for tier in tiers]
        _blend([tier.averaged for tier in tiers], weights, out=self.model.averaged)
        trainables = [tier.trainable for tier in tiers]
        if self._moves_to_target:
            _blend(trainables, weights, out=self.model.trainable)
            return
        step = torch.empty_like(self.model.trainable)
        _blend(trainables, weights, out=step)
        step.neg_().add_(self.model.trainable)  # from where it is to where it should be
        self._optimizer.apply(self.model.trainable, step)

    def state(self) -> AggregatorState:
        """The model, the tiers, the open buffers and the optimizer's state."""
        tensors = named_state("model", self.model) | self._buffers.tensors()
        tensors |= named_tensors("server", self._optimizer.state())
        for number, tier in self._tiers.items():
            vectors = {"trainable": tier.trainable, "averaged": tier.averaged}
            tensors |= named_tensors(f"tier.{number}", vectors)
        tiers = {
            str(number): {"rounds": float(tier.rounds), "share": tier.share}
            for number, tier in self._tiers.items()
        }
        return AggregatorState(tensors, {"buffers": self._buffers.facts(), "tiers": tiers})

    def restore(self, state: AggregatorState) -> None:
        """Continue from a checkpoint, bit-equal to never having stopped.

        Raises:
            CheckpointError: it does not fit; nothing was changed.
        """
        check_sections(state.facts, "buffers", "tiers")
        model = restored_state(state.tensors, "model", self.model)
        tiers = {int(m): _restored_tier(state, m, model) for m in state.facts["tiers"]}
        buffers = Buffers.restored(self.model, state.tensors, state.facts["buffers"])
        # The optimizer checks before it changes, and nothing after it can fail.
        self._optimizer.restore(restored_tensors(state.tensors, "server", model.trainable))
        self.model.copy_(model)
        self._buffers, self._tiers = buffers, tiers


def _restored_tier(state: AggregatorState, number: str, like: FlatState) -> _Tier:
    facts = state.facts["tiers"][number]
    if not {"rounds", "share"} <= facts.keys():
        raise CheckpointError(f"the checkpoint's tier {number} is incomplete; use another one")
    return _Tier(
        trainable=restored_tensor(state.tensors, f"tier.{number}.trainable", like.trainable),
        averaged=restored_tensor(state.tensors, f"tier.{number}.averaged", like.averaged),
        share=facts["share"],
        rounds=int(facts["rounds"]),
    )


def _mean(buffer: Buffer) -> FlatState:
    """A buffer's mean by shares, in the buffer's own memory."""
    buffer.sums.trainable.div_(buffer.totals.share_sum)
    buffer.sums.averaged.div_(buffer.totals.share_sum)
    return buffer.sums


def _blend(vectors: list[Tensor], weights: list[float], *, out: Tensor) -> None:
    """Write the weighted sum of the vectors into `out`."""
    torch.mul(vectors[0], weights[0], out=out)
    for vector, weight in zip(vectors[1:], weights[1:], strict=True):
        out.add_(vector, alpha=weight)
