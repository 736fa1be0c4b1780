"""Splits values of operations into typed columns, and JSON for the rest. Nothing is lost.

A value that is an object is taken apart. A field goes to its column if it has one, is of the
column's type, and is not null. All other fields stay together in an object, which is called the
*rest*. There are three cases:

* The rest is null: the value is an object of the columns that are not null.
* The rest is an object: the value has these fields too.
* The rest is anything else: the rest is the value, and all columns are null.

The fast path decodes many texts in one call: `msgspec` decodes them into structs, and encoding the
structs again must give exactly the same bytes. If the bytes differ (because of a number 1.0, a
null, or an unknown field), each half of the texts is tried separately, down to single texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from results.lake.tables.schema import ANSWER, ASKED, EVENT, NUMBERS, REST, STEPS, TEXTS, arrow_type

_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "int64": _Int64,
    "bool": bool,
    "double": float,
    TEXTS: list[str],
    NUMBERS: list[_Int64],
    STEPS: list[list[str]],
}
_BAD_JSON: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder().decode
_BETWEEN: Final = ": "


class Shredder:
    """Splits values into columns named `PREFIX_FIELD`, and rebuilds values from these columns."""

    def __init__(
        self, prefix: str, fields: Mapping[str, tuple[str, str]], untyped: Iterable[str] = ()
    ) -> None:
        """Create a shredder; `untyped` are common fields without a column."""
        self.fields = {name: kind for name, (kind, _) in fields.items()}
        self.names = [f"{prefix}_{name}" for name in (*fields, REST)]
        self._untyped = sorted(untyped)
        # Decoding rejects an explicit null, so None means an absent field, which the encoder omits.
        typed = [(name, _TYPES[kind], None) for name, kind in self.fields.items()]
        typed += [(name, msgspec.Raw, None) for name in self._untyped]
        struct: Any = msgspec.defstruct(
            f"{prefix.title()}Value",
            typed,
            forbid_unknown_fields=True,
            omit_defaults=True,
            gc=False,
        )
        structs: Any = list[struct]
        self._struct = struct
        self._decode: Callable[[bytes], list[Any]] = msgspec.json.Decoder(structs).decode

    def shred(self, texts: pa.Array) -> list[pa.Array]:
        """Convert JSON strings to the columns `names`. The last column is the rest.

        Null means no value.
        """
        coded = texts.dictionary_encode()
        distinct = coded.dictionary.cast(pa.binary()).to_pylist()
        at = [number for number, text in enumerate(distinct) if text[:1] == b"{"]
        objects = [distinct[number] for number in at]
        structs, others = self._apart(objects)
        rests: list[bytes | None] = [*distinct]
        for number in at:
            rests[number] = None
        columns_of = zip(*map(msgspec.structs.astuple, structs), strict=True)
        columns = {
            name: column
            for name, column in zip(
                (*self.fields, *self._untyped), columns_of, strict=bool(structs)
            )
            if column.count(None) < len(column)
        }
        for place, rest in self._rests(columns).items():
            rests[at[place]] = rest
        for place, other in others.items():
            rests[at[place]] = other
        places = np.full(len(distinct) + 1, -1, np.int32)
        places[at] = np.arange(len(at))
        taken = places[coded.indices.fill_null(len(distinct)).to_numpy()]
        rows = pa.array(taken, mask=taken < 0)
        made: list[pa.Array] = []
        for name, kind in self.fields.items():
            if name in columns:
                made.append(pa.array(columns[name], arrow_type(kind)).take(rows))
            else:
                made.append(pa.nulls(len(texts), arrow_type(kind)))
        made.append(pa.array(rests, pa.binary()).cast(pa.string()).take(coded.indices))
        return made

    def _rests(self, columns: Mapping[str, Sequence[Any]]) -> dict[int, bytes]:
        """Map the position of each struct that has untyped fields to its rest (JSON)."""
        rests: dict[int, list[bytes]] = {}
        for name in self._untyped:
            for place, raw in enumerate(columns.get(name, ())):
                if raw is not None:
                    rests.setdefault(place, []).append(b'"%s":%s' % (name.encode(), bytes(raw)))
        return {place: b"{" + b",".join(parts) + b"}" for place, parts in rests.items()}

    def _apart(self, texts: Sequence[bytes]) -> tuple[list[Any], dict[int, bytes | None]]:
        """Return a struct per object, and by position the rests of objects that `_one` split."""
        if not texts:
            return [], {}
        joined = b"[" + b",".join(texts) + b"]"
        try:
            decoded = self._decode(joined)
            if len(decoded) == len(texts) and _encode(decoded) == joined:
                return decoded, {}
        except _BAD_JSON:
            pass
        if len(texts) == 1:
            struct, rest = self._one(texts[0])
            return [struct], {0: rest}
        middle = len(texts) // 2
        structs, rests = self._apart(texts[:middle])
        more, others = self._apart(texts[middle:])
        return structs + more, rests | {place + middle: rest for place, rest in others.items()}

    def _one(self, text: bytes) -> tuple[Any, bytes | None]:
        """Split the fields of an object into a struct and a rest.

        Raises `msgspec.DecodeError` if the text is invalid.
        """
        value = _decode(text)
        typed = {
            name: value.pop(name)
            for name, kind in self.fields.items()
            if name in value and _fits(value[name], kind)
        }
        return self._struct(**typed), _encode(value) if value else None

    def join(self, table: pa.Table) -> list[Any]:
        """Rebuild the values of all rows. A row with only nulls becomes an empty object."""
        *columns, rests = (table.column(name).to_pylist() for name in self.names)
        objects: list[Any] = []
        for row, rest in zip(zip(*columns, strict=True), rests, strict=True):
            value = {
                name: field
                for name, field in zip(self.fields, row, strict=True)
                if field is not None
            }
            if rest is not None:
                other = _decode(rest)
                if isinstance(other, dict):
                    value |= other
                else:
                    value = other
            objects.append(value)
        return objects


def _fits(value: Any, kind: str) -> bool:
    """Whether a column of this type can store the value without any change."""
    if kind == "string":
        return type(value) is str
    if kind == "bool":
        return type(value) is bool
    if kind == "double":
        return type(value) is float
    if kind == "int64":
        return type(value) is int and -(1 << 63) <= value < 1 << 63
    inner = {TEXTS: "string", NUMBERS: "int64", STEPS: TEXTS}[kind]
    return type(value) is list and all(_fits(item, inner) for item in value)


ASKS: Final = Shredder("asked", ASKED, ("new", "old", "rows", "value"))
ANSWERS: Final = Shredder(
    "answer", ANSWER, ("masters", "parts", "row", "rows", "tables", "tablets", "value")
)
EVENTS: Final = Shredder(
    "value", EVENT, ("asked", "asked_late", "at", "core", "log", "missing", "pending", "rest")
)
EVENT_KINDS: Final = ("converged", "infrastructure", "leader", "live", "node-exit", "phase")
"""The kinds of notes with typed fields. Other notes are stored as JSON."""


def outcome_of(outcome: str, error: str | None) -> tuple[str, str | None]:
    """Split an attempt's outcome, `ok` or an error (usually `CODE: text`), into code and text.

    The last attempt usually has the same error as the operation (`error`). The text is then null,
    because storing it twice would fill a third of the table of attempts. An empty text means that
    the outcome has no text although `error` has one.
    """
    code, _, rest = outcome.partition(_BETWEEN)
    if rest:
        return code, None if outcome == error else rest
    return outcome, None if joined_outcome(outcome, None, error) == outcome else ""


def joined_outcome(code: str, text: str | None, error: str | None) -> str:
    """Rebuild an attempt's outcome from its code and text, as the inverse of `outcome_of`."""
    if text:
        return f"{code}{_BETWEEN}{text}"
    if text is None and error is not None:
        begin, _, rest = error.partition(_BETWEEN)
        if begin == code and rest:
            return error
    return code
