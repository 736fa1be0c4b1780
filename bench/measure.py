"""What benches have in common: the machine, times, peaks of memory, profiles."""

from __future__ import annotations

import contextlib
import cProfile
import math
import os
import platform
import pstats
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "best_s", "machine", "peaks_mb", "profiled"]

ROOT: Final = Path(__file__).resolve().parent.parent
_PEAKS: Final = """
import sys
from harness.soak.memory import memory_bytes_max
def note_peak():
    print(memory_bytes_max() / 2**20)
{}
note_peak()
"""


def machine() -> str:
    """Where it was measured."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{platform.machine()}, {os.cpu_count()} cores, {python}, load {load}"


def best_s(
    work: Callable[[], object],
    runs: int,
    *,
    clock: Callable[[], float] = time.process_time,
    enough_s: float = math.inf,
) -> float:
    """The shortest of so many runs; there are no more of them after `enough_s` in all."""
    took: list[float] = []
    while len(took) < runs and sum(took) < enough_s:
        start_s = clock()
        work()
        took.append(clock() - start_s)
    return min(took)


def peaks_mb(code: str, *words: str) -> list[float]:
    """The peaks of a process of its own, in MiB: where `code` calls `note_peak()`, and at its end.

    The words are in `sys.argv[1:]`.
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
def profiled(wanted: bool) -> Iterator[None]:
    """Print where the time of the block went, if that is wanted."""
    if not wanted:
        yield
        return
    with cProfile.Profile() as profile:
        yield
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)
