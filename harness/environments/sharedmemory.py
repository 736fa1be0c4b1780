"""The remains of a dead process that no kernel takes back: its System V shared memory.

A PostgreSQL that is killed leaves a segment (of 56 bytes) behind, and removes it when it starts
again on the same data; after the last kill of a run no process does. A machine has room for some
thousand segments (`kernel.shmmni`). See shmctl(2), proc_sysvipc_shm(5).
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Final

from harness.environments.procfs import ProcessId

_SEGMENTS: Final = Path("/proc/sysvipc/shm")
_REMOVE: Final = 0  # IPC_RMID
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_ROUNDED_S: Final = 1.0  # the kernel's times of segments are whole seconds


def remove_shared_memory(process: ProcessId) -> int:
    """Remove the segments that this process, which is dead or dying, has made; how many.

    A segment in use vanishes with its last user. Segments of an earlier
    process of the same number are older than this one.
    """
    since_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    since_s += process.start_ticks / _TICKS_PER_S - _ROUNDED_S
    try:
        names, *rows = (line.split() for line in _SEGMENTS.read_text().splitlines())
    except (OSError, ValueError):
        return 0  # a kernel without them
    removed = 0
    for row in rows:
        segment = {name: int(value) for name, value in zip(names, row, strict=True)}
        if segment["cpid"] == process.pid and segment["ctime"] >= since_s:
            removed += ctypes.CDLL(None).shmctl(segment["shmid"], _REMOVE, None) == 0
    return removed
