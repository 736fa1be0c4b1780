"""Decides who ended a process, by its exit code and the kernel's OOM killer.

The harness blames a program for its end only if nothing else explains the end. It cannot know
whether another program sent a request to exit. So it does not blame the program for an exit code
that an outside request or signal can cause:

| end that the harness did not request                       | blamed on                      |
|------------------------------------------------------------|--------------------------------|
| by a signal that programs do not raise themselves          | the host                       |
| 128 + SIGKILL or SIGTERM: shells, JVMs, container engines  | the host                       |
| 128 + another such signal                                  | unknown                        |
| 256 - SIGKILL or SIGTERM: `exit(-n)` by a parent process   | unknown                        |
| 0, of a node on `Env`: its runner does so for SIGTERM only | the host                       |
| 0, of a foreign program: many servers do so for SIGTERM    | unknown                        |
| any, of a foreign program, if the OOM killer has acted     | unknown: a child may have died |
| `EXIT_HOST`, of a node on `Env`                            | the host                       |
| any other                                                  | the program itself             |
"""

from __future__ import annotations

import signal
from typing import Final, NamedTuple

EXIT_HOST: Final = 71
"""The exit code of a node on `Env` that the host kept from starting (EX_OSERR of sysexits.h)."""

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
_COMMON: Final = frozenset({signal.SIGKILL, signal.SIGTERM})
"""The signals that administrators, supervisors, engines and the OOM killer send."""
_SHELL_BASE: Final = 128
_BYTE: Final = 256


class Ending(NamedTuple):
    """The party that ended a process (see `ClusterEvent.by`), and a line with the reason."""

    by: str
    note: str | None = None


def ended_by(code: int, *, expected: bool, on_env: bool, oom_kills: int | None) -> Ending:
    """Decide what ended a process.

    `code` is an exit code, or the negative number of a fatal signal. `expected` means that the
    harness ended the process, and `on_env` that it ran a node on `Env`. `oom_kills` is the number
    of OOM kills in its control group while it ran, if known.
    """
    if on_env and code == EXIT_HOST:
        return Ending("host")
    if expected:
        return Ending("nemesis")
    oom = (
        "the kernel's OOM killer ended "
        f"{'an unknown number of' if oom_kills is None else oom_kills} processes in its control "
        "group meanwhile"
    )
    number, surely = _signal_from_outside(code)
    if number is not None:
        note = f"harness: ended by {number.name}, which the harness did not send; {oom}"
        return Ending("host" if surely or oom_kills else "unknown", note)
    if code == 0:
        note = "harness: ended like a program that was asked to end, but not by the harness"
        return Ending("host" if on_env else "unknown", note)
    if oom_kills and not on_env:
        return Ending("unknown", f"harness: {oom}, perhaps a child of this one")
    return Ending("itself")


def _signal_from_outside(code: int) -> tuple[signal.Signals | None, bool]:
    if code < 0:
        return _foreign(-code), True
    if code > _BYTE - _SHELL_BASE // 2 and _BYTE - code in _COMMON:
        return signal.Signals(_BYTE - code), False
    number = _foreign(code - _SHELL_BASE)
    return number, number in _COMMON


def _foreign(number: int) -> signal.Signals | None:
    if number not in _STANDARD or number in _OWN:
        return None
    return signal.Signals(number)
