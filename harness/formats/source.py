"""The common base of all formats: a file as ops, and the position of each op in the file."""

from __future__ import annotations

import abc
import codecs
import heapq
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from harness.errors import HistoryError, located
from harness.ops import Op, OpType

LINE_BYTES_MAX: Final = 1 << 20


class Source(Protocol):
    """A file with a history. Every iteration reads the file again.

    Raises `HistoryError` with line and column for anything that cannot be parsed.
    """

    format: str

    def __iter__(self) -> Iterator[Op]: ...

    def position(self, index: int) -> tuple[int, int] | None:
        """Return line and column (from 1) of the op with this index, if the format has lines."""
        ...


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each line that is not blank, as its number (from 1) and its text without line end.

    Raises `HistoryError` for lines longer than `LINE_BYTES_MAX` and for bytes that are not UTF-8.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LINE_BYTES_MAX + 1):
                number += 1
                if len(line) > LINE_BYTES_MAX:
                    raise located(
                        path, number, LINE_BYTES_MAX + 1, "this line is longer than 1 MiB"
                    )
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                try:
                    text = line.decode().rstrip("\r\n")
                except UnicodeDecodeError as error:
                    column = len(line[: error.start].decode()) + 1
                    byte = line[error.start]
                    raise located(path, number, column, f"the byte {byte:#04x} is not UTF-8") from (
                        error
                    )
                if text and not text.isspace():
                    yield number, text
    except OSError as error:
        raise HistoryError(f"cannot read {str(path)!r}: {error.strerror}") from error


class Row(NamedTuple):
    """One line of a table: an operation. `returned` is `None` if the answer was lost."""

    line: int
    call: int
    returned: int | None
    f: str
    value: Any
    answer: Any


class Table(abc.ABC):
    """A file in which each line is an operation with its start and end.

    Starts and ends become ops in the order of their times. Intervals are closed: at equal times,
    calls come before returns. Tables do not name processes, so each operation gets the lowest
    process number that is free at its call. Operations that never return keep their number.
    """

    format: str

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = array("Q")  # the line of each op, by the op's index

    def __iter__(self) -> Iterator[Op]:
        """Yield invocations and completions with the table's times, in the table's unit."""
        rows = [self._row(line, text) for line, text in numbered_lines(self._path)]
        self._lines = array("Q")
        events = [(row.call, 0, number) for number, row in enumerate(rows)]
        events += [
            (row.returned, 1, number) for number, row in enumerate(rows) if row.returned is not None
        ]
        events.sort()
        free: list[int] = []
        processes: dict[int, int] = {}
        used = 0
        for index, (time, kind, number) in enumerate(events):
            row = rows[number]
            self._lines.append(row.line)
            if kind == 0:
                if free:
                    process = heapq.heappop(free)
                else:
                    process, used = used, used + 1
                processes[number] = process
                yield Op(index, time, process, OpType.INVOKE, row.f, row.value)
            else:
                process = processes.pop(number)
                heapq.heappush(free, process)
                yield Op(index, time, process, OpType.OK, row.f, row.answer)

    def position(self, index: int) -> tuple[int, int] | None:
        """Return line and column of the operation whose start or end is the op with this index."""
        return (self._lines[index], 1) if index < len(self._lines) else None

    @abc.abstractmethod
    def _row(self, line: int, text: str) -> Row:
        """Parse the operation in one line; raises `HistoryError` with the position of a mistake."""
