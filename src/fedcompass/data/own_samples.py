"""A user's own samples, however they come, as `Samples`: arrays, tensors, datasets, texts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

from fedcompass.errors import DataError
from fedcompass.own_code import described
from fedcompass.training.problem import Collate, Inputs, Items, Samples

__all__ = ["ONE_DATASET", "samples_from", "sized"]

ONE_DATASET = (
    "(inputs, targets) as tensors or numpy arrays, a torch Dataset, a Hugging Face dataset or "
    "fedcompass.Samples"
)
"""What can be one set of samples."""

_TARGETS = ("label", "labels", "target", "targets")  # columns that are not inputs
_READ_AT_ONCE = 4096


def samples_from(given: Any, where: str, collate: Collate | None = None) -> Samples:
    """The samples that a user gave.

    Args:
        given: one of `ONE_DATASET`.
        where: for messages, such as "data 'mine.py:digits', train".
        collate: makes a batch of single items, where they differ in size.

    Raises:
        DataError: saying what it is and what is accepted.
    """
    if isinstance(given, Samples):
        return given
    if isinstance(given, TensorDataset) and collate is None:
        given = given.tensors  # a tuple
    if isinstance(given, tuple):
        return _from_pair(given, where, collate)
    if isinstance(given, DataLoader):
        raise DataError(f"{where} is a DataLoader; give its dataset: batches are drawn here")
    if _is_table(given):
        return _from_table(given, where, collate)
    if isinstance(given, Mapping) or not _is_list(given):
        raise DataError(f"{where} is {described(given)}; allowed: {ONE_DATASET}")
    return _from_items(given, where, collate)


def _is_list(given: Any) -> bool:
    return hasattr(given, "__getitem__") and hasattr(given, "__len__") and not _is_array(given)


def _is_array(given: Any) -> bool:
    return isinstance(given, (Tensor, np.ndarray, str, bytes)) or hasattr(given, "iloc")


def _is_table(given: Any) -> bool:
    """Whether it is a Hugging Face dataset: rows as dicts, and columns with names."""
    return hasattr(given, "column_names") and hasattr(given, "features") and _is_list(given)


def _from_pair(given: tuple[Any, ...], where: str, collate: Collate | None) -> Samples:
    if len(given) != 2:
        raise DataError(
            f"{where} is {sized(given)}; allowed: a pair (inputs, targets); several inputs go "
            "into a dict of tensors: ({'a': ..., 'b': ...}, targets)"
        )
    inputs, targets = given
    _check_lengths(inputs, targets, where)
    if collate is not None:
        items = list(zip(inputs, targets, strict=True))
        return Samples(Items(items, collate), _stored_targets(targets))
    if isinstance(inputs, Mapping):
        named = {str(key): _tensor(value, f"{where}, {key!r}") for key, value in inputs.items()}
        return Samples(named, _targets(targets, where))
    return Samples(_tensor(inputs, f"{where}, inputs"), _targets(targets, where))


def _check_lengths(inputs: Any, targets: Any, where: str) -> None:
    named = inputs if isinstance(inputs, Mapping) else {"": inputs}
    for name, part in named.items():
        if not (hasattr(part, "__len__") and hasattr(targets, "__len__")):
            continue  # said by name later
        if getattr(part, "ndim", 1) and getattr(targets, "ndim", 1) and len(part) != len(targets):
            of = f" {name!r}" if name else ""
            raise DataError(
                f"{where} has {len(part)} inputs{of} and {len(targets)} targets; give one target "
                "for each input, in the same order"
            )


def sized(given: Any) -> str:
    """What somebody gave, with how many things are in it if it is a tuple or list."""
    is_several = isinstance(given, (tuple, list))
    return f"{described(given)} of {len(given)}" if is_several else described(given)


def _from_table(given: Any, where: str, collate: Collate | None) -> Samples:
    if collate is not None:
        return _from_items(given, where, collate)
    columns = list(given.column_names)
    wanted = [name for name in _TARGETS if name in columns]
    if not wanted:
        raise DataError(
            f"{where} has the columns {', '.join(columns)}; one of them must be called "
            f"{', '.join(_TARGETS)} (rename_column), or give a collate function"
        )
    named = {
        name: _tensor(list(given[name]), f"{where}, column {name!r}")
        for name in columns
        if name != wanted[0]
    }
    inputs: Inputs = next(iter(named.values())) if len(named) == 1 else named
    return Samples(inputs, _targets(list(given[wanted[0]]), where))


def _from_items(given: Sequence[Any], where: str, collate: Collate | None) -> Samples:
    if len(given) == 0:
        raise DataError(f"{where} has no samples; give it some")
    if collate is not None:
        return Samples(Items(given, collate), _stored_targets([_label(item) for item in given]))
    try:
        made = _collated(given)
    except (TypeError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise DataError(
            f"{where}: its items do not make one tensor ({reason}); make them tensors of one size, "
            "or give a collate function"
        ) from error
    if isinstance(made, Mapping):
        return _from_columns(made, where)
    if not isinstance(made, (list, tuple)) or len(made) != 2:
        raise DataError(
            f"{where}: an item of it is {sized(given[0])}; allowed: a pair (input, target), or "
            f"a dict with one of {', '.join(_TARGETS)}; of other items make pairs by a collate "
            "function"
        )
    return _from_pair(tuple(made), where, None)


def _collated(given: Sequence[Any]) -> Any:
    """All items as one batch, made of batches: half of the memory that all items at once take."""
    firsts = range(0, len(given), _READ_AT_ONCE)
    ends = [*firsts[1:], len(given)]
    pieces = [
        default_collate([given[row] for row in range(first, end)])
        for first, end in zip(firsts, ends, strict=True)
    ]
    first = pieces[0]
    if isinstance(first, Mapping):
        return {key: torch.cat([piece[key] for piece in pieces]) for key in first}
    if isinstance(first, (list, tuple)):
        return [torch.cat([piece[part] for piece in pieces]) for part in range(len(first))]
    return torch.cat(pieces)


def _from_columns(columns: Mapping[str, Tensor], where: str) -> Samples:
    wanted = [name for name in _TARGETS if name in columns]
    if not wanted:
        raise DataError(
            f"{where}: an item of it is a dict with {', '.join(columns)}; one of its keys must be "
            f"{', '.join(_TARGETS)}, or give a collate function"
        )
    inputs = {name: tensor for name, tensor in columns.items() if name != wanted[0]}
    return _from_pair((inputs, columns[wanted[0]]), where, None)


def _label(item: Any) -> Any:
    """An item's target, where it can be told."""
    if isinstance(item, Mapping):
        return next((item[name] for name in _TARGETS if name in item), None)
    return item[1] if isinstance(item, (list, tuple)) and len(item) == 2 else None


