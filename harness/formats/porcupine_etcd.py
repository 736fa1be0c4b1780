"""Porcupine's etcd logs: one event a line, as Jepsen logged them in 2014.

    INFO  jepsen.util - 0    :invoke :cas    [3 1]

A fixed prefix, then process, type, operation and value, separated by tabs or blanks. `:fail` is
kept: whether it is an observation (a compare-and-set that found another value) or means that
nothing happened is for the model to say. A value of `:timed-out` becomes the op's error.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness.errors import HistoryError, located
from harness.formats.source import numbered_lines
from harness.ops import Op, OpType, Pairing

__all__ = ["EtcdLog", "is_etcd_log"]

_LINE: Final = re.compile(
    r"(?P<prefix>.*?\bjepsen\.util\s+-\s+)"
    r"(?P<process>\S+)\s+(?P<type>\S+)\s+(?P<f>\S+)(?:\s+(?P<value>\S.*))?"
)
_PREFIX: Final = re.compile(rb"[^\n]{0,200}?\bjepsen\.util\s+-\s")
_TYPES: Final = {f":{kind.value}": kind for kind in OpType}
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_PAIR: Final = re.compile(r"\[\s*(-?[0-9]{1,18})[\s,]+(-?[0-9]{1,18})\s*\]")
_TIMED_OUT: Final = ":timed-out"
_OPERATIONS: Final = (":read", ":write", ":cas")


def is_etcd_log(head: bytes) -> bool:
    """Whether a file that begins like this is such a log."""
    return _PREFIX.match(head.lstrip()) is not None


class EtcdLog:
    """One such log."""

    format = "porcupine-etcd"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = array("Q")
        self._column = 1

    def __iter__(self) -> Iterator[Op]:
        pairing = Pairing(foreign=True)
        self._lines = array("Q")
        for line, text in numbered_lines(self._path):
            match = _LINE.fullmatch(text.rstrip())
            if match is None:
                raise located(
                    self._path,
                    line,
                    1,
                    f"{text[:80]!r} is not an event; a line is "
                    "'INFO  jepsen.util - PROCESS :TYPE :OPERATION VALUE'",
                )
            op = self._op(match, line, len(self._lines))
            try:
                pairing.take(op)
            except HistoryError as error:
                raise self._error(match, "process", line, str(error)) from error
            self._lines.append(line)
            self._column = match.start("process") + 1
            yield op

    def position(self, index: int) -> tuple[int, int] | None:
        """Where the op with this index stands."""
        return (self._lines[index], self._column) if index < len(self._lines) else None

    def _error(self, match: re.Match[str], group: str, line: int, what: str) -> HistoryError:
        return located(self._path, line, max(match.start(group), 0) + 1, what)

    def _op(self, match: re.Match[str], line: int, index: int) -> Op:
        process, kind, f = match["process"], match["type"], match["f"]
        if kind not in _TYPES:
            known = ", ".join(_TYPES)
            raise self._error(match, "type", line, f"{kind!r} is not a type; it is {known}")
        if process.startswith(":") and len(process) > 1:
            return Op(index, index, process[1:], _TYPES[kind], f.removeprefix(":"), match["value"])
        if not _NUMBER.fullmatch(process):
            raise self._error(match, "process", line, f"{process!r} is not a process number")
        if f not in _OPERATIONS:
            known = ", ".join(_OPERATIONS)
            raise self._error(match, "f", line, f"{f!r} is not an operation of a register: {known}")
        text = match["value"] or "nil"
        lost = text == _TIMED_OUT and kind in {":fail", ":info"}
        return Op(
            index,
            index,
            int(process),
            _TYPES[kind],
            f[1:],
            None if lost else self._value(match, line, text),
            "timed-out" if lost else None,
        )

    def _value(self, match: re.Match[str], line: int, text: str) -> Any:
        f = match["f"]
        if f == ":cas":
            pair = _PAIR.fullmatch(text)
            if pair is None:
                raise self._error(
                    match, "value", line, f"{text[:80]!r} is not a value of :cas; it is [old new]"
                )
            return [int(pair[1]), int(pair[2])]
        if f == ":read" and text == "nil":
            return None
        if not _NUMBER.fullmatch(text):
            raise self._error(
                match, "value", line, f"{text[:80]!r} is not a value of {f}; it is a whole number"
            )
        return int(text)
