"""Start the `harness` process and control its exit code, because the exit code is the verdict.

Codes 0, 1 and 2 mean valid, invalid and unknown. But Python exits with 1 when an import fails,
`sys.exit()` anywhere exits with 0, and a C library may exit with any code (OpenBLAS calls `exit(1)`
when memory runs out). Therefore an `atexit` handler of the C library is installed first. It makes
every `exit`, from any caller and with any code, end this process with 255. When `harness.cli.main`
returns a code, a second handler is installed, which exits with this code. Handlers run in reverse
order of installation (atexit(3)). Death by a signal has an exit code of its own and needs no
handler.

Only `_run` imports heavy modules: a failure before `main` must end with 255, too.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

_CRASH = 255
_INTERRUPTED = 130


def main() -> None:
    """Run `harness.cli.main` with this process's arguments, and exit with the code it returns."""
    _promise(_CRASH)
    _guard_immediate_exit()
    code = _run()
    _promise(code)
    sys.exit(code)


def _run() -> int:
    try:
        from harness.cli import main as run_verb

        return run_verb()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException:  # noqa: BLE001 - a crash must not exit with the code of a verdict
        with contextlib.suppress(OSError):
            traceback.print_exc()
            print("harness: the start failed: see the error above", file=sys.stderr)  # noqa: T201
        return _CRASH


def _promise(code: int) -> None:
    """Make every later `exit` of this process use the exit code `code`; the last call counts."""
    # Without ctypes or `__cxa_atexit`, Python's own rules for exit codes apply.
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        libc = ctypes.CDLL(None)
        leave = ctypes.cast(libc._exit, ctypes.c_void_p)  # noqa: SLF001 - its name in C
        getattr(libc, "__cxa_atexit")(leave, ctypes.c_void_p(code), None)


def _guard_immediate_exit() -> None:
    """Make `os._exit`, which runs no handlers, exit with 255, except in forks of this process."""
    own_pid, leave = os.getpid(), os._exit

    def leave_without_verdict(status: int) -> None:
        leave(_CRASH if os.getpid() == own_pid else status)

    os._exit = leave_without_verdict  # type: ignore[assignment]


if __name__ == "__main__":
    main()
