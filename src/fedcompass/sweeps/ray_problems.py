"""Problems on their way to other processes: what many of them share travels, and lies, once."""

import pickle
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import torch
from torch import Tensor

from fedcompass.training.problem import Problem

__all__ = ["PackedProblem", "ProblemReceiver", "ProblemSender"]


@dataclass(frozen=True, slots=True)
class PackedProblem:
    """A problem without the tensors it shares with others.

    content: the rest of it.
    shared: tickets for what is left out, in the order of their numbers in the content.
    """

    content: bytes
    shared: list[Any]


class ProblemSender:
    """Packs problems; tensors of samples, and what prepares them, are stored once for all.

    Args:
        store: puts an object where the receivers are, and gives a ticket for it. Tensors come to it
            as numpy arrays, which Ray lets all processes of a machine read in place.
    """

    def __init__(self, store: Callable[[Any], Any]) -> None:
        self._store = store
        self._stored: dict[int, tuple[Any, Any]] = {}  # by identity; the object keeps it taken

    def pack(self, problem: Problem) -> PackedProblem:
        """The problem, ready to travel."""
        apart = {id(thing): thing for thing in _shared_by_runs(problem)}
        numbers: dict[int, int] = {}
        buffer = BytesIO()

        class Pickler(pickle.Pickler):
            def persistent_id(self, thing: Any) -> int | None:
                if id(thing) not in apart:
                    return None
                return numbers.setdefault(id(thing), len(numbers))

        Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(problem)
        return PackedProblem(buffer.getvalue(), [self._ticket(apart[name]) for name in numbers])

    def _ticket(self, thing: Any) -> Any:
        if id(thing) not in self._stored:
            plain = thing.cpu().numpy() if isinstance(thing, Tensor) else thing
            self._stored[id(thing)] = thing, self._store(plain)
        return self._stored[id(thing)][1]


class ProblemReceiver:
    """Unpacks problems; those that shared a tensor share it again, so their runs can be stacked.

    Args:
        fetch: gives what a ticket stands for.
    """

    def __init__(self, fetch: Callable[[Any], Any]) -> None:
        self._fetch = fetch
        self._fetched: dict[Any, Any] = {}

    def unpack(self, packed: PackedProblem) -> Problem:
        """The problem as it was."""
        shared = [self._thing(ticket) for ticket in packed.shared]

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, number: Any) -> Any:
                return shared[number]

        problem: Problem = Unpickler(BytesIO(packed.content)).load()
        return problem

    def _thing(self, ticket: Any) -> Any:
        if ticket not in self._fetched:
            thing = self._fetch(ticket)
            self._fetched[ticket] = thing if not hasattr(thing, "__array__") else _tensor(thing)
        return self._fetched[ticket]


def _shared_by_runs(problem: Problem) -> Iterable[Any]:
    """What problems on the same dataset have in common, by identity."""
    for samples in (*problem.clients, problem.test, *(problem.client_tests or ())):
        yield from (
            samples.inputs.values() if isinstance(samples.inputs, Mapping) else [samples.inputs]
        )
        yield samples.targets
    if problem.transform is not None:
        yield problem.transform


def _tensor(array: Any) -> Tensor:
    with warnings.catch_warnings():
        # It lies in memory that many read and nobody writes.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)
