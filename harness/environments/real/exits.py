"""Whose doing the end of a process was, as far as its exit code or its signal tells."""

from __future__ import annotations

import signal
from typing import Final

__all__ = ["EXIT_HOST", "is_foreign"]

EXIT_HOST: Final = 71
"""Of a node on `Env` that the host kept from starting (`EX_OSERR` of sysexits.h): it never ran."""

_OWN: Final = frozenset(
    {
        signal.SIGABRT,
        signal.SIGALRM,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGPIPE,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
_STANDARD: Final = range(1, 32)


def is_foreign(number: int) -> bool:
    """Whether this signal comes from outside: by a limit, the OOM killer, a terminal, a user."""
    return number in _STANDARD and number not in _OWN
