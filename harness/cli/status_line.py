"""Shows a status line that is redrawn on a terminal; elsewhere, prints a line now and then.

On a terminal, rich draws the status line below all permanent lines. If the terminal or pipe is
closed, the display ends, but the work continues.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from harness.cli.styles import console_on, harmless, is_terminal, styled, width_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

TERMINAL_INTERVAL_S: Final = 0.25
REDRAWN_PER_S: Final = 4


class StatusLine:
    """A status line on `stream` (default: stderr).

    On a terminal, a thread calls `draw` repeatedly to render the display. Without `draw`, the
    display is the text of the last `show`. If the stream is not a terminal, a line is printed every
    `pipe_interval_s`.
    """

    def __init__(
        self,
        stream: TextIO | None,
        *,
        pipe_interval_s: float,
        draw: Callable[[], RenderableType] | None = None,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.terminal = is_terminal(self._stream)
        self._interval_s = TERMINAL_INTERVAL_S if self.terminal else pipe_interval_s
        self._shown_s = time.monotonic()
        self._draw = draw
        self._text = ""
        self._live: Live | None = None

    def due_s(self) -> float | None:
        """Return the seconds since the last update and restart the count; `None` if too soon."""
        passed_s = time.monotonic() - self._shown_s
        if passed_s < self._interval_s:
            return None
        self._shown_s += passed_s
        return passed_s

    @property
    def width(self) -> int:
        return width_of(self._stream)

    def show(self, text: str) -> None:
        """Replace the text of the status line; without a terminal, write a new line instead."""
        self._text = text
        if not self.terminal:
            self.line(text)
            return
        if self._live is None:
            self._live = self._started()
        self._live.console.width = self.width
        self._live.refresh()

    def line(self, text: str, style: str = "") -> None:
        """Write a permanent line. On a terminal, it appears above the status line."""
        if self._live is not None:
            self._live.console.print(styled(text, style))
        elif self.terminal and style:
            console_on(self._stream, to=_Sturdy(self._stream)).print(styled(text, style))
        else:
            _Sturdy(self._stream).write(f"{harmless(text)}\n")

    def finish(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _started(self) -> Live:
        from rich.live import Live

        live = Live(
            console=console_on(self._stream, to=_Sturdy(self._stream)),
            get_renderable=self._drawn,
            auto_refresh=self._draw is not None,
            refresh_per_second=REDRAWN_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=self._stream is sys.stderr,
        )
        live.start()
        return live

    def _drawn(self) -> RenderableType:
        if self._draw is not None:
            return self._draw()
        text = styled(self._text)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class _Sturdy(io.StringIO):
    """Writes to `stream` and ignores errors: it may be closed or full, or have no reader."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()
        return len(text)


def fitting(parts: list[str], width: int) -> str:
    """Join as many parts, from the first on, as fit into a line of `width` characters."""
    text = parts[0]
    for part in parts[1:]:
        if len(text) + len(part) + 2 > width:
            break
        text += f"  {part}"
    return text
