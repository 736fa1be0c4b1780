"""Reads logs with one op per line: Jepsen's `history.txt`, console output and `jepsen.log`.

    0   :invoke :write  1
    0   :info   :write  1       :timeout
    2026-01-01 10:00:00,000{GMT}  INFO  [jepsen worker 0] jepsen.util: 0  :invoke  :write  1
    INFO  jepsen.util - 0    :invoke :cas    [3 1]

An op has a process, a type, an operation, a value in EDN, and perhaps an error, separated by tabs
or blanks. If the first line of a file begins with an op, every line must be an op. In other files,
ops may occur anywhere, and other lines are skipped. A line that begins like an op but is malformed
is refused, since a missing op changes verdicts.

`jepsen.util -` is the log format of Jepsen in 2014, which Porcupine's test logs have. In these logs
a `:fail` may be an observation (a compare-and-set found another value), or may mean that nothing
happened. It is kept, and the model decides. A value of `:timed-out` is the op's error.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness.errors import HistoryError, located
from harness.formats.edn.exact_reader import ExactReader, StoppedError
from harness.formats.edn.jepsen import op_of
from harness.formats.source import numbered_lines
from harness.ops import Op, OpType, Pairing

_TYPES: Final = "|".join(kind.value for kind in OpType)
_REST: Final = (
    rf"(?P<type>:(?:{_TYPES}))\s+"
    r"(?P<f>:[^\x00-\x20,;\"()\[\]{}]+|\"[^\"\\]*\")(?:\s+(?P<value>\S.*))?"
)
_WHOLE: Final = re.compile(rf"\s*(?P<process>-?[0-9]+|:[\w.-]+)\s+{_REST}")
# Inside a longer line, only the nemesis may have a name: `:type :ok :f` is part of a map.
_WITHIN: Final = re.compile(rf".*?(?<!\S)(?P<process>-?[0-9]+|:nemesis)\s+{_REST}")
_LOGGED: Final = re.compile(r".*?\bjepsen\.util(?P<dash>\s+-\s+|:\s+)")
_MEANT: Final = re.compile(r"-?[0-9]+(?:\s+:|\s*\Z)|\S+\s+:\S+\s+:")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_TIMED_OUT: Final = ":timed-out"
SEARCHED_BYTES_MAX: Final = 64 << 20


def begins_log(head: bytes) -> bool:
    """Whether the first line of a file that begins with `head` is an op; a prefix is allowed."""
    first = head.lstrip().split(b"\n", 1)[0].decode(errors="replace").strip()
    return _LOGGED.match(first) is not None or _WHOLE.fullmatch(first) is not None


def has_op_lines(path: Path) -> bool:
    """Whether any line in the file's first 64 MiB contains an op."""
    size = 0
    try:
        for _, text in numbered_lines(path):
            size += len(text)
            if size > SEARCHED_BYTES_MAX:
                return False
            if " :" in text or "\t:" in text:
                logged = _LOGGED.match(text)
                if _WITHIN.fullmatch(text, logged.end() if logged else 0) is not None:
                    return True
    except HistoryError:  # the file is not text
        pass
    return False


class OpLines:
    """The ops of one log file. The constructor reads the file to find out its `format`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = array("Q")
        self._columns = array("Q")
        self._pure = False
        self.format = "jepsen-log"
        for number, (_, text) in enumerate(numbered_lines(path)):
            logged = _LOGGED.match(text)
            if logged is not None and _WHOLE.fullmatch(text, logged.end()) is not None:
                if "-" in logged["dash"]:
                    self.format = "porcupine-etcd"
                break
            if _WITHIN.fullmatch(text) is not None:
                self._pure = number == 0 and _WHOLE.fullmatch(text) is not None
                break

    def __iter__(self) -> Iterator[Op]:
        pairing = Pairing(foreign=True)
        self._lines, self._columns = array("Q"), array("Q")
        torn: tuple[int, int] | None = None
        for line, text in numbered_lines(self._path):
            torn = None
            match = self._match(line, text.rstrip())
            if match is None:
                continue
            column = match.start("process") + 1
            try:
                op = op_of(self._form(match, line), len(self._lines))
                pairing.take(op)
            except HistoryError as error:
                if str(self._path) in str(error):
                    raise
                raise located(self._path, line, column, str(error)) from error
            self._lines.append(line)
            self._columns.append(column)
            yield op
            torn = None if match["value"] or not op.is_client else (line, column)
        if torn is not None and self._is_unfinished():
            what = "the file ends before the value of this op; remove a line that was cut off"
            raise located(self._path, *torn, what)

    def _is_unfinished(self) -> bool:
        """Whether the last line of the file has no end."""
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() not in {b"\n", b"\r"}

    def position(self, index: int) -> tuple[int, int] | None:
        if index >= len(self._lines):
            return None
        return self._lines[index], self._columns[index]

    def _match(self, line: int, text: str) -> re.Match[str] | None:
        """Match the op in a line, or return `None`; raises `HistoryError` for a malformed op."""
        logged = _LOGGED.match(text)
        start = 0 if logged is None else logged.end()
        is_op = _WITHIN if logged is None and not self._pure else _WHOLE
        match = is_op.fullmatch(text, start)
        if match is None and (self._pure or (logged and _MEANT.match(text, start))):
            what = f"{text[start:][:80]!r} is not an op; a line is PROCESS :TYPE :OPERATION VALUE, "
            expected = (
                f"where a process is a number, and a type one of :{_TYPES.replace('|', ', :')}"
            )
            raise located(self._path, line, start + 1, what + expected)
        return match

    def _form(self, match: re.Match[str], line: int) -> dict[str, Any]:
        process, kind, text = match["process"], match["type"], match["value"] or "nil"
        values: list[Any]
        if _NUMBER.fullmatch(text) and str(int(text)) == text:
            values = [int(text)]
        elif kind in {":fail", ":info"} and text == _TIMED_OUT and self.format == "porcupine-etcd":
            values = [None, text]
        else:
            values = self._read(match, line, text)
        form = {
            ":process": int(process) if _NUMBER.fullmatch(process) else process,
            ":type": kind,
            ":f": match["f"].strip('"'),
            ":value": values[0] if values else None,
        }
        if len(values) > 1:
            if kind in {":invoke", ":ok"} and not process.startswith(":"):
                what = f"{text[:80]!r} is more than one value"
                raise located(self._path, line, match.start("value") + 1, what)
            form[":error"] = values[1] if len(values) == 2 else values[1:]
        return form

    def _read(self, match: re.Match[str], line: int, text: str) -> list[Any]:
        """Read the EDN forms after an op's operation; raises `HistoryError` if the text is not EDN.

        Such a text stays a string in only two places: as the value of a process with a name, and
        after the first form of a failed or indeterminate op.
        """
        reader = ExactReader(text, final=True)
        values: list[Any] = []
        try:
            while (form := reader.next_form()) is not None:
                values.append(form[1])
        except StoppedError as stop:
            if match["process"].startswith(":"):
                return [text]
            if not values or match["type"] in {":invoke", ":ok"}:
                column = match.start("value") + stop.position + 1
                raise located(self._path, line, column, stop.what) from stop
            values.append(text[reader.position :].strip())
        return values
