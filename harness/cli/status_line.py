"""A line that says how it gets on: rewritten in place on a terminal, a line now and then elsewhere.

A terminal or pipe that goes away takes the progress with it, never the work. What is rewritten
is cut to the width of the terminal: of a line that wraps, only the last part would be cleared.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final, TextIO

__all__ = ["StatusLine"]

TERMINAL_INTERVAL_S: Final = 0.25
WIDTH_MAX: Final = 160
_CLEAR: Final = "\r\x1b[2K"


class StatusLine:
    """Writes to `stream` (default: stderr); where there is no terminal, every `pipe_interval_s`."""

    def __init__(self, stream: TextIO | None, *, pipe_interval_s: float) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._gone = self._stream is None  # stderr was closed by whoever started us
        self._terminal = (
            not self._gone
            and self._stream.isatty()
            and "NO_COLOR" not in os.environ
            and os.environ.get("TERM") != "dumb"
        )
        self._interval_s = TERMINAL_INTERVAL_S if self._terminal else pipe_interval_s
        self._shown_s = time.monotonic()

    def due_s(self) -> float | None:
        """Seconds since the last time it was due, if it is due again."""
        passed_s = time.monotonic() - self._shown_s
        if passed_s < self._interval_s:
            return None
        self._shown_s += passed_s
        return passed_s

    def show(self, text: str) -> None:
        """Say where it stands, in place of what was said before."""
        if self._terminal:
            self._write(f"{_CLEAR}{text[: self._width()]}")
        else:
            self.line(text)

    def _width(self) -> int:
        """How many characters fit into one line; asked each time, since windows change."""
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError, AttributeError):
            return WIDTH_MAX
        return min(WIDTH_MAX, max(1, columns - 1)) if columns > 0 else WIDTH_MAX

    def line(self, text: str) -> None:
        """Write a line that stays."""
        start = _CLEAR if self._terminal else ""
        self._write(f"{start}{text}\n")

    def finish(self) -> None:
        """End the rewritten line."""
        if self._terminal:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        if self._gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._gone = True
