"""ClientApps of sites that mean no good, run by real SuperNodes; no torch, and no training."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

Arrays: TypeAlias = "dict[str, np.ndarray[tuple[int, ...], np.dtype[Any]]]"
Spoil: TypeAlias = Callable[[Arrays], None]


def _app(spoil: Spoil, *, claimed_task: int = 0) -> ClientApp:
    """A site that answers every task at once, with what `spoil` makes of its start model.

    Args:
        spoil: changes the arrays.
        claimed_task: added to the task's number in the answer.
    """
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(RecordDict({"config": ConfigRecord({"samples": 40})}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        config, record = message.content["config"], message.content["arrays"]
        assert isinstance(config, ConfigRecord)
        assert isinstance(record, ArrayRecord)
        arrays = {name: array.numpy().copy() for name, array in record.items()}
        spoil(arrays)
        task = config["task"]
        assert isinstance(task, int)
        steps = config["steps"]
        assert isinstance(steps, int)
        content = RecordDict(
            {
                "arrays": ArrayRecord({name: Array(array) for name, array in arrays.items()}),
                "metrics": MetricRecord({"steps_done": steps, "seconds": 0.1}),
                "config": ConfigRecord({"task": task + claimed_task}),
            }
        )
        return Message(content, reply_to=message)

    return app


def _nan(arrays: Arrays) -> None:
    arrays["0.weight"][0, 0] = np.nan


def _wrong_shapes(arrays: Arrays) -> None:
    arrays["0.weight"] = arrays["0.weight"].T.copy()


def _too_many_bytes(arrays: Arrays) -> None:
    for name, array in arrays.items():
        arrays[name] = np.concatenate([np.atleast_1d(array)] * 10)


def _nothing(_: Arrays) -> None: ...


nan = _app(_nan)
wrong_shapes = _app(_wrong_shapes)
too_many_bytes = _app(_too_many_bytes)
another_task = _app(_nothing, claimed_task=1)
