"""The part of a Raft log that is in memory, and the configurations it holds.

The log begins after `base`, the last entry that a snapshot took over. Everything up to `base` is
committed, so it equals every later leader's log by leader completeness.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from targets.kudu.messages import RaftConfig
from targets.kudu.raft.messages import Entry, EntryKind, OpId

__all__ = ["ConfigHistory", "MemoryLog", "decode_config", "encode_config"]

_CONFIG_DECODER = msgspec.msgpack.Decoder(RaftConfig)


def encode_config(config: RaftConfig) -> bytes:
    """The payload of a CONFIG entry."""
    return msgspec.msgpack.encode(config)


def decode_config(entry: Entry) -> RaftConfig:
    """The configuration in a CONFIG entry, which takes the entry's index as its `opid_index`."""
    assert entry.kind is EntryKind.CONFIG, entry
    return msgspec.structs.replace(_CONFIG_DECODER.decode(entry.payload), opid_index=entry.index)


class MemoryLog:
    """Contiguous entries after `base`."""

    __slots__ = ("_entries", "base", "last", "last_index", "payload_bytes")

    def __init__(self, base: OpId, entries: Iterable[Entry] = ()) -> None:
        self.base = base
        self.last = base  # the name of the last entry; `base` when there is none
        self.last_index = base.index
        self._entries: list[Entry] = []
        self.payload_bytes = 0
        for entry in entries:
            self.append(entry)

    def _note_last(self) -> None:
        """Take note of the end of the log, which is read far more often than it moves back."""
        entry = self._entries[-1] if self._entries else self.base
        self.last = OpId(entry.term, entry.index)
        self.last_index = entry.index

    def term_at(self, index: int) -> int:
        """The term of the entry at `index`, which must be `base` or in memory."""
        if index == self.last_index:
            return self.last.term
        offset = index - self.base.index
        if offset == 0:
            return self.base.term
        assert 0 < offset <= len(self._entries), f"no entry {index} in {self}"
        return self._entries[offset - 1].term

    def holds(self, opid: OpId) -> bool:
        """Whether `opid` is `base` or an entry in memory."""
        if opid == self.last:
            return True
        if not self.base.index <= opid.index <= self.last_index:
            return False
        return self.term_at(opid.index) == opid.term

    def entry(self, index: int) -> Entry:
        """The entry at `index`."""
        offset = index - self.base.index
        assert 0 < offset <= len(self._entries), f"no entry {index} in {self}"
        return self._entries[offset - 1]

    def append(self, entry: Entry) -> None:
        """Append the next entry."""
        last, index, term = self.last, entry.index, entry.term
        assert index == last.index + 1, f"entry {index} after {last}"
        assert term >= last.term, f"term {term} after {last}"
        self._entries.append(entry)
        self.last = OpId(term, index)
        self.last_index = index
        self.payload_bytes += len(entry.payload)

    def truncate_from(self, index: int) -> None:
        """Remove `index` and everything after it."""
        offset = index - self.base.index - 1
        assert 0 <= offset < len(self._entries), f"truncate {self} from {index}"
        self.payload_bytes -= sum(len(entry.payload) for entry in self._entries[offset:])
        del self._entries[offset:]
        self._note_last()

    def compact(self, index: int) -> None:
        """Forget everything up to `index`, which becomes `base`."""
        offset = index - self.base.index
        assert 0 < offset <= len(self._entries), f"compact {self} up to {index}"
        entry = self._entries[offset - 1]
        self.payload_bytes -= sum(len(entry.payload) for entry in self._entries[:offset])
        self.base = OpId(entry.term, entry.index)
        del self._entries[:offset]
        self._note_last()

    def reset(self, base: OpId) -> None:
        """Forget everything: a snapshot up to `base` took its place."""
        self.base = base
        self._entries.clear()
        self.payload_bytes = 0
        self._note_last()

    def batch(self, index: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from `index` on, at most `bytes_max` of payload but at least one if any."""
        if index == self.last_index + 1:
            return ()
        offset = index - self.base.index - 1
        assert 0 <= offset <= len(self._entries), f"batch from {index} of {self}"
        size = 0
        end = offset
        while end < len(self._entries):
            size += len(self._entries[end].payload) + _ENTRY_OVERHEAD_BYTES
            if size > bytes_max and end > offset:
                break
            end += 1
        return tuple(self._entries[offset:end])

    def between(self, first: int, last: int) -> list[Entry]:
        """Entries `first` to `last`, both included."""
        start = first - self.base.index - 1
        assert start >= 0, f"entries from {first} of {self}"
        assert last <= self.last_index, f"entries up to {last} of {self}"
        return self._entries[start : last - self.base.index]

    def __repr__(self) -> str:
        return f"MemoryLog(base={self.base}, last={self.last})"


_ENTRY_OVERHEAD_BYTES = 16


class ConfigHistory:
    """The committed configuration and those appended after it.

    The newest one is active from the moment it is in the log, and a truncation brings its
    predecessor back (Raft 6; KUDU-1338 forgot that).
    """

    __slots__ = ("_items", "active", "committed")

    def __init__(self, committed: RaftConfig) -> None:
        self.reset(committed)

    def _note_ends(self) -> None:
        self.committed = self._items[0]  # the newest committed configuration
        self.active = self._items[-1]  # the newest one

    @property
    def pending(self) -> bool:
        """Whether a configuration waits for its commit."""
        return len(self._items) > 1

    def append(self, entry: Entry) -> None:
        """Take over the configuration in `entry`, unless it is known already."""
        config = decode_config(entry)
        if config.opid_index > self._items[-1].opid_index:
            self._items.append(config)
            self._note_ends()

    def truncate_from(self, index: int) -> bool:
        """Drop configurations at or after `index`; true when the active one changed."""
        before = len(self._items)
        while len(self._items) > 1 and self._items[-1].opid_index >= index:
            self._items.pop()
        self._note_ends()
        return len(self._items) != before

    def commit(self, index: int) -> bool:
        """Note that `index` is committed; true when the committed configuration changed."""
        if len(self._items) == 1:
            return False
        newest = 0
        for position, config in enumerate(self._items):
            if config.opid_index <= index:
                newest = position
        del self._items[:newest]
        self._note_ends()
        return newest > 0

    def reset(self, committed: RaftConfig) -> None:
        """Start again from the configuration of a snapshot."""
        self._items = [committed]
        self._note_ends()
