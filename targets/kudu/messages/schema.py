"""Schemas, partitions and Raft configurations."""

from __future__ import annotations

import enum

from targets.kudu.messages.base import Message


class Column(Message, frozen=True):
    """A column. Ids are never used again in a table (KUDU-461)."""

    id: int
    name: str
    type: str = "STRING"
    is_key: bool = False
    is_nullable: bool = True


class Schema(Message, frozen=True):
    """The columns of a table, keys first."""

    columns: tuple[Column, ...]


class PartitionSchema(Message, frozen=True):
    """The map from rows to tablets: hash buckets over `hash_columns` (none: the whole key), and in
    each bucket ranges of `range_columns`, which begin where `range_splits` say: encoded, rising
    (`targets.kudu.partitions`).
    """

    num_hash_buckets: int = 1
    hash_columns: tuple[str, ...] = ()
    range_columns: tuple[str, ...] = ()
    range_splits: tuple[bytes, ...] = ()


class Partition(Message, frozen=True):
    """One tablet's share: encoded partition keys `[start, end)`; empty means unbounded."""

    start: bytes
    end: bytes


class PeerConfig(Message, frozen=True):
    """A member of a Raft configuration."""

    uuid: str
    address: str  # "node:port"
    member_type: str = "VOTER"  # or NON_VOTER
    promote: bool = False
    replace: bool = False


class RaftConfig(Message, frozen=True):
    """A Raft configuration and the index of the operation that set it (-1 for the first)."""

    opid_index: int
    peers: tuple[PeerConfig, ...]


class PeerHealth(enum.StrEnum):
    """`HealthReportPB.HealthStatus`: what a leader makes of a peer."""

    UNKNOWN = "UNKNOWN"
    """Not heard from since this leader was elected."""
    HEALTHY = "HEALTHY"
    FAILED = "FAILED"
    """No answer for `follower_unavailable_considered_failed_sec`."""
    FAILED_UNRECOVERABLE = "FAILED_UNRECOVERABLE"
    """It says that it failed, or it has lost its data and cannot be given them."""
