"""What one check may cost: CPU time, states of the search, memory.

A spent budget makes the verdict `unknown`, with the reason. Checkers keep the bounds themselves
where they can: they are given a time limit, and one that has a method `bounded` gets its numbers of
steps and configurations. Behind them stands an alarm on CPU time (`ITIMER_PROF`), for checkers that
forget to look at the clock; it works in a process's main thread only, which is where the pool's and
Spark's workers run it. An address-space limit makes an oversized allocation a `MemoryError`.

A budget has a level: what level 1 left unknown may be tried once more at level 2.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

import msgspec

__all__ = ["Budget", "SpentError", "cpu_limit", "memory_limit"]

MIB: Final = 1 << 20
_GRACE: Final = 1.25  # the alarm is for checkers that ignore their time limit
_GRACE_S: Final = 0.5


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one check of one history, or of one key of a history in buckets."""

    cpu_s: float = 120.0
    steps: int = 20_000_000
    configurations: int = 2_000_000
    memory_mib: int = 4096
    level: int = 1

    def larger(self) -> Budget:
        """The budget of the next level."""
        return Budget(
            cpu_s=self.cpu_s * 5,
            steps=self.steps * 5,
            configurations=self.configurations * 3,
            memory_mib=self.memory_mib * 2,
            level=self.level + 1,
        )


class SpentError(BaseException):
    """The alarm on CPU time. No `Exception`: a checker that catches those must not catch it."""


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise `SpentError` in the body some time after `seconds` of CPU; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        del number, frame
        if armed:
            raise SpentError

    before = signal.signal(signal.SIGPROF, ring)
    # It rings again and again: the first time may fall into code that swallows every exception.
    signal.setitimer(signal.ITIMER_PROF, seconds * _GRACE + _GRACE_S, 1.0)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def memory_limit(mib: int) -> Iterator[None]:
    """Let the process grow by `mib` beyond what it has mapped now; only lowers a limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no path of ours
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    wanted = mapped + mib * MIB
    if soft != resource.RLIM_INFINITY and soft <= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
