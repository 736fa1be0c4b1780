"""The rows of one tablet in memory: every version of every key, readable at recent timestamps.

The store uses multi-version concurrency control without locks (a much reduced version of Kudu's
`tablet/mvcc.h`). Each write has a higher timestamp than all earlier ones. A reader at timestamp T
sees the newest version of every key at or below T.

A version is 8 bytes of timestamp, followed by the msgpack map {column id: value} without nulls. A
deletion has no map. So the bytes of versions sort by time, and rows of different schemas coexist.
The values of a dropped column remain in old versions, because its id is never reused (KUDU-461).

**Bounded history.** The store removes a version if its successor is older than the age limit, or if
the history exceeds its limit in bytes. The removal raises `history_start`, and reads below
`history_start` are refused.

**Digest.** The digest is the sum of one hash per live row, so a write updates it in constant time.
Two stores with the same live rows have the same digest, even if their histories differ.
"""

from __future__ import annotations

import bisect
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from targets.kudu.messages import Value

Record = tuple[bytes, bytes]
"""A key and one version of the key's row, both encoded."""

_BLOCK_MAX: Final = 1024
"""Maximum number of keys in a block of `SortedKeys`."""
_TIMESTAMP_BYTES: Final = 8
_DIGEST_BYTES: Final = 16
_DIGEST_MASK: Final = (1 << 8 * _DIGEST_BYTES) - 1
_RECORD_OVERHEAD_BYTES: Final = 8
_EXAMINED_PER_ROW: Final = 10
LOADED_AT_ONCE: Final = 2000
_rows = msgspec.msgpack.Decoder(dict[int, Value])
encode_row = msgspec.msgpack.Encoder().encode
decode_row = _rows.decode