def _stored_targets(labels: Any) -> Tensor:
    """For splitting by class; numbers without meaning where the samples have no class each."""
    try:
        stored = torch.as_tensor(np.asarray(labels))
        if stored.ndim == 1 and not stored.dtype.is_floating_point:
            return stored.long()
    except (TypeError, ValueError, RuntimeError):
        pass
    return torch.zeros(len(labels))


def _targets(given: Any, where: str) -> Tensor:
    made = _tensor(given, f"{where}, targets")
    whole = not made.dtype.is_floating_point and made.dtype != torch.bool
    return made.long() if whole else made.float() if made.dtype == torch.bool else made


def _tensor(given: Any, where: str) -> Tensor:
    """As a tensor: double precision becomes single, which models have."""
    if isinstance(given, Tensor):
        return given.float() if given.dtype == torch.float64 else given
    if isinstance(given, (list, tuple)) and given and isinstance(given[0], Tensor):
        return _stacked(given, where)
    try:
        array = np.asarray(given)
        made = torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError) as error:
        ragged = "inhomogeneous" in str(error)
        more = "its rows differ in size; give a collate function" if ragged else _NUMBERS
        raise DataError(f"{where}: {described(given)} is no array of numbers: {more}") from None
    if given is None or isinstance(given, (str, bytes)) or made.ndim == 0:
        raise DataError(f"{where} are {described(given)}; allowed: {_NUMBERS}")
    return made.float() if made.dtype == torch.float64 else made


_NUMBERS = "tensors or numpy arrays of numbers, or with a collate function anything"


def _stacked(given: Sequence[Tensor], where: str) -> Tensor:
    sizes = {tuple(tensor.shape) for tensor in given}
    if len(sizes) > 1:
        some = " and ".join(str(list(size)) for size in sorted(sizes)[:2])
        raise DataError(f"{where} are tensors of shapes {some}; give a collate function")
    return _tensor(torch.stack(list(given)), where)
