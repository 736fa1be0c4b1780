"""Helpers for benches: they describe the machine and measure times, memory and profiles."""

from __future__ import annotations

import contextlib
import cProfile
import math
import os
import platform
import pstats
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from harness.environments import procfs

ROOT: Final = Path(__file__).resolve().parent.parent
_LOOK_S: Final = 0.02
_CLOCK_OF_PROCESS: Final = 2
"""The part of a clock id that selects the CPU time of a whole process; see clock_getcpuclockid(3).
"""
_PEAKS: Final = """
import sys
from harness.soak.result import memory_bytes_max
def note_peak():
    print(memory_bytes_max() / 2**20)
{}
note_peak()
"""


def machine() -> str:
    """Describe this machine in one line: processor, cores, Python and load."""
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{platform.machine()}, {os.cpu_count()} cores, {python}, load {load}"


def best_s(
    work: Callable[[], object],
    runs: int,
    *,
    clock: Callable[[], float] = time.process_time,
    enough_s: float = math.inf,
) -> float:
    """Return the shortest time of `runs` calls of `work`; stop early after `enough_s` in total."""
    took: list[float] = []
    while len(took) < runs and sum(took) < enough_s:
        start_s = clock()
        work()
        took.append(clock() - start_s)
    return min(took)


def peaks_mb(code: str, *words: str) -> list[float]:
    """Run `code` in a process; return its peak memory in MiB, at each `note_peak()` and at the end.

    The code finds `words` in `sys.argv[1:]`.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _PEAKS.format(code), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(line) for line in ended.stdout.split()]


@contextlib.contextmanager
def processor_time() -> Iterator[Callable[[], float]]:
    """Measure the CPU seconds of all descendants of this process during the block.

    A thread reads the CPU clock of each process every `_LOOK_S`. The kernel's own sums are not
    enough: they omit children for which their parent does not wait, such as Spark's Python workers.
    """
    spent_s: dict[int, float] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_S):
            for process in procfs.family(os.getpid())[1:]:
                with contextlib.suppress(OSError):  # the process has ended in the meantime
                    spent_s[process] = time.clock_gettime(~process << 3 | _CLOCK_OF_PROCESS)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield lambda: sum(spent_s.values())
    finally:
        ended.set()
        watching.join()


@contextlib.contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Print a profile of the block if `wanted`."""
    if not wanted:
        yield
        return
    with cProfile.Profile() as profile:
        yield
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)
