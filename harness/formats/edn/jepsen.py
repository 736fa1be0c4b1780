"""Jepsen's histories in EDN: a reader for them, and a writer for histories of the harness.

A file contains op maps, one after another or inside one vector or list, as in `history.edn` and in
files of `jepsen.history` (`jepsen/src/jepsen/store.clj`). Values keep EDN's types in plain JSON
(`harness.vocabularies.edn` describes the forms): `:x` is `":x"`, `"x"` is `"x"`, `#{2 1}` is
`{"#{}": [1, 2]}`, `0.10M` is `"#0.1M"`, `{:x 1}` is `{"x": 1}`, and `[[:append :x 1]]` is
`[["append", ":x", 1]]`. So values that differ in EDN are also unequal in Python, except for 1 and
1.0, which are an int and a float.

The writer writes map keys that are identifiers as keywords, so that Clojure code can destructure
them. If its output is read again, the values are equal to the originals. Fields that Jepsen's ops
do not have (`node`, `attempts`) become extra keys. If an op has a `:key`, as in Porcupine's logs,
its value becomes a pair of key and value. The module `extras` handles fields that only some of
Jepsen's tests have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from harness.errors import HistoryError, shown
from harness.formats.edn.extras import with_extras
from harness.formats.edn.forms import stream_pieces
from harness.ops import Attempt, History, Op, OpType, Pairing
from harness.vocabularies.edn import edn_of, loose, settled

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NAME_CHARS_MAX: Final = 200
_NAN: Final = b'"##NaN"'
_HEXADECIMAL: Final = b"\"#'0x"
_FIELDS_MIN: Final = 4  # process, type, f and value
_TYPES: Final = {name: kind for kind in OpType for name in (kind.value, f":{kind.value}")}


class EdnOps:
    """The ops of a file in EDN. Every iteration and every `position` reads the file again.

    Raises `HistoryError` with line and column for text that is not EDN, forms that are not ops, and
    ops that no clients could produce. If no op has a process, they all belong to one client.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Op]:
        pairing = Pairing(foreign=True)
        position = 0
        nameless = False
        for piece in stream_pieces(self._path):
            suspect = b"##NaN" in piece.data or b"0x" in piece.data
            value_of = comparable if suspect else settled
            for number, form in enumerate(piece.forms):
                try:
                    if not position:
                        nameless = _lacks_process(form)
                    whole = _of_one_client(form, position) if nameless else form
                    op = op_of(whole, position, value_of)
                    pairing.take(op)
                except HistoryError as error:
                    raise piece.error(number, str(error)) from error
                yield op
                position += 1

    def position(self, index: int) -> tuple[int, int] | None:
        position = 0
        for piece in stream_pieces(self._path):
            for number, form in enumerate(piece.forms):
                whole = _of_one_client(form, position) if _lacks_process(form) else form
                if op_of(whole, position).index == index:
                    return piece.position(number)
                position += 1
        return None


def load_edn(path: Path | str) -> History:
    """Read a Jepsen history; raises `HistoryError` with the position of a mistake."""
    return History(EdnOps(Path(path)), foreign=True)


def _lacks_process(form: Any) -> bool:
    return isinstance(form, dict) and ":process" not in form and ":type" in form


def _of_one_client(form: Any, position: int) -> Any:
    """Add the process 0 to an op of a file without processes. Such a file has only one client."""
    if isinstance(form, dict) and ":process" in form:
        raise HistoryError(f"op {position} has a process, but the ops before it have none")
    return {**form, ":process": 0} if _lacks_process(form) else form


def comparable(value: Any) -> Any:
    """Convert a client's value to plain JSON; raises `HistoryError` if checks cannot compare it.

    Checks cannot compare NaN, which equals nothing. Nor can they compare hexadecimal numbers, such
    as the addresses of objects in exceptions: EDN reads these as symbols.
    """
    value = settled(value)
    text = msgspec.json.encode(value)
    if _NAN in text:
        raise HistoryError(
            "its value holds ##NaN, which equals nothing, so no check can compare it; leave the "
            "operation out"
        )
    if _HEXADECIMAL in text:
        raise HistoryError("its value holds a hexadecimal number; write it in decimal")
    return value


