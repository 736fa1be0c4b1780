"""Encodes operations as columns, so that a page of a few megabytes has 100,000 operations.

There is one list per field. Times are stored as differences in ns, and every text is stored once.
Values are stored as JSON, cut to a length that is shorter for longer runs. The names of tables are
stored separately and never cut, so that filters stay exact.

If there are more than `OPS_MAX` operations, the page keeps the operations nearest to the operations
that a checker blames, and says how many were cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from harness.ops import History, Op, OpType, Pair

OPS_MAX: Final = 300_000
TEXT_CHARS_MAX: Final = 48_000_000
"""The target for the characters of all values. `share_chars` derives the limit per value."""
VALUE_CHARS_MIN: Final = 120
VALUE_CHARS_MAX: Final = 4_000
ERROR_CHARS_MAX: Final = 1_000
ATTEMPTS_MAX: Final = 64
"""The maximum number of RPC attempts kept per operation. The page says if there were more."""

TYPES: Final = {OpType.OK: 0, OpType.FAIL: 1, OpType.INFO: 2}
OPEN: Final = -1
"""The duration that marks an operation without completion."""


class Strings:
    """Assigns a number to each string. Number 0 is the empty string, and replaces `None`."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str | None) -> int:
        """Return the number of `text`. A new string gets the next number."""
        if not text:
            return 0
        return self._numbers.setdefault(text, len(self._numbers))

    def get(self, text: str) -> int | None:
        """Return the number of `text`, or `None` if it has none."""
        return self._numbers.get(text)

    def items(self) -> list[str]:
        """Return all strings, in the order of their numbers."""
        return list(self._numbers)


class Selection(msgspec.Struct, frozen=True):
    """The operations that a page shows, ordered by time, and the number of all operations."""

    pairs: tuple[Pair, ...]
    total: int

    @property
    def complete(self) -> bool:
        """Whether the page shows all operations."""
        return len(self.pairs) == self.total

    def range_ns(self) -> tuple[int, int]:
        """Return the times of the first and of the last invocation shown."""
        if not self.pairs:
            return (0, 0)
        return (self.pairs[0].invoke.time, self.pairs[-1].invoke.time)


def select(
    history: History, always: Collection[int], focus: int, *, most: int = OPS_MAX
) -> Selection:
    """Select up to `most` operations: first those in `always`, then those near `focus`."""
    pairs = history.pairs
    total = len(pairs)
    kept: Iterable[Pair] = pairs
    if total > most:
        wanted = set(always)

        def rank(pair: Pair) -> tuple[bool, int]:
            done = pair.completion
            named = pair.invoke.index in wanted or (done is not None and done.index in wanted)
            return (not named, abs(pair.invoke.index - focus))

        kept = sorted(pairs, key=rank)[:most]
    ordered = sorted(kept, key=lambda pair: (pair.invoke.time, pair.invoke.index))
    return Selection(tuple(ordered), total)


def mentioned(value: Any) -> list[str]:
    """Return the table names and ids in a value, in the fields that `vocabularies.ddl` defines."""
    if not isinstance(value, dict):
        return []
    names = [value.get("name"), value.get("new_name"), value.get("table_id")]
    tables = value.get("tables")
    if isinstance(tables, (list, tuple)):
        for row in tables:
            if isinstance(row, (list, tuple)):
                names += row[:2]
    return list(dict.fromkeys(text for text in names if isinstance(text, str) and text))


def columns(
    pairs: Sequence[Pair], lanes: dict[int, int], strings: Strings, tables: Strings
) -> dict[str, Any]:
    """Make the columns of `pairs`, sorted by time. `lanes` has the lane of each process."""
    writer = _Writer(strings, tables, share_chars(len(pairs)))
    for pair in pairs:
        writer.take(pair, lanes)
    return writer.done()


def share_chars(count: int) -> int:
    """Return the maximum length of a value, in characters, on a page of `count` operations."""
    return max(VALUE_CHARS_MIN, min(VALUE_CHARS_MAX, TEXT_CHARS_MAX // max(1, 2 * count)))


_FIELDS: Final = (
    "index", "done", "start", "took", "lane", "process", "f", "type", "node", "call", "back",
    "error", "mentions", "attempts",
)  # fmt: skip
_ATTEMPT_FIELDS: Final = ("node", "start", "took", "outcome")


class _Writer:
    def __init__(self, strings: Strings, tables: Strings, chars_max: int) -> None:
        self._strings = strings
        self._tables = tables
        self._chars_max = chars_max
        self._encode = msgspec.json.Encoder(order="sorted").encode
        self._columns: dict[str, list[int]] = {name: [] for name in _FIELDS}
        self._mentions: list[int] = []
        self._attempts: dict[str, list[int]] = {name: [] for name in _ATTEMPT_FIELDS}
        self._last_index = 0
        self._last_start = 0
        self._values_cut = 0
        self._attempts_cut = 0

    def take(self, pair: Pair, lanes: dict[int, int]) -> None:
        call, done = pair.invoke, pair.completion
        process = call.process
        assert isinstance(process, int), "pairs are operations of clients"
        append = {name: column.append for name, column in self._columns.items()}
        append["index"](call.index - self._last_index)
        append["start"](call.time - self._last_start)
        self._last_index, self._last_start = call.index, call.time
        append["done"](0 if done is None else done.index - call.index)
        append["took"](OPEN if done is None else done.time - call.time)
        append["lane"](lanes[process])
        append["process"](process)
        append["f"](self._strings.number(call.f))
        append["type"](TYPES[pair.type])
        append["node"](0 if done is None else self._strings.number(done.node))
        append["call"](self._text(call.value))
        same = done is None or done.value is None or done.value == call.value
        append["back"](0 if same or done is None else self._text(done.value))
        error = None if done is None or done.error is None else done.error[:ERROR_CHARS_MAX]
        append["error"](self._strings.number(error))
        names = mentioned(call.value)
        if done is not None:
            names = list(dict.fromkeys([*names, *mentioned(done.value)]))
        append["mentions"](len(names))
        self._mentions.extend(self._tables.number(name) for name in names)
        append["attempts"](0 if done is None else self._take_attempts(call, done))

    def _take_attempts(self, call: Op, done: Op) -> int:
        kept = done.attempts[:ATTEMPTS_MAX]
        self._attempts_cut += len(done.attempts) - len(kept)
        for attempt in kept:
            self._attempts["node"].append(self._strings.number(attempt.node))
            self._attempts["start"].append(attempt.start - call.time)
            self._attempts["took"].append(attempt.end - attempt.start)
            outcome = attempt.outcome[:ERROR_CHARS_MAX]
            self._attempts["outcome"].append(self._strings.number(outcome))
        return len(kept)

    def _text(self, value: Any) -> int:
        if value is None or value == {}:
            return 0
        text = self._encode(value).decode()
        if len(text) > self._chars_max:
            self._values_cut += 1
            rest = len(text) - self._chars_max
            text = f"{text[: self._chars_max]}… ({rest} more characters, in history.parquet)"
        return self._strings.number(text)

    def done(self) -> dict[str, Any]:
        return {
            "count": len(self._columns["index"]),
            **self._columns,
            "mention": self._mentions,
            "attempt": self._attempts,
            "values_cut": self._values_cut,
            "value_chars_max": self._chars_max,
            "attempts_cut": self._attempts_cut,
        }
