"""The vocabulary `logs`: append-only logs of messages, empty at first. Keys are texts.

Each message of a log has an offset, a whole number; later messages have higher offsets, and there
may be gaps. A client assigns itself keys and polls them from their beginning: each poll goes on
where the last successful one ended. A poll that fails moves nothing.

The answer of a send has `value`: the offset of the message, or null if the system does not tell it.
The answer of a poll has `value`: an object from each key to a list of `[offset, message]`, as many
as the system likes, in order. A workload sends each message once.
"""

from __future__ import annotations

from typing import ClassVar

from harness.vocabularies import Call, Vocabulary


class Assign(Call, frozen=True):
    """Poll these keys from now on, and only these, each from its beginning."""

    f: ClassVar[str] = "assign"
    keys: list[str]


class Send(Call, frozen=True):
    """Append the message `value` to the log `key`: the answer has `value`, its offset."""

    f: ClassVar[str] = "send"
    mutates: ClassVar[bool] = True
    key: str
    value: int


class Poll(Call, frozen=True):
    """Read the next messages of the assigned keys: the answer has `value`, an object."""

    f: ClassVar[str] = "poll"


CALLS = Vocabulary[Assign | Send | Poll]("logs", (Assign, Send, Poll))
