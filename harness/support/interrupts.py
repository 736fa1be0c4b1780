"""Ctrl-C, told apart from a `KeyboardInterrupt` that the code of a plug-in raises itself.

What a checker or a client raises is its own failure and costs nothing but its own result; that the
user wants to stop is not. Both would be `KeyboardInterrupt`, so ours has a type of its own.
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
"""What a call into a plug-in may raise on its own account; let `UserInterrupt` through first."""
_ERROR_CHARACTERS_MAX: Final = 300


class UserInterrupt(KeyboardInterrupt):
    """The user pressed Ctrl-C."""


@contextlib.contextmanager
def blaming(what: str) -> Iterator[None]:
    """Turn what the plug-in and method `what` raises into a `TargetError` that names them.

    Errors that the harness raises on purpose pass as they are.
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
    """A handler of SIGINT."""
    raise UserInterrupt


def telling_interrupts() -> contextlib.AbstractContextManager[None]:
    """While the block lasts, Ctrl-C raises `UserInterrupt`; a handler of the caller's stays.

    Only the main thread is ever interrupted.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return contextlib.nullcontext()
    return _handling(raise_interrupt, signal.SIGINT)


def sigterm_interrupts() -> contextlib.AbstractContextManager[None]:
    """While the block lasts, SIGTERM is taken like Ctrl-C."""
    return _handling(raise_interrupt, signal.SIGTERM)


@contextlib.contextmanager
def holding_interrupts() -> Iterator[None]:
    """Put off Ctrl-C and SIGTERM until the block ends; only a second one interrupts it."""
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
    """Handle signals while the block lasts, in the main thread: no other receives any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)
