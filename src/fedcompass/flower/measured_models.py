"""How merged models are measured: by the clients, or by a function of the project."""

from collections.abc import Callable, Iterable
from concurrent.futures import wait
from threading import Event
from typing import Any

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fedcompass.aggregation import FlatState, Layout
from fedcompass.deployment.server.background_evaluation import Evaluate
from fedcompass.errors import AppError
from fedcompass.flower.background import in_background
from fedcompass.flower.records import content_of, facts_of, record_of
from fedcompass.vocabulary import ModelVersion, Seconds

__all__ = ["by_clients", "by_function", "weighted_mean"]

_WEIGHT = "num-examples"
_LOOK: Seconds = 0.2  # how often to look whether the run was stopped


def by_clients(grid: Grid, layout: Layout, timeout: Seconds, stopped: Event) -> Evaluate:
    """Each connected client's `@app.evaluate`; a measure is the mean, weighted by `num-examples`.

    Who has not answered after `timeout` does not count; once `stopped`, nobody is waited for.
    """

    def evaluate(version: ModelVersion, model: FlatState) -> dict[str, float]:
        arrays = record_of(layout, model)
        messages = [
            Message(
                content_of({"server-round": version}, arrays),
                dst_node_id=node,
                message_type=MessageType.EVALUATE,
                ttl=timeout,
            )
            for node in grid.get_node_ids()
        ]
        asked = in_background(lambda: list(grid.send_and_receive(messages, timeout=timeout)))
        while not stopped.is_set():
            if wait([asked], timeout=_LOOK).done:
                return weighted_mean(asked.result())
        raise AppError("the run was stopped")

    return evaluate


def by_function(function: Callable[[int, Any], Any], layout: Layout) -> Evaluate:
    """A project's own (server_round, arrays) -> MetricRecord, as Flower's strategies take it."""

    def evaluate(version: ModelVersion, model: FlatState) -> dict[str, float]:
        found = function(version, record_of(layout, model))
        return {key: float(value) for key, value in (found or {}).items()}

    return evaluate


def weighted_mean(replies: Iterable[Message]) -> dict[str, float]:
    """The clients' metrics as one.

    Raises:
        AppError: nobody measured anything; says what one of them answered.
    """
    sums: dict[str, tuple[float, float]] = {}  # weighted sum, sum of weights
    errors = []
    for reply in replies:
        if reply.has_error():
            errors.append(reply.error.reason)
            continue
        facts = facts_of(reply.content)
        weight = float(facts.pop(_WEIGHT, 1.0))
        for key, value in facts.items():
            if not isinstance(value, str):
                total, weights = sums.get(key, (0.0, 0.0))
                sums[key] = (total + weight * value, weights + weight)
    if not sums:
        raise AppError(f"no client measured the model: {errors[0] if errors else 'none answered'}")
    return {key: total / weights for key, (total, weights) in sums.items() if weights > 0}
