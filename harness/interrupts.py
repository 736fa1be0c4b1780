"""Ctrl-C, told apart from a `KeyboardInterrupt` that the code of a plug-in raises itself.

What a checker or a client raises is its own failure and costs nothing but its own result; that the
user wants to stop is not. Both would be `KeyboardInterrupt`, so ours has a type of its own.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from harness.errors import HarnessError, TargetError, described

__all__ = [
    "PLUGIN_FAILURES",
    "UserInterrupt",
    "blaming",
    "holding_interrupts",
    "raise_interrupt",
    "sigterm_interrupts",
    "telling_interrupts",
]


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


@contextlib.contextmanager
def telling_interrupts() -> Iterator[None]:
    """While the block lasts, Ctrl-C raises `UserInterrupt`; whoever handles it already still does.

    Only the main thread is ever interrupted.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """While the block lasts, SIGTERM is taken like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def holding_interrupts() -> Iterator[None]:
    """Put off Ctrl-C and SIGTERM until the block ends; only a second one interrupts it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise_interrupt(number, frame)
        asked = True

    before = {number: signal.signal(number, hold) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        raise UserInterrupt
