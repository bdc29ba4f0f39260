"""Memory that a process has freed stays with it: the next model needs as much again."""

import ctypes
import os

__all__ = ["ask_for_large_pages", "keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGEST = (1 << 31) - 1
_LARGEST_OF_OLD = 1 << 25  # before glibc 2.35
_NEVER = -1


def keep_freed_memory() -> None:
    """Have glibc keep what is freed instead of returning it to the kernel.

    Every step needs its activations and every task some models' worth of memory. Fresh from the
    kernel, each page of it costs a fault: a tenth to a quarter of a step of the MNIST CNN, more
    than half of the system time of a site's task with a model of 45 MB. Where there is no glibc,
    nothing changes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST) or mallopt(_MMAP_THRESHOLD, _LARGEST_OF_OLD)
        mallopt(_TRIM_THRESHOLD, _NEVER)


def ask_for_large_pages() -> None:
    """Have torch ask the kernel for pages of 2 MB instead of 4 KB; before its first tensor.

    A model of 400 MB is then 200 pages, not 100,000, wherever a process needs memory that it never
    had. Where the kernel has none to give, nothing changes.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
