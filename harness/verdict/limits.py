"""Limits one check: its CPU time, the steps and states of its search, and its memory.

A reached limit makes the verdict `unknown`, with the reason. Checkers enforce limits themselves if
they can: they get a time limit, and `bounded` gets the numbers of steps and configurations. For
checkers that do not check the clock, there is an alarm on CPU time (`ITIMER_PROF`), which works in
a process's main thread only; the workers of reports set it. A limit on the address space turns an
oversized allocation into a `MemoryError`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import ClassVar, Final

import msgspec

CHECK_TIME_LIMIT_S: Final = 120.0
MIB: Final = 1 << 20
_GRACE: Final = 1.25  # the alarm comes after the limit, for checkers that ignore the limit
_GRACE_S: Final = 0.5


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one check of one history. If a limit is `None`, the checker uses its default.

    The result of a check that ran out of memory names `memory_mib`. The caller must set this limit
    with `memory_limit`, since it applies to the whole process.
    """

    alarm: ClassVar[bool] = False  # an alarm ends a checker that exceeds `cpu_s`
    cpu_s: float = CHECK_TIME_LIMIT_S
    steps: int | None = None
    configurations: int | None = None
    memory_mib: int | None = None


class SpentError(BaseException):
    """Raised when the CPU time is used up. Not an `Exception`, so checkers do not catch it."""


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise `SpentError` in the block once it has used clearly more than `seconds` of CPU time.

    This works only in the main thread; in other threads there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        del number, frame
        if armed:
            raise SpentError

    before = signal.signal(signal.SIGPROF, ring)
    # The alarm repeats, because code that catches every exception may swallow the first one.
    signal.setitimer(signal.ITIMER_PROF, seconds * _GRACE + _GRACE_S, 1.0)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def memory_limit(mib: int) -> Iterator[None]:
    """Let the process grow by at most `mib` beyond its present size inside this context.

    If a lower limit already exists, it stays.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - a kernel file
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
