"""The standard streams of a program. They write to the node's log."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

_LINE_CHARACTERS_MAX: Final = 8192


class LogStream(io.TextIOBase):
    """A text stream whose lines become lines of the node's log."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True

    def __init__(self, say: Callable[[str], None], name: str) -> None:
        self.name = name
        self.mode = "w"
        self.buffer: Any = _Bytes(self)
        self._say = say
        self._line = ""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        while len(self._line) > _LINE_CHARACTERS_MAX:
            lines.append(self._line[:_LINE_CHARACTERS_MAX])
            self._line = self._line[_LINE_CHARACTERS_MAX:]
        for line in lines:
            self._say(line)
        return len(text)

    def finish(self) -> None:
        """Log the last line, even if it does not end."""
        if self._line:
            line, self._line = self._line, ""
            self._say(line)

    def reconfigure(self, **_: Any) -> None:
        """Do nothing: a log has a fixed encoding."""


class _Bytes(io.BufferedIOBase):
    """The `buffer` of a text stream, to which a program can write bytes."""

    def __init__(self, text: LogStream) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._text.write(content.decode("utf-8", "backslashreplace"))
        return len(content)
