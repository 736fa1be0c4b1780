"""Distinguishes Ctrl-C from a `KeyboardInterrupt` that a plug-in's code raises.

An exception of a checker or a client is a failure of the plug-in and only affects its own result,
but Ctrl-C must stop everything. In Python both may be a `KeyboardInterrupt`, so in the harness
Ctrl-C raises a separate type, `UserInterrupt`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from harness.errors import HarnessError, TargetError, described

PLUGIN_FAILURES: Final = (Exception, SystemExit, KeyboardInterrupt)
"""Exceptions that a plug-in itself may raise. A handler must let `UserInterrupt` through first."""
_ERROR_CHARACTERS_MAX: Final = 300


class UserInterrupt(KeyboardInterrupt):
    """Raised for Ctrl-C, and for SIGTERM in blocks that handle it."""


@contextlib.contextmanager
def blaming(what: str) -> Iterator[None]:
    """Turn an exception in the block into a `TargetError` about `what`, a plug-in's method.

    Errors that the harness raises on purpose pass unchanged.
    """
    try:
        yield
    except (HarnessError, UserInterrupt):
        raise
    except PLUGIN_FAILURES as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        text = described(error, _ERROR_CHARACTERS_MAX)
        raise TargetError(f"{what} raised {text} ({place})") from error


def raise_interrupt(_signal: int = signal.SIGINT, _frame: FrameType | None = None) -> NoReturn:
    """Raise `UserInterrupt`; for use as a signal handler."""
    raise UserInterrupt


def telling_interrupts() -> contextlib.AbstractContextManager[None]:
    """Make Ctrl-C raise `UserInterrupt` inside this context, if SIGINT has Python's own handler."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return contextlib.nullcontext()
    return _handling(raise_interrupt, signal.SIGINT)


def sigterm_interrupts() -> contextlib.AbstractContextManager[None]:
    """Make SIGTERM work like Ctrl-C inside this context."""
    return _handling(raise_interrupt, signal.SIGTERM)


@contextlib.contextmanager
def holding_interrupts() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the block ends. A second signal interrupts the block."""
    asked = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise_interrupt(number, frame)
        asked = True

    with _handling(hold, signal.SIGINT, signal.SIGTERM):
        yield
    if asked:
        raise UserInterrupt


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Handle these signals with `handler` inside this context.

    Outside of the main thread, which alone can handle signals, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)