def op_of(form: Any, position: int, value_of: Callable[[Any], Any] = comparable) -> Op:
    """Return the op that `form` describes; `position` is its number in the file (from 0).

    The keys of `form` are keywords. `value_of` converts the value of a client's op.
    """
    if not isinstance(form, dict):
        raise HistoryError(
            f"op {position} is {shown(form)}; it must be a map, such as {{:type :invoke, ...}}"
        )
    try:
        kind = _TYPES[form[":type"]]
        process = form[":process"]
        # Elle only looks at values, so its histories may omit f. Clojure's records have all fields:
        # a missing f is nil, and a missing index is -1.
        f = form.get(":f", "txn") if ":value" in form else form[":f"]
    except (KeyError, TypeError):
        raise _incomplete(form, position) from None
    f = loose(f)
    if type(process) is not int and not isinstance(f, str):
        f = _text(f) or "nil"  # any name will do, since ops of the nemesis are not judged
    elif f is None and isinstance(form.get(":value"), list):
        f = "txn"
    if not isinstance(f, str) or len(f) > _NAME_CHARS_MAX:
        raise HistoryError(f"op {position} is malformed: its f is {shown(f)}, not a name")
    value = form.get(":value")
    if ":key" in form:
        value = [form[":key"], value]
    try:
        if type(process) is int:
            value = value_of(value)
            if len(form) > _FIELDS_MIN:
                value = with_extras(form, f, value, value_of)
        else:
            process = loose(process)
            value = loose(value)
    except HistoryError as error:
        raise HistoryError(f"op {position} is malformed: {error}") from error
    # A malformed number must not pass for the name of a nemesis, whose ops are not judged.
    if type(process) is not int and (
        not isinstance(process, str) or process.lstrip("+-")[:1].isdigit()
    ):
        raise HistoryError(
            f"op {position} is malformed: its process is {shown(process)}, "
            "neither a number nor a name"
        )
    attempts = form.get(":attempts")
    try:
        return Op(
            _whole("index", form.get(":index"), position),
            _whole("time", form.get(":time"), position),
            process,
            kind,
            f,
            value,
            _text(form[":error"]) if ":error" in form else None,
            _text(form[":node"]) if ":node" in form else None,
            () if attempts is None else msgspec.convert(loose(attempts), tuple[Attempt, ...]),
        )
    except (TypeError, msgspec.ValidationError) as failure:
        raise HistoryError(f"op {position} is malformed: {failure}") from failure


def _text(value: Any) -> str | None:
    value = loose(value)
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _incomplete(form: dict[str, Any], position: int) -> HistoryError:
    missing = [name for name in ("process", "type", "f") if f":{name}" not in form]
    if missing:
        return HistoryError(f"op {position} lacks {', '.join(missing)}")
    return HistoryError(
        f"op {position} is malformed: its type is {shown(form[':type'])}; "
        f"it must be one of {', '.join(OpType)}"
    )


def _whole(name: str, value: Any, default: int) -> int:
    """Check an index or a time. A time loses its fraction, since no verdict depends on times."""
    if value is None or (name == "index" and value == -1):
        return default
    if name == "time" and isinstance(value, float) and math.isfinite(value):
        return int(value)
    if type(value) is not int:
        raise TypeError(f"its {name} is {shown(value)}, not a whole number")
    return value


def write_edn(history: History, file: TextIO) -> None:
    """Write a history as EDN, one op map per line."""
    for op in history:
        fields = [
            f":index {op.index}",
            f":time {op.time}",
            f":process {op.process if isinstance(op.process, int) else f':{op.process}'}",
            f":type :{op.type.value}",
            f":f {f':{op.f}' if _IDENTIFIER.fullmatch(op.f) else edn_of(op.f, plain=True)}",
            f":value {edn_of(op.value, plain=not op.is_client)}",
        ]
        if op.error is not None:
            fields.append(f":error {edn_of(op.error, plain=True)}")
        if op.node is not None:
            fields.append(f":node {edn_of(op.node, plain=True)}")
        if op.attempts:
            attempts = [msgspec.structs.asdict(attempt) for attempt in op.attempts]
            fields.append(f":attempts {edn_of(attempts, plain=True)}")
        file.write(f"{{{', '.join(fields)}}}\n")


# --- the formats ------------------------------------------------------------------------------

_BEGINNING: Final = re.compile(rb"(?:\xef\xbb\xbf)?(?:[\s,]+|;[^\n]*)*+[\[({#]")
_FIRST_MAP: Final = re.compile(rb"\s*\{[^{}]{0,200}?:f\s+:(?:get|put|append)\b[^{}]{0,200}?:key\s")


def is_edn(head: bytes) -> bool:
    """Whether a file that begins with `head` can be EDN with a map or a collection of maps."""
    return _BEGINNING.match(head) is not None


def is_kv_log(head: bytes) -> bool:
    """Whether a file that begins with `head` is one of Porcupine's kv logs."""
    return _FIRST_MAP.match(head) is not None


class JepsenEdn(EdnOps):
    """A history file of Jepsen, read as a stream."""

    format = "jepsen-edn"


class KvLog(EdnOps):
    """Porcupine's log of a key-value store, in EDN."""

    format = "porcupine-kv"
