"""The pickles of CIFAR-10's python version, read without running anything they name.

A pickle can name any function and have it called. This reader knows three names, and stands its own
empty classes in for them, so that not even numpy runs on what a pickle says; the bytes of an array
become an array only after its shape and type have been checked.
"""

import pickle
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["UnsafePickle", "read_byte_arrays"]


class UnsafePickle(ValueError):
    """The pickle names something other than a plain array, or is not well formed."""


class _Array:
    """Stands in for a pickled numpy array: keeps the state, builds nothing."""

    state: Any = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _DType:
    """Stands in for a pickled numpy dtype: keeps its code."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and alignment; neither matters to single bytes


_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise UnsafePickle(f"it names {module}.{name}")
        return _STAND_INS[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise UnsafePickle("it refers to an object outside")


def read_byte_arrays(content: bytes) -> dict[str, Any]:
    """The dictionary in a pickle, its uint8 arrays as numpy arrays and its keys as text.

    Raises:
        UnsafePickle: it names anything but a plain array, or is not a well formed dictionary.
    """
    try:
        loaded = _Reader(BytesIO(content), encoding="bytes").load()
    except UnsafePickle:
        raise
    except Exception as error:  # a hostile or damaged pickle can raise anything
        raise UnsafePickle(f"it is not well formed ({type(error).__name__}: {error})") from error
    if not isinstance(loaded, dict):
        raise UnsafePickle("it does not hold a dictionary")
    return {
        key.decode("latin-1") if isinstance(key, bytes) else str(key): (
            _byte_array(value.state) if isinstance(value, _Array) else value
        )
        for key, value in loaded.items()
    }


def _byte_array(state: Any) -> NDArray[np.uint8]:
    """An array from the state numpy pickles: version, shape, dtype, Fortran order, bytes."""
    match state:
        case (_, tuple(shape), _DType(code=b"u1" | "u1"), False | 0, bytes(values)):
            if all(isinstance(n, int) and n >= 0 for n in shape):
                size = int(np.prod(shape, dtype=object))
                if size == len(values):
                    return np.frombuffer(values, dtype=np.uint8).reshape(shape)
    raise UnsafePickle("its array is not made of bytes in rows")
