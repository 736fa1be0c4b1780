"""Reads a file of EDN as a stream of forms, with bounded memory and exact positions.

A file is read in blocks, which are cut into pieces; each piece ends after a complete form. The
quick reader tries a piece first; if it refuses the piece, the exact reader reads it. Only the exact
reader reports mistakes, with line and column, and finds the position of the n-th form of a piece.
Near refused forms, pieces become smaller, and afterwards larger again, so that a few unusual forms
do not slow down the rest.

Limits: `FORM_BYTES_MAX` bytes for one form (or comment), `DEPTH_MAX` levels.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from harness.errors import HistoryError, located
from harness.formats.edn.exact_reader import (
    CLOSERS,
    ExactReader,
    MistakeError,
    StoppedError,
    UnfinishedError,
)
from harness.formats.edn.quick_reader import QuickReader, QuickRefusedError

FORM_BYTES_MAX: Final = 16 << 20
BLOCK_BYTES: Final = 1 << 18
SPAN_BYTES_MIN: Final = 1 << 12
FIRST_BYTES_MAX: Final = 200
_STRUCTURE: Final = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)|;[^\n]*+|\\.|[\[\](){}]', re.DOTALL
)
_OPENING: Final = frozenset((b"[", b"(", b"{"))
_CLOSING: Final = frozenset((b"]", b")", b"}"))
_FIRST_WORD: Final = re.compile(rb"[\s,]*?([ \t]*+)((?:#[\w.]+)?\{:[\w/-]+ )")


@dataclass(eq=False, slots=True)
class Piece:
    """Some complete forms of a file. They begin at `line` and `column` (from 1)."""

    forms: list[Any]
    data: bytes
    line: int
    column: int
    source: str
    closer: str  # the closing bracket of the collection that contains the forms

    def error(self, number: int, what: str) -> HistoryError:
        """Return an error with the message `what`, at the position of a form (by its number)."""
        return located(self.source, *self.position(number), what)

    def position(self, number: int) -> tuple[int, int]:
        text = self.data.decode()
        reader = ExactReader(text, final=True)
        form = reader.next_form(self.closer)
        for _ in range(number):
            form = reader.next_form(self.closer)
        assert form is not None, "a piece has been read before"
        return _moved(text, form[0], self.line, self.column)


def _moved(text: str, position: int, line: int, column: int) -> tuple[int, int]:
    """Return line and column of `position` in `text`. The text begins at `line` and `column`."""
    breaks = text.count("\n", 0, position)
    if breaks:
        return line + breaks, position - text.rfind("\n", 0, position)
    return line, column + position


def _cut(buffer: bytes, span: int) -> int:
    """Return the length, at most `span`, of a prefix that probably ends after a form, or 0.

    Forms are similar: if the first form begins with `{:index`, later forms probably do, too. So the
    best place to cut is between the end of a map and the next `{:index`. The second best place is
    after the last map that ends a line or precedes another map.
    """
    first = _FIRST_WORD.match(buffer, 0, FIRST_BYTES_MAX)
    if first is not None:
        for between in (b"\n" + first[1], b" ", b", "):
            cut = buffer.rfind(b"}" + between + first[2], 0, span)
            if cut >= 0:
                return cut + (2 if between[:1] == b"\n" else 1)
    cut = buffer.rfind(b"}\n", 0, span) + 2
    if cut >= 2:
        return cut
    return max(buffer.rfind(b"} {", 0, span), buffer.rfind(b"}, {", 0, span)) + 1


def _closed(buffer: bytes) -> int:
    """Return where the last complete form in brackets ends, or 0. Slower than `_cut`, but exact."""
    depth = end = 0
    for match in _STRUCTURE.finditer(buffer):
        sign = match[0]
        if sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
            if depth < 0:
                break
            if depth == 0:
                end = match.end()
    return end


class _Stream:
    """Cuts a file into pieces."""

    def __init__(self, file: BinaryIO, source: str, *, unwrap: bool) -> None:
        self._file = file
        self._source = source
        self._unwrap = unwrap
        self._buffer = b""
        self._ended = False
        self._line = 1
        self._column = 1
        self._opened_at = (1, 1)
        self._closer = ""
        self._quick = QuickReader()
        self._span = BLOCK_BYTES

    def pieces(self) -> Iterator[Piece]:
        self._fill(BLOCK_BYTES)
        self._buffer = self._buffer.removeprefix(codecs.BOM_UTF8)
        if self._unwrap:
            self._open()
        while True:
            try:
                piece = self._quick_piece() or self._exact_piece()
            except MistakeError as mistake:
                raise self._error(mistake) from None
            if piece is not None:
                yield piece
            if self._ended and not self._buffer:
                break
            self._fill(BLOCK_BYTES)
        if self._closer:
            what = f"the file ends before this is closed by {self._closer!r}"
            raise located(self._source, *self._opened_at, what)

    def _fill(self, at_least: int) -> None:
        """Read until the buffer has `at_least` bytes, or the file ends."""
        while not self._ended and len(self._buffer) < at_least:
            block = self._file.read(max(BLOCK_BYTES, at_least - len(self._buffer)))
            self._ended = not block
            self._buffer += block

    def _open(self) -> None:
        """Skip the opening bracket of a history that is written as one collection."""
        while True:
            text = self._text()
            reader = ExactReader(text, final=self._ended)
            try:
                reader.skip()
            except UnfinishedError as end:
                self._grow(end)
                continue
            start = reader.position
            if start < len(text) or self._ended:
                break
            self._drop(text, start)
            self._fill(BLOCK_BYTES)
        if text[start : start + 1] in {"[", "("}:
            self._opened_at = _moved(text, start, self._line, self._column)
            self._closer = CLOSERS[text[start]]
            start += 1
        self._drop(text, start)

    def _text(self) -> str:
        try:
            return codecs.utf_8_decode(self._buffer, "strict", self._ended)[0]
        except UnicodeDecodeError as error:
            before = self._buffer[: error.start].decode()
            place = _moved(before, len(before), self._line, self._column)
            what = f"the byte {self._buffer[error.start]:#04x} is not UTF-8; is this a text file?"
            raise located(self._source, *place, what) from None

    def _drop(self, text: str, position: int) -> None:
        self._line, self._column = _moved(text, position, self._line, self._column)
        self._buffer = self._buffer[len(text[:position].encode()) :]

    def _quick_piece(self) -> Piece | None:
        """Read the next piece, up to the end of a form; `None` if the quick reader refuses it."""
        cut = _cut(self._buffer, self._span)
        if cut and (piece := self._quickly(cut)) is not None:
            self._span = min(2 * self._span, BLOCK_BYTES)
            return piece
        whole = self._whole()
        if whole not in {0, cut} and (piece := self._quickly(whole)) is not None:
            return piece
        self._span = max(self._span // 4, SPAN_BYTES_MIN)
        return None

    def _whole(self) -> int:
        """Read until the buffer has a complete form; returns the length of all that it has.

        Returns 0 for forms without brackets: only the exact reader finds where they end.
        """
        while not (whole := _closed(self._buffer[: self._span]) or _closed(self._buffer)):
            if self._ended:
                return 0
            if len(self._buffer) >= FORM_BYTES_MAX:
                self._require_no_bracket()
                return 0
            self._fill(max(BLOCK_BYTES, 2 * len(self._buffer)))
        return whole

    def _require_no_bracket(self) -> None:
        """Raise `HistoryError` if the full buffer is one unfinished comment or bracketed form."""
        reader = ExactReader(self._text(), final=False)
        try:
            reader.skip()
        except UnfinishedError as comment:
            self._grow(comment)
        if reader.text[reader.position] in CLOSERS:
            self._grow(UnfinishedError("", reader.position))

    def _quickly(self, cut: int) -> Piece | None:
        """Read the first `cut` bytes as a piece; `None` if the quick reader refuses them."""
        data = self._buffer[:cut]
        try:
            forms = self._quick.forms(data)
        except QuickRefusedError:
            return None
        piece = Piece(forms, data, self._line, self._column, self._source, self._closer)
        breaks = data.count(b"\n")
        tail = data[data.rfind(b"\n") + 1 :].decode()
        self._line += breaks
        self._column = len(tail) + (1 if breaks else self._column)
        self._buffer = self._buffer[cut:]
        return piece

    def _exact_piece(self) -> Piece | None:
        """Read a piece exactly; `None` if no form is left, or the buffer had to grow."""
        text = self._text()
        reader = ExactReader(text, final=self._ended)
        forms: list[Any] = []
        stopped: UnfinishedError | None = None
        form: tuple[int, Any] | None = None
        try:
            while (form := reader.next_form(self._closer)) is not None:
                forms.append(form[1])
                if reader.position >= self._span:
                    break
        except UnfinishedError as end:
            stopped = end
        if stopped is not None and not forms:
            self._grow(stopped)
            return None
        data = text[: reader.position].encode()
        piece = Piece(forms, data, self._line, self._column, self._source, self._closer)
        closed = stopped is None and form is None and reader.position < len(text)
        self._drop(text, reader.position)
        if closed:
            self._buffer = self._buffer[1:]
            self._column += 1
            self._closer = ""
            self._finish()
        return piece if forms else None

    def _finish(self) -> None:
        """Require that only blanks and comments follow the closing bracket."""
        while True:
            text = self._text()
            reader = ExactReader(text, final=self._ended)
            try:
                form = reader.next_form()
            except UnfinishedError as end:
                self._grow(end)
                continue
            if form is not None:
                what = "something follows the bracket that closed the history"
                raise MistakeError(what, form[0])
            self._drop(text, len(text))
            if self._ended:
                return
            self._fill(BLOCK_BYTES)

    def _grow(self, end: UnfinishedError) -> None:
        """Double the buffer; raises `HistoryError` at the end of the file or at the size limit."""
        if self._ended:
            raise self._error(end)
        if len(self._buffer) >= FORM_BYTES_MAX:
            end.what = (
                f"this goes on for more than {FORM_BYTES_MAX >> 20} MiB; "
                "one operation must be shorter"
            )
            raise self._error(end)
        self._fill(2 * len(self._buffer))

    def _error(self, stop: StoppedError) -> HistoryError:
        """Return the error of a reader that stopped, with the position in the file."""
        place = _moved(self._text(), stop.position, self._line, self._column)
        return located(self._source, *place, stop.what)


def stream_pieces(path: Path, *, unwrap: bool = True) -> Iterator[Piece]:
    """Yield the forms of a file in pieces.

    With `unwrap`, a file that begins with `[` or `(` is one collection, and its elements are
    yielded. Raises `HistoryError` with the position of a mistake.
    """
    try:
        with path.open("rb") as file:
            yield from _Stream(file, str(path), unwrap=unwrap).pieces()
    except OSError as error:
        raise HistoryError(f"cannot read {str(path)!r}: {error.strerror}") from error


def parse_forms(text: str, source: str = "EDN") -> Iterator[Any]:
    """Yield the forms of `text` as plain data; raises `HistoryError` with line and column."""
    reader = ExactReader(text, final=True)
    try:
        while (form := reader.next_form()) is not None:
            yield form[1]
    except StoppedError as stop:
        raise located(source, *_moved(text, stop.position, 1, 1), stop.what) from None
