"""Delegation tokens, in Hadoop's text form and in the form that histories record.

Hadoop's text ends with the token's kind, after the password. In histories, the password comes last,
so a client can forge a token by changing the last letter of its text.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

_KIND: Final = b"HIVE_DELEGATION_TOKEN"


class Token(NamedTuple):
    """A delegation token: an identifier and a password. The identifier has the owner's name."""

    identifier: bytes
    password: bytes

    @property
    def text(self) -> str:
        """Return the token as histories record it: identifier and password in hexadecimal."""
        return f"{self.identifier.hex()}:{self.password.hex()}"

    @property
    def owner(self) -> str:
        """Return the owner's name. Raises `ValueError` if the identifier ends within the name."""
        name, _ = _counted(self.identifier, 1)
        return name.decode()

    @property
    def hadoop(self) -> str:
        """Return the token in the form of Hadoop's `Token.encodeToUrlString`."""
        parts = (self.identifier, self.password, _KIND, b"")
        raw = b"".join(_length(len(part)) + part for part in parts)
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_text(text: str) -> Token:
    """Read a token from a history. Any text is accepted, because a token may be forged."""
    identifier, _, password = text.rpartition(":")
    try:
        return Token(bytes.fromhex(identifier), bytes.fromhex(password))
    except ValueError:
        return Token(identifier.encode(), password.encode())


def read_hadoop(text: str) -> Token:
    """Read a token that a metastore issued. Raises `ValueError` for any other text."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a Hadoop token") from error
    identifier, at = _counted(raw, 0)
    password, _ = _counted(raw, at)
    return Token(identifier, password)


def _counted(raw: bytes, at: int) -> tuple[bytes, int]:
    """Read a length (Hadoop's `WritableUtils`) and that many bytes; return these and their end."""
    if at >= len(raw):
        raise ValueError("the token is cut off")
    first = raw[at] if raw[at] < 128 else raw[at] - 256
    more = 0 if first >= -112 else -112 - first
    size = int.from_bytes(raw[at + 1 : at + 1 + more]) if more else first
    start = at + 1 + more
    text = raw[start : start + size]
    if size < 0 or len(text) < size:
        raise ValueError("the token is cut off")
    return text, start + size


def _length(size: int) -> bytes:
    if size <= 127:
        return bytes([size])
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([256 - 112 - len(digits)]) + digits
