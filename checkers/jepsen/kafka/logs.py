"""Derives the logs from a history, with the senders, the readers and the offsets of each message.

Offsets come from the answers to committed sends and from all polls. Even a poll in a failed
transaction returns only committed messages. A send of unknown outcome counts as committed once a
successful poll shows one of its messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from checkers.jepsen.kafka.reading import LogOp, Message
from harness.ops import OpType

Name = tuple[str, Message]


@dataclass(slots=True)
class Log:
    """The log of one key. `index` numbers the messages whose place is certain, without gaps."""

    at: dict[int, list[Message]] = field(default_factory=dict)
    offsets: dict[Message, list[int]] = field(default_factory=dict)
    index: dict[Message, int] = field(default_factory=dict)
    order: list[Message | None] = field(default_factory=list)

    def add(self, offset: int, message: Message) -> None:
        there = self.at.setdefault(offset, [])
        if message not in there:
            there.append(message)
            self.offsets.setdefault(message, []).append(offset)

    def sort(self) -> None:
        """Number the offsets. If an offset has several messages, none of the messages gets the
        number.
        """
        for number, offset in enumerate(sorted(self.at)):
            there = self.at[offset]
            certain = len(there) == 1 and len(self.offsets[there[0]]) == 1
            self.order.append(there[0] if certain else None)
            if certain:
                self.index[there[0]] = number


class Logs:
    """All logs of a history, and the senders and readers of each message."""

    def __init__(self, ops: Sequence[LogOp]) -> None:
        self.ops = ops
        self.senders: dict[Name, list[LogOp]] = {}
        self.readers: dict[Name, list[LogOp]] = {}
        for op in ops:
            for name in _names(op.sends):
                self.senders.setdefault(name, []).append(op)
            for name in dict.fromkeys(_names(op.polls)):
                self.readers.setdefault(name, []).append(op)
        self.repeated = {name for name, ops in self.senders.items() if len(ops) > 1}
        self.shown = {name for name, ops in self.readers.items() if any(op.did for op in ops)}
        self.by_key: dict[str, Log] = {}
        for op in ops:
            self._add(op)
        for log in self.by_key.values():
            log.sort()

    def _add(self, op: LogOp) -> None:
        sources = [op.polls, op.sends] if self.is_committed(op) else [op.polls]
        for places in sources:
            for key, each in places.items():
                log = self.by_key.setdefault(key, Log())
                for offset, message in each:
                    if offset is not None:
                        log.add(offset, message)

    def is_committed(self, op: LogOp) -> bool:
        """Whether the operation certainly sent its messages."""
        if op.type is OpType.INFO:
            return any(
                name in self.shown and name not in self.repeated for name in _names(op.sends)
            )
        return op.did

    def sender(self, name: Name) -> LogOp | None:
        """Return the only operation that sent this message; `None` if there are none or several."""
        senders = self.senders.get(name, ())
        return senders[0] if len(senders) == 1 else None

    def index(self, key: str, message: Message) -> int | None:
        """Return the number of the message in its log, if it is certain."""
        if (key, message) in self.repeated:
            return None
        log = self.by_key.get(key)
        return None if log is None else log.index.get(message)

    def skipped(self, key: str, first: int, last: int) -> list[Message | None]:
        return self.by_key[key].order[first + 1 : last]


def _names(places: Mapping[str, Iterable[tuple[int | None, Message]]]) -> list[Name]:
    return [(key, message) for key, each in places.items() for _, message in each]
