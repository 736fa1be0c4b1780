"""Jepsen's histories in EDN: reading theirs, writing ours.

A file holds op maps, one after another or inside one vector or list, as `history.edn` and
`jepsen.history` write them (`jepsen/src/jepsen/store.clj`). Keywords and strings both become
strings; the identifiers among our map keys are written as keywords, so that Clojure code can
destructure them, and everything we write we read back equal. What an op carries beyond Jepsen's own
fields (`node`, `attempts`) goes along as extra keys; `key`, as in Porcupine's logs, makes the value
a pair of key and value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from harness.errors import HistoryError, shown
from harness.ops import Attempt, History, Op, OpType, Pairing
from harness.store.edn_forms import stream_pieces

__all__ = ["EdnOps", "load_edn", "write_edn"]

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NAME_CHARS_MAX: Final = 200
_TYPES: Final = {kind.value: kind for kind in OpType}


class EdnOps:
    """The ops of a file, one at a time; every use of it reads the file anew.

    Raises `HistoryError` with line and column for text that is no EDN, forms that are no ops, and
    ops that no set of clients can have made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Op]:
        pairing = Pairing(foreign=True)
        position = 0
        for piece in stream_pieces(self._path):
            for number, form in enumerate(piece.forms):
                try:
                    op = _op(form, position)
                    pairing.take(op)
                except HistoryError as error:
                    raise piece.error(number, str(error)) from error
                yield op
                position += 1

    def position(self, index: int) -> tuple[int, int] | None:
        """Line and column of the op with this index."""
        position = 0
        for piece in stream_pieces(self._path):
            for number, form in enumerate(piece.forms):
                if _op(form, position).index == index:
                    return piece.position(number)
                position += 1
        return None


def load_edn(path: Path | str) -> History:
    """Read a Jepsen history; raises `HistoryError` that says where it is wrong."""
    return History(EdnOps(Path(path)), foreign=True)


def _op(form: Any, position: int) -> Op:
    """The op that `form` describes, the one number `position` of its file (from 0)."""
    if not isinstance(form, dict):
        raise HistoryError(f"op {position} is {shown(form)}, not a map of an op")
    try:
        kind = _TYPES[form["type"]]
        process = form["process"]
        # Elle looks at values alone, so its histories may leave f out.
        f = form.get("f", "txn") if "value" in form else form["f"]
    except (KeyError, TypeError):
        raise _incomplete(form, position) from None
    if not isinstance(f, str) or len(f) > _NAME_CHARS_MAX:
        raise HistoryError(f"op {position} is malformed: its f is {shown(f)}, not a name")
    # What begins like a number but is none must not pass for a fault injector, which is left out.
    if type(process) is not int and (
        not isinstance(process, str) or process.lstrip("+-")[:1].isdigit()
    ):
        raise HistoryError(
            f"op {position} is malformed: its process is {shown(process)}, "
            "neither a number nor a name"
        )
    value = form.get("value")
    if "key" in form:
        value = [form["key"], value]
    error = form.get("error")
    if error is not None and not isinstance(error, str):
        error = msgspec.json.encode(error).decode()
    node = form.get("node")
    attempts = form.get("attempts")
    try:
        return Op(
            _whole(form.get("index"), position),
            _whole(form.get("time"), position),
            process,
            kind,
            f,
            value,
            error,
            node if node is None or isinstance(node, str) else msgspec.json.encode(node).decode(),
            () if attempts is None else msgspec.convert(attempts, tuple[Attempt, ...]),
        )
    except (TypeError, msgspec.ValidationError) as failure:
        raise HistoryError(f"op {position} is malformed: {failure}") from failure


def _incomplete(form: dict[str, Any], position: int) -> HistoryError:
    missing = [name for name in ("process", "type", "f") if name not in form]
    if missing:
        return HistoryError(f"op {position} lacks {', '.join(missing)}")
    return HistoryError(
        f"op {position} is malformed: its type is {shown(form['type'])}; "
        f"it must be one of {', '.join(_TYPES)}"
    )


def _whole(value: Any, default: int) -> int:
    if value is None:
        return default
    if type(value) is not int:
        raise TypeError(f"{shown(value)} is not a whole number")
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
        return msgspec.json.encode(value).decode()
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(_edn(item) for item in value)}]"
    if isinstance(value, dict):
        pairs = [f"{_name(str(key))} {_edn(item)}" for key, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    raise HistoryError(
        f"a value of type {type(value).__name__} cannot be written as EDN: {value!r}"
    )
