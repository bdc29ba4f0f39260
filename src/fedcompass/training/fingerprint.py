"""Telling problems apart: what one is in words, and a fingerprint of its model and samples."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedcompass.aggregation.layout import Layout, frozen_of
from fedcompass.training.problem import Items, Problem, Samples

__all__ = ["Fingerprint", "fingerprint_of"]

_LOOKED_AT = 1 << 20  # bytes of a tensor, in evenly spaced rows: enough to tell data apart


_ITEMS_LOOKED_AT = 1000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object without a text of its own


class Fingerprint(NamedTuple):
    """What a problem is, for people, and a hash that differs where a run on it would."""

    words: str
    digest: str


def fingerprint_of(problem: Problem, module: nn.Module) -> Fingerprint:
    """A problem's fingerprint; it takes milliseconds, however large the data are.

    The model counts by its tensors' names and shapes, a frozen parameter by its values, functions
    by their names.
    """
    layout = Layout.of(module)
    numbers = sum(prod(spec.shape) for spec in layout.specs if spec.segment == "trainable")
    samples = sum(map(len, problem.clients))
    words = (
        f"a model of {numbers:,} parameters, {samples:,} samples of {len(problem.clients)} "
        f"clients, {len(problem.test):,} for testing"
    )
    digest = hashlib.sha256()
    for part in _parts(problem, layout):
        digest.update(part)
    for tensor in frozen_of(module).values():
        for part in _rows(tensor):
            digest.update(part)
    return Fingerprint(words, digest.hexdigest()[:16])


def _parts(problem: Problem, layout: Layout) -> Iterator[bytes]:
    functions = (problem.loss, problem.transform, problem.augment)
    yield repr([_name(function) for function in functions]).encode()
    yield repr([str(spec) for spec in layout.specs]).encode()
    seen: dict[int, int] = {}  # tensors that clients share are looked at once
    for samples in (*problem.clients, problem.test, *(problem.client_tests or ())):
        if isinstance(samples.inputs, Items) and id(samples.inputs) not in seen:
            seen[id(samples.inputs)] = len(seen)
            yield from _some(samples.inputs)
        for tensor in _tensors(samples):
            if id(tensor) not in seen:
                seen[id(tensor)] = len(seen)
                yield from _rows(tensor)
            yield b"%d;" % seen[id(tensor)]


def _tensors(samples: Samples) -> list[Tensor]:
    inputs = samples.inputs
    stored = [*inputs.values()] if isinstance(inputs, Mapping) else [inputs]
    given = [part for part in (*stored, samples.targets) if isinstance(part, Tensor)]
    return given if samples.indices is None else [*given, samples.indices]


def _some(stored: Items) -> Iterator[bytes]:
    """A few items of a list, evenly spaced; of what may read or draw them only their number."""
    every = 1 + len(stored) // _ITEMS_LOOKED_AT
    yield f"{len(stored)} {_name(stored.collate)}".encode()
    if isinstance(stored.items, (list, tuple)):
        texts = (repr(stored.items[row]) for row in range(0, len(stored), every))
        yield from (_ADDRESS.sub("", text).encode() for text in texts)


def _rows(tensor: Tensor) -> Iterator[bytes]:
    yield f"{tensor.dtype} {list(tensor.shape)}".encode()
    if tensor.numel():
        every = 1 + tensor.nbytes // _LOOKED_AT
        rows = tensor.detach()[::every].contiguous().cpu()
        yield rows.reshape(-1).view(torch.uint8).numpy().tobytes()


def _name(function: Callable[..., Any] | None) -> str:
    if isinstance(function, partial):
        return f"partial {_name(function.func)}"
    return getattr(function, "__qualname__", type(function).__qualname__)
