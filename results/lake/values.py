"""Values of operations as typed columns, and as JSON what has no type: nothing is lost.

A value that is an object is taken apart: a field that has a column goes there if it is of that
column's type and not null; all others stay together in an object, the *rest*. A value that is no
object is its own rest. So

* rest null: the value is the object of the columns that are not null;
* rest an object: the same, and the fields of the rest;
* any other rest: the value itself, and no column has anything.

Each distinct text is taken apart once, and all that have known fields of the right types by one
call: `msgspec` decodes them into structs, and encoding these again has to give the very same bytes.
Where it does not (a number 1.0, a null, an unknown field), halves are tried, down to the one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import UNSET

from results.lake.schema import NUMBERS, REST, STEPS, TEXTS, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Shredder"]

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


class Shredder:
    """Takes values apart into the columns `PREFIX_FIELD`, and puts them together again."""

    def __init__(
        self, prefix: str, fields: Mapping[str, tuple[str, str]], untyped: Iterable[str] = ()
    ) -> None:
        """`untyped` are fields that often come as well, which the quick way knows."""
        self.fields = {name: kind for name, (kind, _) in fields.items()}
        self.names = [f"{prefix}_{name}" for name in (*fields, REST)]
        self._untyped = sorted(untyped)
        known = [(name, _TYPES[kind] | msgspec.UnsetType, UNSET) for name, kind in self._kinds()]
        known += [(name, msgspec.Raw | msgspec.UnsetType, UNSET) for name in self._untyped]
        self._struct: Any = msgspec.defstruct(
            f"{prefix.title()}Value", known, forbid_unknown_fields=True, gc=False
        )
        self._decode: Callable[[bytes], list[Any]] = msgspec.json.Decoder(list[self._struct]).decode

    def _kinds(self) -> list[tuple[str, str]]:
        return list(self.fields.items())

    def shred(self, texts: pa.Array) -> list[pa.Array]:
        """JSON texts (null: no value at all) as the columns of `names`, the rest last."""
        import pyarrow as pa

        coded = texts.dictionary_encode()
        distinct = coded.dictionary.cast(pa.binary()).to_pylist()
        at = [number for number, text in enumerate(distinct) if text.startswith(b"{")]
        structs: list[Any] = [None] * len(distinct)
        rests: list[bytes | None] = list(distinct)
        for number, (struct, rest) in zip(
            at, self._apart([distinct[number] for number in at]), strict=True
        ):
            structs[number], rests[number] = struct, rest
        columns: list[pa.Array] = []
        for name, kind in self._kinds():
            found = [None if struct is None else getattr(struct, name) for struct in structs]
            values = [None if value is UNSET else value for value in found]
            columns.append(pa.array(values, arrow_type(kind)).take(coded.indices))
        columns.append(pa.array(rests, pa.binary()).cast(pa.string()).take(coded.indices))
        return columns

    def _apart(self, texts: Sequence[bytes]) -> list[tuple[Any, bytes | None]]:
        """Struct and rest of each object."""
        if not texts:
            return []
        joined = b"[" + b",".join(texts) + b"]"
        try:
            found = self._decode(joined)
            if len(found) == len(texts) and _encode(found) == joined:
                return [(struct, self._rest(struct)) for struct in found]
        except _BAD_JSON:
            pass
        if len(texts) == 1:
            return [self._one(texts[0])]
        middle = len(texts) // 2
        return self._apart(texts[:middle]) + self._apart(texts[middle:])

    def _rest(self, struct: Any) -> bytes | None:
        parts = [
            b'"%s":%s' % (name.encode(), bytes(raw))
            for name in self._untyped
            if (raw := getattr(struct, name)) is not UNSET
        ]
        return b"{" + b",".join(parts) + b"}" if parts else None

    def _one(self, text: bytes) -> tuple[Any, bytes | None]:
        """Any object, field by field; what is no JSON at all raises `msgspec.DecodeError`."""
        value = _decode(text)
        typed = {
            name: value.pop(name)
            for name, kind in self._kinds()
            if name in value and _fits(value[name], kind)
        }
        return self._struct(**typed), _encode(value) if value else None

    def join(self, table: pa.Table) -> list[Any]:
        """The values of all rows. A row without any is an empty object."""
        columns = [table.column(name).to_pylist() for name in self.names]
        rests = columns.pop()
        found: list[Any] = []
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
            found.append(value)
        return found


def _fits(value: Any, kind: str) -> bool:
    """Whether a column of this type gives exactly this value back."""
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
