"""The process of `harness`, and the only way out of it: an exit code is a verdict.

Codes 0, 1 and 2 mean valid, invalid and unknown. But Python exits with 1 where an import fails,
`sys.exit()` anywhere exits with 0, and so may a library in C (OpenBLAS calls `exit(1)` when memory
runs out). Therefore the C library is set up first so that every `exit`, from any caller with
any code, ends this process with 255; the code of `harness.cli.main` is promised at the very
end, when there is one. Later promises come first (atexit(3)). Death by a signal has a code of its
own and needs no promise.

Nothing heavy is imported outside of `_run`: what fails before `main` must be 255, too.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

_CRASH = 255
_INTERRUPTED = 130


def main() -> None:
    """Run `harness` as a program: `harness.cli.main` with this process's arguments."""
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
    except BaseException:  # noqa: BLE001 - nothing but a verdict may have a verdict's exit code
        with contextlib.suppress(OSError):
            traceback.print_exc()
            print("harness: it could not start: see the error above", file=sys.stderr)  # noqa: T201
        return _CRASH


def _promise(code: int) -> None:
    """Have every later `exit` in this process end it with `code`, until the next promise."""
    # Without ctypes or a C library that has it, Python's own rules hold.
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        libc = ctypes.CDLL(None)
        leave = ctypes.cast(libc._exit, ctypes.c_void_p)  # noqa: SLF001 - its name in C
        getattr(libc, "__cxa_atexit")(leave, ctypes.c_void_p(code), None)


def _guard_immediate_exit() -> None:
    """`os._exit` asks no handler, so the codes of verdicts are refused to it, but in children."""
    own_pid, leave = os.getpid(), os._exit

    def leave_without_verdict(status: int) -> None:
        leave(_CRASH if os.getpid() == own_pid else status)

    os._exit = leave_without_verdict  # type: ignore[assignment]


if __name__ == "__main__":
    main()
