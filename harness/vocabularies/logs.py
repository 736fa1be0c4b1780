"""The vocabulary `logs`: append-only logs of messages, empty at first. Keys are strings.

Each message of a log has an offset, a whole number; later messages have higher offsets, and there
may be gaps. A client assigns itself keys and polls them from their beginning: each poll continues
where the last successful poll ended. A failed poll does not change these positions.

The answer of a send has the field `value`: the offset of the message, or null if the system does
not report it. The answer of a poll has the field `value`: an object that maps each key to a list of
`[offset, message]` in order. The system decides how many messages a poll returns. A workload sends
each message once.
"""

from __future__ import annotations

from typing import ClassVar

from harness.vocabularies import Call, Vocabulary


class Assign(Call, frozen=True):
    """Poll these keys from now on, and only these, each from its beginning."""

    f: ClassVar[str] = "assign"
    keys: list[str]


class Send(Call, frozen=True):
    """Append the message `value` to the log `key`. The `value` of the answer is its offset."""

    f: ClassVar[str] = "send"
    mutates: ClassVar[bool] = True
    key: str
    value: int


class Poll(Call, frozen=True):
    """Read the next messages of the assigned keys. The answer has them in `value`, by key."""

    f: ClassVar[str] = "poll"


CALLS = Vocabulary[Assign | Send | Poll]("logs", (Assign, Send, Poll))
