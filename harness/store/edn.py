"""Jepsen's histories in EDN: reading theirs, writing ours.

A file holds op maps, one after another or inside one vector or list, as `history.edn` and
`jepsen.history` write them (`jepsen/src/jepsen/store.clj`). Keywords and strings both become
strings; the identifiers among our map keys are written as keywords, so that Clojure code can
destructure them, and everything we write we read back equal. What an op carries beyond Jepsen's own
fields (`node`, `attempts`) goes along as extra keys.

The grammar is that of https://github.com/edn-format/edn: nil, booleans, numbers, characters,
strings, symbols, keywords, lists, vectors, maps, sets, tagged elements (the tag is dropped),
comments and discards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from harness.errors import HistoryError
from harness.ops import Attempt, History, Op, OpType

__all__ = ["load_edn", "parse_edn", "write_edn"]

DEPTH_MAX: Final = 200
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SKIP: Final = re.compile(r"(?:[\s,]+|;[^\n]*)+")
_TOKEN: Final = re.compile(r"[^\s,;\"()\[\]{}]+")
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_INTEGER: Final = re.compile(r"[+-]?\d+N?")
_FLOAT: Final = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?M?")
_ESCAPES: Final = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "b": "\b", "f": "\f"}
_CLOSERS: Final = {"(": ")", "[": "]", "{": "}"}
_CHARACTERS: Final = {"newline": "\n", "space": " ", "tab": "\t", "return": "\r"}
_DISCARD: Final = object()


class _Reader:
    """A recursive-descent parser over one text, with a bound on depth."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.position = 0

    def error(self, what: str, position: int | None = None) -> HistoryError:
        at = self.position if position is None else position
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        return HistoryError(f"{self.source}, line {line}, column {column}: {what}")

    def forms(self) -> Iterator[Any]:
        """Every form of the text, one after another."""
        while True:
            self._skip()
            if self.position >= len(self.text):
                return
            form = self._form(0)
            if form is not _DISCARD:
                yield form

    def _skip(self) -> None:
        match = _SKIP.match(self.text, self.position)
        if match is not None:
            self.position = match.end()

    def _form(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise self.error(f"nested deeper than {DEPTH_MAX} levels")
        char = self.text[self.position]
        if char == '"':
            return self._string()
        if char in _CLOSERS:
            start = self.position
            self.position += 1
            items = self._items(_CLOSERS[char], depth, start)
            return self._map(items, start) if char == "{" else items
        if char == "#":
            return self._dispatch(depth)
        if char in ")]}":
            raise self.error(f"{char!r} closes nothing")
        return self._atom()

    def _items(self, closer: str, depth: int, start: int) -> list[Any]:
        items: list[Any] = []
        while True:
            self._skip()
            if self.position >= len(self.text):
                raise self.error(f"the file ends before this is closed by {closer!r}", start)
            if self.text[self.position] == closer:
                self.position += 1
                return items
            form = self._form(depth + 1)
            if form is not _DISCARD:
                items.append(form)

    def _map(self, items: list[Any], start: int) -> dict[str, Any]:
        if len(items) % 2:
            raise self.error("a map with a key that has no value", start)
        keys = [item if isinstance(item, str) else _plain_text(item) for item in items[::2]]
        return dict(zip(keys, items[1::2], strict=True))

    def _dispatch(self, depth: int) -> Any:
        start = self.position
        following = self.text[start + 1 : start + 2]
        if following == "{":
            self.position += 2
            return self._items("}", depth, start)
        self.position += 2 if following == "_" else 1
        if following != "_":
            token = _TOKEN.match(self.text, self.position)
            if token is None:
                raise self.error("'#' without a tag", start)
            self.position = token.end()
        self._skip()
        if self.position >= len(self.text):
            raise self.error("the file ends before the tagged element", start)
        form = self._form(depth + 1)
        return _DISCARD if following == "_" else form

    def _string(self) -> str:
        match = _STRING.match(self.text, self.position)
        if match is None:
            raise self.error("a string that is not closed")
        start = self.position
        self.position = match.end()
        if "\\" not in match[1]:
            return match[1]

        def unescape(escape: re.Match[str]) -> str:
            code = escape[1]
            if code[0] == "u" and len(code) == 5:
                return chr(int(code[1:], 16))
            if code not in _ESCAPES:
                raise self.error(f"the escape \\{code} is unknown in EDN", start)
            return _ESCAPES[code]

        return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", unescape, match[1], flags=re.DOTALL)

    def _atom(self) -> Any:
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            raise self.error(f"{self.text[self.position]!r} begins nothing in EDN")
        token, start = match[0], self.position
        self.position = match.end()
        if token in {"nil", "true", "false"}:
            return {"nil": None, "true": True, "false": False}[token]
        if token.startswith(":"):
            if len(token) == 1:
                raise self.error("a keyword without a name", start)
            return token[1:]
        if token.startswith("\\"):
            return _CHARACTERS.get(token[1:], token[1:])
        if _INTEGER.fullmatch(token):
            return int(token.rstrip("N"))
        if _FLOAT.fullmatch(token):
            return float(token.rstrip("M"))
        return token


def _plain_text(item: Any) -> str:
    return msgspec.json.encode(item).decode()


def parse_edn(text: str, source: str = "EDN") -> Iterator[Any]:
    """The forms of `text` as plain data; raises `HistoryError` with line and column."""
    return _Reader(text, source).forms()


def load_edn(path: Path) -> History:
    """Read a Jepsen history; raises `HistoryError` that says where it is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise HistoryError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise HistoryError(f"{str(path)!r} is no UTF-8 text: {error}") from error
    forms = list(parse_edn(text, str(path)))
    if len(forms) == 1 and isinstance(forms[0], list):
        forms = forms[0]
    return History(_ops(forms, str(path)))


def _ops(forms: Iterable[Any], source: str) -> Iterator[Op]:
    for position, form in enumerate(forms):
        if not isinstance(form, dict):
            raise HistoryError(f"{source}: entry {position} is {form!r}, not a map of an op")
        missing = [key for key in ("process", "type", "f") if key not in form]
        if missing:
            raise HistoryError(f"{source}: op {position} lacks {', '.join(missing)}")
        error = form.get("error")
        try:
            yield Op(
                index=_whole(form.get("index"), position),
                time=_whole(form.get("time"), position),
                process=form["process"]
                if isinstance(form["process"], int)
                else str(form["process"]),
                type=OpType(form["type"]),
                f=str(form["f"]),
                value=form.get("value"),
                error=error if error is None or isinstance(error, str) else _plain_text(error),
                node=form.get("node"),
                attempts=msgspec.convert(form.get("attempts", []), tuple[Attempt, ...]),
            )
        except (ValueError, TypeError, msgspec.ValidationError) as failure:
            raise HistoryError(f"{source}: op {position} is malformed: {failure}") from failure


def _whole(value: Any, default: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value


def write_edn(history: History, file: TextIO) -> None:
    """Write one op map a line."""
    for op in history:
        fields = [
            f":index {op.index}",
            f":time {op.time}",
            f":process {op.process if isinstance(op.process, int) else f':{op.process}'}",
            f":type :{op.type.value}",
            f":f {_name(op.f)}",
            f":value {_edn(op.value)}",
        ]
        if op.error is not None:
            fields.append(f":error {_edn(op.error)}")
        if op.node is not None:
            fields.append(f":node {_edn(op.node)}")
        if op.attempts:
            attempts = [msgspec.structs.asdict(attempt) for attempt in op.attempts]
            fields.append(f":attempts {_edn(attempts)}")
        file.write(f"{{{', '.join(fields)}}}\n")


def _name(text: str) -> str:
    return f":{text}" if _IDENTIFIER.fullmatch(text) else _edn(text)


def _edn(value: Any) -> str:
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return msgspec.json.encode(value).decode().replace("\\/", "/")
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(_edn(item) for item in value)}]"
    if isinstance(value, dict):
        pairs = [f"{_name(str(key))} {_edn(item)}" for key, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    raise HistoryError(
        f"a value of type {type(value).__name__} cannot be written as EDN: {value!r}"
    )
