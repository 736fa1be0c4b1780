"""Schemas, partitions and Raft configurations."""

from __future__ import annotations

import enum
import zlib

from targets.kudu.messages.base import Message
from targets.kudu.murmur import murmur2


class Column(Message, frozen=True):
    """A column. A table never reuses the id of a column (KUDU-461)."""

    id: int
    name: str
    type: str = "STRING"
    is_key: bool = False
    is_nullable: bool = True


class Schema(Message, frozen=True):
    """The columns of a table, keys first."""

    columns: tuple[Column, ...]


class RangeHash(Message, frozen=True):
    """A range of a table, `[start, end)` in encoded range keys, with its number of hash buckets."""

    start: bytes
    end: bytes
    num_hash_buckets: int


class PartitionSchema(Message, frozen=True):
    """The map from rows to tablets: hash buckets, each of which is divided into ranges.

    The bucket is computed from `hash_columns`, or from the whole key if `hash_columns` is empty. In
    each bucket, the ranges of `range_columns` begin at the encoded keys in `range_splits`, which
    are ascending (`targets.kudu.partitions`).

    If `is_bounded`, alters add and drop ranges, and a key outside all ranges belongs to no tablet.
    `custom_ranges` lists the ranges whose number of buckets differs from the table's (KUDU-2671).

    Kudu's own clients hash with Murmur2 and `murmur_seed`. Without a seed, the hash is CRC-32,
    which the bundled clients compute faster.
    """

    num_hash_buckets: int = 1
    hash_columns: tuple[str, ...] = ()
    range_columns: tuple[str, ...] = ()
    range_splits: tuple[bytes, ...] = ()
    is_bounded: bool = False
    custom_ranges: tuple[RangeHash, ...] = ()
    murmur_seed: int | None = None

    def hash_of(self, encoded: bytes) -> int:
        """Return the hash of the encoded hash columns. The hash determines the bucket."""
        if self.murmur_seed is None:
            return zlib.crc32(encoded)
        return murmur2(encoded, self.murmur_seed)


class Partition(Message, frozen=True):
    """The key range of one tablet: partition keys `[start, end)`; an empty key means no bound."""

    start: bytes
    end: bytes


class PeerConfig(Message, frozen=True):
    """A member of a Raft configuration."""

    uuid: str
    address: str  # "node:port"
    member_type: str = "VOTER"  # VOTER or NON_VOTER
    promote: bool = False
    replace: bool = False


class RaftConfig(Message, frozen=True):
    """A Raft configuration, and the index of the log entry that set it (-1 for the first one)."""

    opid_index: int
    peers: tuple[PeerConfig, ...]


class PeerHealth(enum.StrEnum):
    """A leader's assessment of a peer (Kudu's `HealthReportPB.HealthStatus`)."""

    UNKNOWN = "UNKNOWN"
    """The peer gave no answer since this leader was elected."""
    HEALTHY = "HEALTHY"
    FAILED = "FAILED"
    """The peer gave no answer for `follower_unavailable_considered_failed_sec`."""
    FAILED_UNRECOVERABLE = "FAILED_UNRECOVERABLE"
    """The peer reported a failure, or has lost its data and cannot receive them again."""
