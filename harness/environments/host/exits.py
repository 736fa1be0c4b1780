"""The cause of a process's end, as far as its exit code and the kernel's OOM killer show it.

Only an end that nothing else explains is the program's own doing. A program cannot prove that it
was asked to end, so every code that a request or a signal from outside leaves behind counts as
foreign:

| end, without the harness having asked for it              | who                            |
|-----------------------------------------------------------|--------------------------------|
| by a signal that programs do not raise themselves          | the host                       |
| 128 + SIGKILL or SIGTERM: shells, JVMs, container engines | the host                       |
| 128 + another such signal                                 | unknown                        |
| 256 - SIGKILL or SIGTERM: a parent that passes on `-n`    | unknown                        |
| 0, of a node on `Env`: its runner does so for SIGTERM only | the host                       |
| 0, of a foreign program: how many servers answer SIGTERM  | unknown                        |
| any, of a foreign program, where the OOM killer acted     | unknown: it may lack a child   |
| `EXIT_HOST`, of a node on `Env`                           | the host                       |
| any other                                                 | itself                         |
"""

from __future__ import annotations

import signal
from typing import Final, NamedTuple

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
_COMMON: Final = frozenset({signal.SIGKILL, signal.SIGTERM})
"""What administrators, supervisors, container engines and the OOM killer send."""
_SHELL_BASE: Final = 128
_BYTE: Final = 256


class Ending(NamedTuple):
    """The cause of an end (`by` of `harness.cluster.ClusterEvent`), and a line with the reason."""

    by: str
    note: str | None = None


def ended_by(code: int, *, expected: bool, on_env: bool, oom_kills: int | None) -> Ending:
    """Decide who ended a process.

    `code` is an exit code, or the negative number of the signal that ended it. `expected`: the
    harness ended it. `on_env`: the process is the runner of a node on `Env`. `oom_kills`: how many
    processes the kernel's OOM killer ended in its control group while it ran, if known.
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
        note = "harness: ended as a program does that is asked to, and the harness did not ask"
        return Ending("host" if on_env else "unknown", note)
    if oom_kills and not on_env:
        return Ending("unknown", f"harness: {oom}, perhaps a child of this one")
    return Ending("itself")


def _signal_from_outside(code: int) -> tuple[signal.Signals | None, bool]:
    """The signal in an exit code if it came from outside, and whether it surely was one."""
    if code < 0:
        return _foreign(-code), True
    if code > _BYTE - _SHELL_BASE // 2 and _BYTE - code in _COMMON:
        return signal.Signals(_BYTE - code), False
    number = _foreign(code - _SHELL_BASE)
    return number, number in _COMMON


def _foreign(number: int) -> signal.Signals | None:
    """The signal of this number if it is one that programs do not raise themselves."""
    if number not in _STANDARD or number in _OWN:
        return None
    return signal.Signals(number)
