"""The time and memory limits of a linearizability check, and the functions that test them.

A `Clock` is current while its check runs. `tick` tests the current clock before every model step
that is not memoized, and a search tests it every few milliseconds. So a check exceeds its limit by
less than a second, unless a single step of a Python model takes longer.

The memory limit applies to the growth of the process since the first measurement, at least 0.05
seconds after the start of the check. The clock measures at most twenty times a second.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Final

MEMORY_EVERY_S: Final = 0.05
MIB: Final = 1 << 20
_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class LimitReachedError(Exception):
    """The time or memory limit of a check is reached, so there is no verdict."""


def resident_bytes() -> int:
    """Return the memory in bytes that this process uses now; 0 if the system does not report it."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


class Clock:
    """The time and memory limits of one check. `why` says which limit was reached."""

    def __init__(self, limit_s: float | None, memory_mib: int | None = None) -> None:
        """Start the time limit now. `None` for a limit means that there is no limit."""
        now = time.monotonic()
        self.end_s = math.inf if limit_s is None else now + limit_s
        self.why = ""
        self._memory_mib = memory_mib
        # the maximum memory of the process in bytes; `None` until the first measurement
        self._memory_bytes: float | None = None
        self._look_s = now + MEMORY_EVERY_S

    def is_over(self) -> bool:
        """Whether a limit has been reached. After the first `True`, every answer is `True`."""
        if self.why:
            return True
        now = time.monotonic()
        if now >= self.end_s:
            self.why = "the time limit was reached"
        elif now >= self._look_s:
            self._look_s = now + MEMORY_EVERY_S
            if self._is_full():
                self.why = f"the memory limit of {self._memory_mib} MiB was reached"
        return bool(self.why)

    def _is_full(self) -> bool:
        if self._memory_mib is None:
            return False
        held = resident_bytes()
        if self._memory_bytes is None:
            self._memory_bytes = held + self._memory_mib * MIB
        return held > self._memory_bytes

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Make `tick` test this clock inside the `with` block."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


_CURRENT: Final[ContextVar[Clock | None]] = ContextVar("clock", default=None)


def tick() -> None:
    """Raise `LimitReachedError` if the current check has reached a limit."""
    clock = _CURRENT.get()
    if clock is not None and clock.is_over():
        raise LimitReachedError(clock.why)
