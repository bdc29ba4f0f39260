"""The words every package shares: who, when, how many, which version."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar, dataclass_transform

__all__ = [
    "DIRECT",
    "FEWEST_IN_A_SUM",
    "GENERAL",
    "BufferId",
    "ClientId",
    "GroupId",
    "ModelVersion",
    "Refusal",
    "Seconds",
    "Steps",
    "TaskId",
    "fact",
]

ClientId: TypeAlias = str
"""A client's name; in a simulation "0", "1", …"""

Seconds: TypeAlias = float
"""Time in seconds, or the unit a driver uses throughout (the paper's figures use minutes)."""

Steps: TypeAlias = int
"""Local training steps, one mini-batch each."""

ModelVersion: TypeAlias = int
"""How often the global model has changed; the paper's timestamp τ_g."""

TaskId: TypeAlias = int
"""One order to train; never reused in a run."""

GroupId: TypeAlias = int
"""An arrival group, numbered from 1 in the order of opening."""

BufferId: TypeAlias = int
"""Where updates are summed until a merge: a group's or tier's number, GENERAL or DIRECT."""

GENERAL: BufferId = 0
"""The buffer of no group: late updates in Compass, every update where there are no groups."""

DIRECT: BufferId = -1
"""Merged alone and as it is, without normalization, scaling or server optimizer.

Compass puts a client's first answer here and merges it at once.
"""

FEWEST_IN_A_SUM = 3
"""Clients in a sum that is opened: with two, each would learn the other's update from it."""


class Refusal(StrEnum):
    """Why an update was refused."""

    NOT_FINITE = "not-finite"
    WRONG_LAYOUT = "wrong-layout"
    NORM_TOO_LARGE = "norm-too-large"
    UNUSUAL_NORM = "unusual-norm"
    WRONG_BUFFERS = "wrong-buffers"
    TOO_LARGE = "too-large"
    WRONG_STEPS = "wrong-steps"
    WRONG_VERSION = "wrong-version"
    UNKNOWN_CLIENT = "unknown-client"
    UNEXPECTED_TASK = "unexpected-task"


_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def fact(cls: type[_T]) -> type[_T]:
    """Make a value class: keyword-only, slotted, compared by value, never changed after it is made.

    The type checker enforces that nothing assigns to a field. At run time the class is not frozen,
    because a frozen `__init__` is slower and a scheduler makes several of these per event.
    """
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)
