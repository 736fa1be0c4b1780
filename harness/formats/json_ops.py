"""Reads histories in JSON: an array of ops, or one op per line, as elle-cli and others write them.

    {"process": 0, "type": "invoke", "f": "txn", "value": [["append", "x", 1]], "index": 0}

The keys are Jepsen's. Strings stay strings. Only the keys of ops and the names of types, operations
and micro-operations may begin with a colon.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness.errors import HistoryError, located, shown
from harness.formats.edn.jepsen import op_of
from harness.ops import Op, Pairing
from harness.vocabularies.edn import without_colons

FILE_BYTES_MAX: Final = 256 << 20
_BEGINNING: Final = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?P<array>\[\s*)?\{\s*"[^"\\\n]*"\s*:')
_BLANKS: Final = re.compile(r"[\s,]*")


def begins_json(head: bytes) -> bool:
    """Whether a file that begins with `head` is JSON with an object, perhaps in an array."""
    return _BEGINNING.match(head) is not None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object with the key {twice!r} twice")
    return entries


def _float(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise ValueError(f"the number {text[:60]} is out of range")
    return number


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float)


class JsonOps:
    """A history file in JSON."""

    format = "json"

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Op]:
        pairing = Pairing(foreign=True)
        for position, (form, line, column) in enumerate(self._objects()):
            try:
                op = _op(form, position)
                pairing.take(op)
            except HistoryError as error:
                raise located(self._path, line, column, str(error)) from error
            yield op

    def position(self, index: int) -> tuple[int, int] | None:
        for position, (form, line, column) in enumerate(self._objects()):
            if _op(form, position).index == index:
                return line, column
        return None

    def _objects(self) -> Iterator[tuple[Any, int, int]]:
        """Yield the values in the file, or in the file's array, with line and column."""
        text = self._text()
        start = _blanks(text, 0)
        is_array = text.startswith("[", start)
        position = start + is_array
        line, counted = 1, 0
        while (position := _blanks(text, position)) < len(text):
            if is_array and text[position] == "]":
                break
            line += text.count("\n", counted, position)
            counted = position
            column = position - text.rfind("\n", 0, position)
            try:
                form, position = _DECODER.raw_decode(text, position)
            except json.JSONDecodeError as error:
                raise located(self._path, error.lineno, error.colno, error.msg) from error
            except ValueError as error:
                raise located(self._path, line, column, str(error)) from error
            except RecursionError:
                raise located(self._path, line, column, "this is nested too deeply") from None
            yield form, line, column
        if is_array and (position >= len(text) or _blanks(text, position + 1) < len(text)):
            line = 1 + text.count("\n", 0, position)
            what = "the file must end where the array of ops ends"
            raise located(self._path, line, position - text.rfind("\n", 0, position), what)

    def _text(self) -> str:
        try:
            with self._path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise HistoryError(f"cannot read {str(self._path)!r}: {error.strerror}") from error
        if len(data) > FILE_BYTES_MAX:
            raise HistoryError(
                f"{str(self._path)!r} is longer than {FILE_BYTES_MAX >> 20} MiB of JSON; write it "
                "as EDN, which is read as a stream"
            )
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = data[: error.start]
            column = len(before[before.rfind(b"\n") + 1 :].decode()) + 1
            what = f"the byte {data[error.start]:#04x} is not UTF-8"
            raise located(self._path, before.count(b"\n") + 1, column, what) from error


def _blanks(text: str, position: int) -> int:
    match = _BLANKS.match(text, position)
    assert match is not None, "the pattern matches the empty text, too"
    return match.end()


def _op(form: Any, position: int) -> Op:
    if not isinstance(form, dict):
        raise HistoryError(f"op {position} is {shown(form)}, not a JSON object with an op's fields")
    fields = {name if name[:1] == ":" else f":{name}": value for name, value in form.items()}
    if len(fields) < len(form):
        raise HistoryError(f"op {position} has a key twice, with a colon and without")
    try:
        json.dumps(form, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise HistoryError(f"op {position} holds half a surrogate pair") from None
    except ValueError:
        if type(fields.get(":process")) is int and _named(value := fields.get(":value")) != value:
            raise HistoryError(
                f"op {position}: NaN and Infinity are not JSON; write null, or a number"
            ) from None
        fields = _named(fields)
    return op_of(fields, position, without_colons)


def _named(value: Any) -> Any:
    """Replace NaN and infinities by their names, in values that are only displayed."""
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
