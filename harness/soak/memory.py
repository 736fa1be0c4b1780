"""The peak memory of a process, from the kernel."""

from __future__ import annotations

import resource
from pathlib import Path


def memory_bytes_max() -> int:
    """The largest resident size of this process so far.

    Linux reports it for the current program (`VmHWM`); on Linux `getrusage` also counts the memory
    that the parent used before the `exec`.
    """
    try:
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # no Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
