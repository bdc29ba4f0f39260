"""Orders to workers as short records of one length, so that any free worker can read the next."""

import json
import os
from collections.abc import Callable

from fedcompass.aggregation.layout import FlatState
from fedcompass.simulation.executors.protocol import EvalJob, Job, TrainJob

__all__ = ["RECORD_BYTES", "order_record", "read_order"]

RECORD_BYTES = 256  # below PIPE_BUF: the kernel writes and hands out such a record whole


def order_record(job: Job, start: int, out: int | None) -> bytes:
    """A job as a record; the slots of its model and of its update stand for both."""
    if isinstance(job, TrainJob):
        given = [job.local_round, job.steps, job.steps_before]
        fields: list[object] = [job.key, job.client, *given, job.payload]
    else:
        fields = [job.key, job.metrics, job.client_metrics]
    record = json.dumps([start, out, *fields], separators=(",", ":")).encode()
    if len(record) > RECORD_BYTES:
        raise ValueError(f"job {job.key} takes {len(record)} bytes; at most {RECORD_BYTES} fit")
    return record.ljust(RECORD_BYTES)


def read_order(descriptor: int, state: Callable[[int], FlatState]) -> tuple[Job, int | None] | None:
    """The next job and the slot for its update, waiting for one; None when no more will come.

    Several workers read one pipe. That is what balances the load: an order waits for the first
    worker that is free, not for a certain one.
    """
    record = os.read(descriptor, RECORD_BYTES)
    if not record:
        return None
    start, out, key, *fields = json.loads(record)
    if len(fields) == 2:
        metrics, client_metrics = map(tuple, fields)
        measured = EvalJob(
            key=key, state=state(start), metrics=metrics, client_metrics=client_metrics
        )
        return measured, out
    client, local_round, steps, steps_before, payload = fields
    trained = TrainJob(
        key=key,
        client=client,
        local_round=local_round,
        steps=steps,
        start=state(start),
        payload=payload,
        needed_at=0.0,  # the order of orders is settled when they are written
        steps_before=steps_before,
    )
    return trained, out
