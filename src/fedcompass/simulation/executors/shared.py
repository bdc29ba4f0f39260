"""Memory that processes share, without a name, so that nothing can be left behind."""

import mmap
import os
import tempfile
from collections.abc import Iterator

import torch
from torch import Tensor

from fedcompass.aggregation.layout import SEGMENTS, FlatState, Layout

__all__ = ["SharedMemory", "SharedStates"]

_ALIGNMENT = 64  # bytes; what torch gives its own tensors


class SharedMemory:
    """A growing stretch of shared memory, known to other processes by its file descriptor.

    The file has no name: the kernel frees it with the last process that holds it, however that one
    ends. A memfd is also not bound to the size of /dev/shm (64 MB in a plain container).
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _nameless_file() if descriptor is None else descriptor
        self._map: mmap.mmap | None = None
        self._mapped = 0
        self._used = 0

    def allocate(self, nbytes: int) -> int:
        """Reserve bytes and return their offset; the file doubles when it is full."""
        offset = self._used
        self._used += _aligned(nbytes)
        if self._used > os.fstat(self.descriptor).st_size:
            os.ftruncate(self.descriptor, max(2 * self._used, mmap.PAGESIZE))
        return offset

    def tensor(self, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """A tensor that lies at an offset; writes are seen by every process."""
        count = torch.Size(shape).numel()
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        if offset + count * dtype.itemsize > self._mapped:
            # Tensors made earlier keep the smaller map; both show the same pages.
            self._mapped = os.fstat(self.descriptor).st_size
            self._map = mmap.mmap(self.descriptor, self._mapped)
        assert self._map is not None
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset).view(shape)

    def put(self, tensor: Tensor) -> int:
        """Copy a tensor in and return its offset."""
        offset = self.allocate(tensor.nbytes)
        self.tensor(offset, tensor.dtype, tuple(tensor.shape)).copy_(tensor)
        return offset

    def close(self) -> None:
        """Let go of the memory; tensors made from it stay valid while they live."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor, self._map, self._mapped = -1, None, 0


class SharedStates:
    """Slots for flat states of one layout in shared memory, numbered from 0."""

    def __init__(self, layout: Layout, descriptor: int | None = None) -> None:
        self.memory = SharedMemory(descriptor)
        self._layout = layout
        self._offsets = list(_offsets(layout))
        self._slot_bytes = self._offsets.pop()
        self._states: dict[int, FlatState] = {}
        self._free: list[int] = []
        self._slots = 0

    def take(self) -> int:
        """The number of a slot nobody uses."""
        if self._free:
            return self._free.pop()
        self.memory.allocate(self._slot_bytes)
        self._slots += 1
        return self._slots - 1

    def give_back(self, slot: int) -> None:
        """Let a slot be used again."""
        self._free.append(slot)

    def __getitem__(self, slot: int) -> FlatState:
        """The state that lies in a slot."""
        if slot not in self._states:
            base = slot * self._slot_bytes
            self._states[slot] = FlatState(
                *(
                    self.memory.tensor(
                        base + offset,
                        self._layout.dtypes[segment],
                        (self._layout.sizes[segment],),
                    )
                    for offset, segment in zip(self._offsets, SEGMENTS, strict=True)
                )
            )
        return self._states[slot]

    @property
    def in_use(self) -> int:
        """How many slots are taken."""
        return self._slots - len(self._free)

    def close(self) -> None:
        """Let go of the memory."""
        self._states.clear()
        self.memory.close()


def _offsets(layout: Layout) -> Iterator[int]:
    """Where each segment starts within a slot, then the size of a slot."""
    offset = 0
    for segment in SEGMENTS:
        yield offset
        offset += _aligned(layout.sizes[segment] * layout.dtypes[segment].itemsize)
    yield offset


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedcompass")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
