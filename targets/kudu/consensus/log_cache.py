"""The in-memory log of the Raft core, with its durable index and its commit index.

The log begins after `base`, the last entry that a snapshot covers. All entries up to `base` are
committed, so the logs of all later leaders have the same entries (leader completeness).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.messages import Entry, EntryKind, OpId
from targets.kudu.consensus.quorum_util import ConfigHistory
from targets.kudu.messages import RaftConfig

COMMITTED_LOST: Final = "a committed entry was lost"
"""The start of an assertion's message that says that a leader lacks committed entries.

Apart from a bug, this happens only if a disk loses durable data.
"""

_ENTRY_OVERHEAD_BYTES: Final = 16
_CONFIG: Final = EntryKind.CONFIG


class MemoryLog:
    """A replica's log in memory: contiguous entries after `base`, and the configurations in them.

    Committed entries are never truncated. An entry may be committed before it is durable here, so
    `durable_index` may be lower than the commit index.
    """

    def __init__(self, base: OpId, config: RaftConfig, entries: Iterable[Entry] = ()) -> None:
        """Start from a recovered log: all its entries are durable, and `base` is committed."""
        self.base = base
        self.last = base  # term and index of the last entry; `base` if the log is empty
        self.last_index = base.index
        self.payload_bytes = 0
        self.configs = ConfigHistory(config)
        self.commit_index = base.index
        self.append_sequence = 0
        self._entries: list[Entry] = []
        self._unsynced: deque[tuple[int, int]] = deque()  # (append sequence, last index)
        self._extend(entries)
        self.durable_index = self.last_index

    # --- reading ----------------------------------------------------------------------------

    def term_at(self, index: int) -> int:
        """Return the term of the entry at `index`, which must be `base` or in memory."""
        if index == self.last_index:
            return self.last.term
        return self.base.term if index == self.base.index else self.entry(index).term

    def holds(self, opid: OpId) -> bool:
        """Whether `opid` identifies `base` or an entry in memory."""
        if opid == self.last:
            return True
        if not self.base.index <= opid.index <= self.last_index:
            return False
        return self.term_at(opid.index) == opid.term

    def entry(self, index: int) -> Entry:
        offset = index - self.base.index
        assert 0 < offset <= len(self._entries), f"no entry {index} in {self}"
        return self._entries[offset - 1]

    def batch(self, index: int, bytes_max: int) -> tuple[Entry, ...]:
        """Return entries from `index` on, with at most `bytes_max` bytes of payload and overhead.

        At least one entry is returned if the log has an entry at `index`.
        """
        offset = index - self.base.index - 1
        assert 0 <= offset <= len(self._entries), f"no entries from {index} in {self}"
        size = 0
        for end in range(offset, len(self._entries)):
            size += len(self._entries[end].payload) + _ENTRY_OVERHEAD_BYTES
            if size > bytes_max and end > offset:
                return tuple(self._entries[offset:end])
        return tuple(self._entries[offset:])

    def between(self, first: int, last: int) -> list[Entry]:
        start = first - self.base.index - 1
        assert start >= 0, f"no entries from {first} in {self}"
        assert last <= self.last_index, f"no entries up to {last} in {self}"
        return self._entries[start : last - self.base.index]

    def __repr__(self) -> str:
        return f"MemoryLog(base={self.base}, committed={self.commit_index}, last={self.last})"

    # --- changing ---------------------------------------------------------------------------

    def append(self, entries: tuple[Entry, ...]) -> ev.AppendLog:
        """Append entries to memory; return the effect that writes them to disk."""
        preceding = self.last
        self._extend(entries)
        self.append_sequence += 1
        self._unsynced.append((self.append_sequence, self.last_index))
        return ev.AppendLog(self.append_sequence, preceding, entries)

    def _extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            last, index, term = self.last, entry.index, entry.term
            assert index == last.index + 1, f"entry {index} after {last}"
            assert term >= last.term, f"term {term} after {last}"
            self._entries.append(entry)
            self.last = OpId(term, index)
            self.last_index = index
            self.payload_bytes += len(entry.payload)
            if entry.kind is _CONFIG:
                self.configs.append(entry)

    def truncate_from(self, index: int) -> None:
        """Drop conflicting entries from `index` on; the next append replaces them on disk."""
        assert index > self.commit_index, f"{COMMITTED_LOST}: truncation from {index}, {self}"
        offset = index - self.base.index - 1
        assert 0 <= offset < len(self._entries), f"cannot truncate {self} from {index}"
        self._remove(slice(offset, None))
        self.durable_index = min(self.durable_index, index - 1)
        # Appends in progress still finish, but must not raise `durable_index` above `index - 1`.
        self._unsynced = deque((seq, min(last, index - 1)) for seq, last in self._unsynced)
        self.configs.truncate_from(index)

    def synced(self, sequence: int) -> bool:
        """Record that the append `sequence` and all earlier ones are durable.

        Return whether the durable index has risen.
        """
        durable_before = self.durable_index
        while self._unsynced and self._unsynced[0][0] <= sequence:
            _, last_index = self._unsynced.popleft()
            self.durable_index = max(self.durable_index, last_index)
        assert self.durable_index <= self.last_index, "the durable index is beyond the log"
        return self.durable_index > durable_before

    def commit_to(self, index: int) -> bool:
        assert self.commit_index < index <= self.last_index, f"cannot commit {index} of {self}"
        self.commit_index = index
        return self.configs.commit(index)

    def compact(self, index: int) -> None:
        """Drop the entries up to and including `index`, which a snapshot covers.

        `base` moves to `index`.
        """
        assert index <= self.commit_index, "a snapshot covers only committed entries"
        if index <= self.base.index:
            return
        entry = self.entry(index)
        count = index - self.base.index
        self.base = OpId(entry.term, index)
        self._remove(slice(0, count))

    def install(self, last: OpId, config: RaftConfig) -> bool:
        """Drop the entries up to `last`, because a snapshot with `config` covers them.

        Return whether this log contains the entry `last`. If not, the rest of the log does not
        continue the snapshot, so all entries are dropped.
        """
        assert last.index > self.commit_index, (
            f"the snapshot ends at {last}, before the commit index {self.commit_index}"
        )
        keeps = self.holds(last)
        self.commit_index = last.index
        if keeps:
            self.compact(last.index)
        else:
            self.base = last
            self._remove(slice(None))
            self._unsynced.clear()
            self.durable_index = last.index
        self.durable_index = max(self.durable_index, last.index)
        self.configs.reset(config)
        for entry in self._entries:
            if entry.kind is EntryKind.CONFIG:
                self.configs.append(entry)
        return keeps

    def _remove(self, part: slice) -> None:
        self.payload_bytes -= sum(len(entry.payload) for entry in self._entries[part])
        del self._entries[part]
        entry = self._entries[-1] if self._entries else self.base
        self.last = OpId(entry.term, entry.index)
        self.last_index = entry.index
