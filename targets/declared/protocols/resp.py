"""RESP 2, the protocol of Redis: commands are arrays of strings, and replies are typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from harness.errors import shown
from targets.declared.protocols import MalformedError
from targets.declared.protocols.streams import ANSWER_BYTES_MAX, Stream

__all__ = ["ReplyError", "replies"]

_ARRAY_MAX: Final = 1_000_000
_DEPTH_MAX: Final = 8


class ReplyError(Exception):
    """An error reply."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]


async def replies(stream: Stream, commands: Sequence[Sequence[str]]) -> list[Any]:
    """Send several commands at once and return their replies.

    A reply is text for a status, bytes for a string, a number, a list, `None` for nil, or a
    `ReplyError`.
    """
    await stream.send(b"".join(_packed(words) for words in commands))
    return [await _reply(stream, 0) for _ in commands]


async def _reply(stream: Stream, depth: int) -> Any:
    line = await stream.line()
    kind, rest = line[:1], line[1:]
    if kind == b"+":
        return rest.decode()
    if kind == b"-":
        return ReplyError(rest.decode("utf-8", "replace"))
    if kind not in {b":", b"$", b"*"}:
        raise MalformedError(f"not a reply of Redis: {shown(line)}")
    number = _integer(rest)
    if kind == b":":
        return number
    if number == -1:
        return None
    if kind == b"$":
        text = await stream.block(number)
        if await stream.block(2) != b"\r\n":
            raise MalformedError(f"a string does not end after {number} bytes")
        return text
    if not 0 <= number <= _ARRAY_MAX or depth >= _DEPTH_MAX:
        raise MalformedError(f"an array of {number} elements at depth {depth}: beyond the limits")
    return [await _reply(stream, depth + 1) for _ in range(number)]


def _packed(words: Sequence[str]) -> bytes:
    data = [word.encode() for word in words]
    if sum(map(len, data)) > ANSWER_BYTES_MAX:
        raise MalformedError(f"a command of more than {ANSWER_BYTES_MAX} bytes")
    return b"*%d\r\n" % len(data) + b"".join(b"$%d\r\n%b\r\n" % (len(d), d) for d in data)


def _integer(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 20:
        raise MalformedError(f"not a number of Redis: {shown(text)}")
    return int(text)
