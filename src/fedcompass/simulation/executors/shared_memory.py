"""Memory that processes share: a file without a name, so that nothing can be left behind.

The kernel frees it with the last process that holds it, however that one ends. A memfd is not bound
to the size of /dev/shm (64 MB in a plain container), as the shared memory of torch is.
"""

import os
import pickle
import re
import runpy
import sys
import tempfile
import zipfile
from itertools import accumulate
from multiprocessing import spawn
from types import ModuleType
from typing import Any

import torch

from fedcompass.aggregation.layout import SEGMENTS, FlatState, Layout
from fedcompass.errors import SettingsError

__all__ = ["load_in_worker", "nameless_file", "save_for_workers", "shared_models"]

_ALIGNMENT = 64  # bytes; what torch gives its own tensors


def nameless_file() -> int:
    """The descriptor of a new file in memory; on disk where the system knows no other."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedcompass")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def shared_models(descriptor: int, layout: Layout) -> tuple[FlatState, FlatState]:
    """Two models that lie in a file, for a job's start and its update; all processes see writes.

    The file must stay open only until this returns.
    """
    nbytes = [layout.sizes[segment] * layout.dtypes[segment].itemsize for segment in SEGMENTS] * 2
    ends = list(accumulate((size // _ALIGNMENT + 1) * _ALIGNMENT for size in nbytes))
    content = torch.from_file(_path(descriptor), shared=True, size=ends[-1], dtype=torch.uint8)
    vectors = [
        content[first : first + size].view(layout.dtypes[segment])
        for first, size, segment in zip([0, *ends], nbytes, SEGMENTS * 2, strict=False)
    ]
    return FlatState(*vectors[:3]), FlatState(*vectors[3:])


def save_for_workers(given: object, descriptor: int) -> dict[str, Any] | None:
    """Write an object into a file, each tensor once.

    Returns:
        How a worker is to import our main script; None if the object needs nothing of it.

    Raises:
        SettingsError: a part of it cannot be found again by name in another process.
    """
    with open(descriptor, "wb", closefd=False) as file:
        try:
            torch.save(given, file)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise SettingsError(
                f"the problem cannot be sent to worker processes ({error}); define its functions "
                "at the top level of a module, or use the serial executor"
            ) from error
    with zipfile.ZipFile(_path(descriptor)) as archive:
        needed = re.search(rb"c__main__\n(.*)\n", archive.read("archive/data.pkl"))
    if needed is None:
        return None
    main = spawn.get_preparation_data("worker")
    if not {"init_main_from_name", "init_main_from_path"} & set(main):
        raise SettingsError(
            f"{needed[1].decode()!r} is defined in a notebook or at a prompt, where worker "
            "processes cannot import it; move it into a module (a .py file), or use the serial "
            "executor"
        )
    return main


def load_in_worker(descriptor: int, main: dict[str, Any] | None) -> Any:
    """The object that was saved; its tensors are read where they lie, by all workers."""
    if main is not None:
        spawn.prepare(main)
        _import_package_main(main.get("init_main_from_name"))
    return torch.load(_path(descriptor), mmap=True, weights_only=False)


def _import_package_main(name: str | None) -> None:
    """Import a package's `__main__.py`, which the standard library leaves out, as it does others.

    It runs under the name that worker processes give to a main script, so what stands below
    `if __name__ == "__main__"` does not run.
    """
    if name is None or not name.endswith(".__main__"):
        return
    module = ModuleType("__mp_main__")
    module.__dict__.update(runpy.run_module(name, run_name="__mp_main__", alter_sys=True))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def _path(descriptor: int) -> str:
    return f"/dev/fd/{descriptor}"
