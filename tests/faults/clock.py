"""A wall clock that a test can move, for whole processes: C's clock functions, preloaded."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead; /* seconds, in a file that the test writes */

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("FAULT_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *found = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) ahead = found;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (out) *out = found.tv_sec;
    return found.tv_sec;
}
"""


class WallClock:
    """A machine's clock: processes started with `environment` see real time plus what is set."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.clock"
        self._file.write_bytes(struct.pack("<q", 0))
        self._library = _library(folder)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "FAULT_CLOCK": str(self._file)}

    def set_ahead(self, seconds: int) -> None:
        """Jump: from now on the clock is so many seconds ahead of the real one."""
        handle = os.open(self._file, os.O_WRONLY)
        try:
            os.pwrite(handle, struct.pack("<q", seconds), 0)
        finally:
            os.close(handle)


def _library(folder: Path) -> Path:
    library = folder / "clock.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler to move a process's wall clock")
    if not library.exists():
        source = folder / "clock.c"
        source.write_text(SOURCE, encoding="utf-8")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
        subprocess.run(command, check=True, capture_output=True)
    return library