class SortedKeys:
    """A sorted set of keys, in sorted blocks, so that an insertion changes only one block.

    Every block has at least one key, and `_firsts` has the first key of each block.
    """

    __slots__ = ("_blocks", "_firsts")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        """Fill the set with `keys`, which need not be sorted but must be distinct."""
        ordered = sorted(keys)
        half = _BLOCK_MAX // 2
        self._blocks = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        self._firsts = [block[0] for block in self._blocks]

    def add(self, key: bytes) -> None:
        if not self._blocks:
            self._blocks, self._firsts = [[key]], [key]
            return
        at = max(0, bisect.bisect_right(self._firsts, key) - 1)
        block = self._blocks[at]
        bisect.insort(block, key)
        if len(block) > _BLOCK_MAX:
            self._blocks[at : at + 1] = [block[: _BLOCK_MAX // 2], block[_BLOCK_MAX // 2 :]]
            self._firsts[at : at + 1] = [self._blocks[at][0], self._blocks[at + 1][0]]
        else:
            self._firsts[at] = block[0]

    def remove(self, key: bytes) -> None:
        at = bisect.bisect_right(self._firsts, key) - 1
        block = self._blocks[at]
        del block[bisect.bisect_left(block, key)]
        if block:
            self._firsts[at] = block[0]
        else:
            del self._blocks[at], self._firsts[at]

    def since(self, start: bytes) -> Iterator[bytes]:
        """Iterate over the keys from `start` on. Add and remove no keys during the iteration."""
        at = max(0, bisect.bisect_right(self._firsts, start) - 1)
        if at < len(self._blocks):
            block = self._blocks[at]
            yield from block[bisect.bisect_left(block, start) :]
        for block in self._blocks[at + 1 :]:
            yield from block


class Page(msgspec.Struct, frozen=True):
    """One page of a scan. `rows` has pairs of a key and an encoded row.

    The scan continues at `next_key`; `None` means that the scan has ended.
    """

    rows: list[tuple[bytes, bytes]]
    next_key: bytes | None


class RowStore:
    """All versions of all rows, in memory.

    `changes` has the versions that were written since the last `take_changes`.
    """

    def __init__(self, *, history_bytes_max: int, loaded_at_once: int = LOADED_AT_ONCE) -> None:
        """Keep a history of at most `history_bytes_max` bytes.

        `load` pauses after every `loaded_at_once` records.
        """
        self._loaded_at_once = loaded_at_once
        self._history_bytes_max = history_bytes_max
        # key -> its versions, oldest first; a single version is stored without a list
        self._chains: dict[bytes, bytes | list[bytes]] = {}
        self._keys = SortedKeys()
        self._superseded: deque[tuple[int, bytes, int]] = deque()  # (timestamp, key, history bytes)
        self.history_start = 0
        self.history_bytes = 0
        self.version_bytes = 0  # size of all versions as `Record`s
        self.live_rows = 0
        self.changes: list[Record] = []
        self._digest = 0

    @property
    def digest(self) -> bytes:
        return self._digest.to_bytes(_DIGEST_BYTES, "big")

    # --- reading ----------------------------------------------------------------------------

    def newest(self, key: bytes) -> bytes | None:
        chain = self._chains.get(key)
        if chain is None:
            return None
        version = chain if isinstance(chain, bytes) else chain[-1]
        return version[_TIMESTAMP_BYTES:] or None

    def _at(self, key: bytes, above: bytes) -> bytes | None:
        """Return the row of the key's newest version before `above`; None if there is no row.

        `above` is a timestamp in bytes.
        """
        chain = self._chains[key]
        if isinstance(chain, bytes):
            version = chain if chain < above else b""
        else:
            position = bisect.bisect_left(chain, above)
            version = chain[position - 1] if position else b""
        return version[_TIMESTAMP_BYTES:] or None

    def scan(
        self, timestamp: int, start: bytes, end: bytes, *, rows_max: int, bytes_max: int
    ) -> Page:
        """Return a page of the rows in `[start, end)` that are live at `timestamp`.

        An empty `end` means no upper bound. A page may be empty and still have a successor: it ends
        after too many keys without a row at `timestamp`.
        """
        assert timestamp >= self.history_start, f"{timestamp} is below {self.history_start}"
        above = (timestamp + 1).to_bytes(_TIMESTAMP_BYTES, "big")
        examined_max = _EXAMINED_PER_ROW * rows_max
        rows: list[tuple[bytes, bytes]] = []
        size = 0
        for examined, key in enumerate(self._keys.since(start)):
            if end and key >= end:
                break
            if len(rows) >= rows_max or size >= bytes_max or examined >= examined_max:
                return Page(rows, key)
            row = self._at(key, above)
            if row is not None:
                rows.append((key, row))
                size += len(key) + len(row)
        return Page(rows, None)

    # --- writing ----------------------------------------------------------------------------

    def put(self, key: bytes, timestamp: int, row: bytes | None) -> None:
        """Add a version of a key's row; `None` deletes the row.

        `timestamp` must not be below the key's newest version. If both are equal, the new version
        replaces that one, because all rows of one write have one timestamp.
        """
        version = timestamp.to_bytes(_TIMESTAMP_BYTES, "big") + (row or b"")
        self._digest_out(key)
        chain = self._chains.get(key)
        if chain is None:
            self._chains[key] = version
            self._keys.add(key)
            superseded = 0
        else:
            superseded = self._append(key, chain, version)
        self.version_bytes += len(key) + len(version) + _RECORD_OVERHEAD_BYTES
        # a deletion counts as history; it is removed with the versions that it hides
        if row is None:
            superseded += len(key) + len(version) + _RECORD_OVERHEAD_BYTES
        if superseded:
            self._superseded.append((timestamp, key, superseded))
            self.history_bytes += superseded
        self._digest_in(key)
        self.changes.append((key, version))

    def _append(self, key: bytes, chain: bytes | list[bytes], version: bytes) -> int:
        """Append a version to a key's `chain`; return how many bytes become history.

        The number is negative if a deletion, which counted as history, is replaced.
        """
        newest = chain if isinstance(chain, bytes) else chain[-1]
        record_bytes = len(key) + len(newest) + _RECORD_OVERHEAD_BYTES
        if newest[:_TIMESTAMP_BYTES] == version[:_TIMESTAMP_BYTES]:
            self.version_bytes -= record_bytes
            if isinstance(chain, bytes):
                self._chains[key] = version
            else:
                chain[-1] = version
            return -record_bytes if len(newest) == _TIMESTAMP_BYTES else 0
        assert newest < version, f"{key!r} is written below its newest version"
        if isinstance(chain, bytes):
            self._chains[key] = [chain, version]
        else:
            chain.append(version)
        return record_bytes

    def _digest_out(self, key: bytes) -> None:
        self._digest = (self._digest - self._hash_newest(key, -1)) & _DIGEST_MASK

    def _digest_in(self, key: bytes) -> None:
        self._digest = (self._digest + self._hash_newest(key, +1)) & _DIGEST_MASK

    def _hash_newest(self, key: bytes, sign: int) -> int:
        chain = self._chains.get(key)
        if chain is None:
            return 0
        version = chain if isinstance(chain, bytes) else chain[-1]
        if len(version) == _TIMESTAMP_BYTES:
            return 0
        self.live_rows += sign
        head = len(key).to_bytes(4, "big") + key
        return int.from_bytes(hashlib.blake2b(head + version, digest_size=_DIGEST_BYTES).digest())

    # --- history ----------------------------------------------------------------------------

    def collect(self, oldest: int) -> None:
        """Remove the versions that only reads below the timestamp `oldest` could see.

        If the history exceeds its limit in bytes, more versions are removed.
        """
        while self._superseded and (
            self._superseded[0][0] <= max(oldest, self.history_start)
            or self.history_bytes > self._history_bytes_max
        ):
            timestamp, key, size = self._superseded.popleft()
            self.history_bytes -= size
            self.history_start = max(self.history_start, timestamp)
            self._prune(key, (timestamp + 1).to_bytes(_TIMESTAMP_BYTES, "big"))

    def _prune(self, key: bytes, above: bytes) -> None:
        chain = self._chains.get(key)
        if chain is None:
            return
        if isinstance(chain, list):
            first = max(0, bisect.bisect_left(chain, above) - 1)
            if len(chain[first]) == _TIMESTAMP_BYTES and chain[first] < above:
                first += 1
            kept = chain[first:]
            self._count_out(key, chain[:first])
        else:
            kept = [] if len(chain) == _TIMESTAMP_BYTES and chain < above else [chain]
            self._count_out(key, [] if kept else [chain])
        if kept:
            self._chains[key] = kept if len(kept) > 1 else kept[0]
        else:
            del self._chains[key]
            self._keys.remove(key)

    def _count_out(self, key: bytes, versions: list[bytes]) -> None:
        for version in versions:
            self.version_bytes -= len(key) + len(version) + _RECORD_OVERHEAD_BYTES

    # --- snapshots --------------------------------------------------------------------------

    def take_changes(self) -> list[Record]:
        """Return the versions written since the last call, in the order of the writes."""
        changes, self.changes = self.changes, []
        return changes

    def records(self) -> list[Record]:
        """Return all versions, sorted by key and then by time."""
        records: list[Record] = []
        for key in self._keys.since(b""):
            chain = self._chains[key]
            if isinstance(chain, bytes):
                records.append((key, chain))
            else:
                records += [(key, version) for version in chain]
        return records

    def load(self, records: Iterable[Record], history_start: int) -> Iterator[None]:
        """Fill an empty store with `records`.

        The versions of a key must come oldest first. If two records have the same key and
        timestamp, the last one counts. The returned iterator works in short steps, and the caller
        must exhaust it before it uses the store.
        """
        assert not self._chains, "the store is not empty"
        chains = self._chains
        for count, (key, version) in enumerate(records, 1):
            if count % self._loaded_at_once == 0:
                yield
            chain = chains.get(key)
            if chain is None:
                chains[key] = version
                self.version_bytes += len(key) + len(version) + _RECORD_OVERHEAD_BYTES
            else:
                self._append(key, chain, version)
                self.version_bytes += len(key) + len(version) + _RECORD_OVERHEAD_BYTES
        self._keys = SortedKeys(chains)
        history = []
        for count, (key, chain) in enumerate(chains.items(), 1):
            if count % self._loaded_at_once == 0:
                yield
            versions = [chain] if isinstance(chain, bytes) else chain
            for position, version in enumerate(versions):
                before = versions[position - 1] if position else b""
                size = len(key) + len(before) + _RECORD_OVERHEAD_BYTES if before else 0
                if len(version) == _TIMESTAMP_BYTES:
                    size += len(key) + len(version) + _RECORD_OVERHEAD_BYTES
                if size:
                    when = int.from_bytes(version[:_TIMESTAMP_BYTES])
                    history.append((when, key, size))
                    self.history_bytes += size
            self._digest_in(key)
        self._superseded = deque(sorted(history))
        self.history_start = history_start
        self.collect(history_start)
