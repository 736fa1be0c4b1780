"""A codec for protobuf messages that are declared as tables of fields.

`encode` and `decode` convert between plain dicts and bytes. A `Message` lists the fields that the
client uses. Decoding skips all other fields, so newer servers may send more. Only the encodings of
Kudu's RPC are supported: varints, 64-bit fixed numbers, and strings, bytes and messages with a
length. A decoded dict has the fields that were present; a repeated field is always present, as a
list.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

Values = dict[str, Any]
_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5
_BITS: Final = 64
_MASK: Final = (1 << _BITS) - 1
_VARINT_BYTES_MAX: Final = 10
_DEPTH_MAX: Final = 32


class WireFormatError(ValueError):
    """The bytes are not a message, or not the expected one."""


class Kind(enum.Enum):
    """The type of a field's value, which decides its encoding."""

    INT = "int"  # negative numbers take ten bytes
    UINT = "uint"
    BOOL = "bool"
    FIXED64 = "fixed64"
    TEXT = "text"
    BYTES = "bytes"
    MESSAGE = "message"


_WIRE_TYPES: Final[Mapping[Kind, int]] = {
    Kind.INT: _VARINT,
    Kind.UINT: _VARINT,
    Kind.BOOL: _VARINT,
    Kind.FIXED64: _FIXED64,
    Kind.TEXT: _LENGTH,
    Kind.BYTES: _LENGTH,
    Kind.MESSAGE: _LENGTH,
}


class Field(NamedTuple):
    """A field of a message: its number, and the type of its value or of each repeated value."""

    number: int
    kind: Kind
    message: Message | None = None
    repeated: bool = False


class Message:
    """A message, as a table of its fields by name."""

    __slots__ = ("_by_number", "fields", "name")

    def __init__(self, name: str, /, **fields: Field) -> None:
        self.name = name
        self.fields = fields
        self._by_number = {field.number: (key, field) for key, field in fields.items()}
        assert len(self._by_number) == len(fields), f"{name} uses a number twice"

    def field_of(self, number: int) -> tuple[str, Field] | None:
        return self._by_number.get(number)


def int_(number: int) -> Field:
    """A signed number."""
    return Field(number, Kind.INT)


def uint(number: int) -> Field:
    """A number that is not negative, such as a member of an enumeration."""
    return Field(number, Kind.UINT)


def bool_(number: int) -> Field:
    """A truth value."""
    return Field(number, Kind.BOOL)


def fixed64(number: int) -> Field:
    """A number of exactly 64 bits, such as a timestamp."""
    return Field(number, Kind.FIXED64)


def text(number: int) -> Field:
    """A string field."""
    return Field(number, Kind.TEXT)


def bytes_(number: int) -> Field:
    """Bytes."""
    return Field(number, Kind.BYTES)


def nested(number: int, message: Message) -> Field:
    """A message in a message."""
    return Field(number, Kind.MESSAGE, message)


def many(field: Field) -> Field:
    """A repeated field."""
    return field._replace(repeated=True)


# --- encoding ---------------------------------------------------------------------------------


def encode_varint(number: int) -> bytes:
    """Encode a number of at most 64 bits. A negative number becomes its two's complement."""
    if not -(1 << (_BITS - 1)) <= number <= _MASK:
        raise WireFormatError(f"the number {number} does not fit into {_BITS} bits")
    number &= _MASK
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(message: Message, values: Mapping[str, Any]) -> bytes:
    """Encode a message. Raises `WireFormatError` for a name that the message does not list."""
    out = bytearray()
    for name, value in values.items():
        field = message.fields.get(name)
        if field is None:
            raise WireFormatError(f"{message.name} has no field {name!r}")
        if value is None:
            continue
        for each in value if field.repeated else (value,):
            _encode_field(out, field, each)
    return bytes(out)


def _encode_field(out: bytearray, field: Field, value: Any) -> None:
    wire_type = _WIRE_TYPES[field.kind]
    out += encode_varint(field.number << 3 | wire_type)
    if wire_type == _VARINT:
        out += encode_varint(int(value))
        return
    if wire_type == _FIXED64:
        out += int(value).to_bytes(8, "little")
        return
    if field.kind is Kind.MESSAGE:
        assert field.message is not None
        data = encode(field.message, value)
    else:
        data = value.encode() if field.kind is Kind.TEXT else bytes(value)
    out += encode_varint(len(data))
    out += data


# --- decoding ---------------------------------------------------------------------------------


def decode_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the unsigned number at position `at`, and the position after it."""
    number = 0
    for shift in range(_VARINT_BYTES_MAX):
        if at >= len(data):
            raise WireFormatError("the message ends inside a number")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number & _MASK, at
    raise WireFormatError(f"a number has more than {_VARINT_BYTES_MAX} bytes")


def decode(message: Message, data: bytes | memoryview, *, depth: int = 0) -> Values:
    """Decode a message. Raises `WireFormatError` if the bytes do not form one."""
    if depth > _DEPTH_MAX:
        raise WireFormatError(f"messages are nested more than {_DEPTH_MAX} deep")
    values: Values = {name: [] for name, field in message.fields.items() if field.repeated}
    for number, wire_type, raw in _parts(memoryview(data)):
        named = message.field_of(number)
        if named is None:
            continue
        name, field = named
        if field.repeated:
            values[name].extend(_decode_field(message, field, wire_type, raw, depth))
            continue
        for value in _decode_field(message, field, wire_type, raw, depth):
            values[name] = value
    return values


def _parts(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    at = 0
    while at < len(data):
        tag, at = decode_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise WireFormatError("a field has the number 0")
        if wire_type == _VARINT:
            varint, at = decode_varint(data, at)
            yield number, wire_type, varint
            continue
        if wire_type == _LENGTH:
            size, at = decode_varint(data, at)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise WireFormatError(f"field {number} has the unknown wire type {wire_type}")
        if at + size > len(data):
            raise WireFormatError(f"field {number} is longer than its message")
        yield number, wire_type, data[at : at + size]
        at += size


def _decode_field(
    message: Message, field: Field, wire_type: int, raw: int | memoryview, depth: int
) -> Iterator[Any]:
    expected = _WIRE_TYPES[field.kind]
    is_packed = field.repeated and expected == _VARINT and wire_type == _LENGTH
    if isinstance(raw, memoryview) and is_packed:
        at = 0
        while at < len(raw):
            number, at = decode_varint(raw, at)
            yield _number(field.kind, number)
    elif wire_type == expected:
        yield _number(field.kind, raw) if isinstance(raw, int) else _content(field, raw, depth)
    else:
        raise WireFormatError(
            f"field {field.number} of {message.name} has the wire type {wire_type}, which does not "
            f"encode the type {field.kind.value}"
        )


def _content(field: Field, raw: memoryview, depth: int) -> Any:
    match field.kind:
        case Kind.FIXED64:
            return int.from_bytes(raw, "little")
        case Kind.TEXT:
            return bytes(raw).decode("utf-8", "replace")
        case Kind.MESSAGE:
            assert field.message is not None
            return decode(field.message, raw, depth=depth + 1)
    return bytes(raw)


def _number(kind: Kind, raw: int) -> int | bool:
    if kind is Kind.BOOL:
        return bool(raw)
    if kind is Kind.INT and raw >> (_BITS - 1):
        return raw - (1 << _BITS)
    return raw
