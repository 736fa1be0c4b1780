"""Digests of the entries that a replica has applied, to compare the logs of replicas.

The digest at an index covers every entry ever applied up to that index (term, kind, payload). A
snapshot contains the digest, so it also covers entries that a snapshot has replaced. Two replicas
have applied the same entries up to an index exactly if their digests at that index are equal. The
2048 newest digests suffice to compare replicas that have applied different numbers of entries.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Any, Final

from targets.kudu.consensus.log_cache import MemoryLog
from targets.kudu.consensus.messages import Entry, OpId

_WINDOW: Final = 2048
_ENTRY: Final = struct.Struct(">QQB")
_DIGEST_BYTES: Final = 8


class Journal:
    """The index, term and digest of the last applied entry, and the digests at earlier indexes."""

    __slots__ = ("_digests", "digest", "index", "term")

    def __init__(self, last: OpId, digest: bytes = bytes(_DIGEST_BYTES)) -> None:
        self.index = last.index
        self.term = last.term
        self.digest = digest
        # One buffer, which ends with the digest at `index`: separate objects would take several
        # times the memory in every replica.
        self._digests = bytearray(digest)

    def add(self, entry: Entry) -> None:
        assert entry.index == self.index + 1, f"applied {entry.index} after {self.index}"
        header = _ENTRY.pack(entry.index, entry.term, entry.kind)
        data = self.digest + header + entry.payload
        self.index = entry.index
        self.term = entry.term
        self.digest = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
        self._digests += self.digest
        if len(self._digests) > _WINDOW * _DIGEST_BYTES:
            del self._digests[:_DIGEST_BYTES]

    def dump(self, log: MemoryLog) -> dict[str, Any]:
        """Return the newest entries of `log` and the newest digests, as JSON.

        "log" has [index, term, CRC-32 of the payload] for each entry. "digests" has [index,
        digest], oldest first. Both lists have at most 2048 items.
        """
        first = max(log.base.index + 1, log.last_index - _WINDOW + 1)
        size = _DIGEST_BYTES
        digests = [self._digests[at : at + size] for at in range(0, len(self._digests), size)]
        return {
            "log": [
                [entry.index, entry.term, zlib.crc32(entry.payload)]
                for entry in log.between(first, log.last_index)
            ],
            "digest": self.digest.hex(),
            "digests": [
                [index, digest.hex()]
                for index, digest in enumerate(digests, self.index - len(digests) + 1)
            ],
        }
