"""Sending a problem to worker processes: functions by name, tensors through shared memory."""

import importlib.util
import io
import pickle
import sys
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from fedcompass.errors import SettingsError
from fedcompass.simulation.executors.shared import SharedMemory

__all__ = ["Parcel", "pack", "unpack"]


@dataclass(frozen=True, slots=True)
class Parcel:
    """Where in shared memory a pickle lies, and what a worker needs to make sense of it.

    main: what is `__main__` in the sender, if the pickle refers to it: a module or a file.
    path, arguments: the sender's `sys.path` and `sys.argv`.
    """

    offset: int
    length: int
    main: str | Path | None
    path: list[str]
    arguments: list[str]


def pack(goods: object, memory: SharedMemory) -> Parcel:
    """Pickle an object for a worker; its tensors are copied into shared memory, once each.

    Raises:
        SettingsError: a part of it cannot be found again by name in another process.
    """
    stream = io.BytesIO()
    pickler = _Pickler(stream, memory)
    try:
        pickler.dump(goods)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SettingsError(
            f"the problem cannot be sent to worker processes ({error}); define its functions at "
            "the top level of a module, or use the serial executor"
        ) from error
    content = torch.frombuffer(bytearray(stream.getvalue()), dtype=torch.uint8)
    main = _main_source(pickler.from_main)
    return Parcel(memory.put(content), len(content), main, list(sys.path), list(sys.argv))


def unpack(parcel: Parcel, memory: SharedMemory) -> object:
    """The object in a worker, its tensors lying in the shared memory."""
    sys.path[:], sys.argv[:] = parcel.path, parcel.arguments
    if parcel.main is not None:
        sys.modules["__main__"] = _load_main(parcel.main)
    content = memory.tensor(parcel.offset, torch.uint8, (parcel.length,))
    return _Unpickler(io.BytesIO(content.numpy().tobytes()), memory).load()


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, memory: SharedMemory) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.from_main: list[str] = []
        self._memory = memory
        self._placed: dict[int, tuple[Tensor, int]] = {}  # the tensor is kept: ids are reused

    def persistent_id(self, obj: Any) -> tuple[int, torch.dtype, tuple[int, ...]] | None:
        """Put a plain CPU tensor into shared memory and write down where; pickle the rest."""
        if type(obj) is not Tensor or obj.device.type != "cpu" or obj.requires_grad:
            return None
        if id(obj) not in self._placed:
            self._placed[id(obj)] = obj, self._memory.put(obj)
        return self._placed[id(obj)][1], obj.dtype, tuple(obj.shape)

    def reducer_override(self, obj: Any) -> Any:
        """Note what lives in `__main__`, where a worker must look for it; pickle as usual."""
        if isinstance(obj, FunctionType | type) and obj.__module__ == "__main__":
            self.from_main.append(obj.__qualname__)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, memory: SharedMemory) -> None:
        super().__init__(stream)
        self._memory = memory

    def persistent_load(self, pid: tuple[int, torch.dtype, tuple[int, ...]]) -> Tensor:
        return self._memory.tensor(*pid)


def _main_source(needed: list[str]) -> str | Path | None:
    """Where a worker finds what the problem uses from `__main__`: a module's name or a file."""
    if not needed:
        return None
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m package.module
        return main.__spec__.name
    file = Path(getattr(main, "__file__", None) or "")
    if not file.is_file():
        raise SettingsError(
            f"{needed[0]!r} is defined in a notebook or at a prompt, where worker processes cannot "
            "import it; move it into a module (a .py file), or use the serial executor"
        )
    return file.resolve()


def _load_main(source: str | Path) -> ModuleType:
    """Import the user's script under another name, so that its `__main__` guard holds."""
    if isinstance(source, str):
        return importlib.import_module(source)
    loader = SourceFileLoader("__mp_main__", str(source))
    spec = importlib.util.spec_from_loader("__mp_main__", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["__mp_main__"] = module
    loader.exec_module(module)
    return module
