"""`TabletServerService`: writes of rows to the leader of a tablet, and reads from its replicas.

The messages follow Kudu's `tserver/tserver.proto` and `rpc/rpc_header.proto` (`RequestIdPB`). Kudu
keeps a scanner on the server. Here, each page of a scan comes with a token that contains the
scanner's whole state, so any replica of the tablet can continue the scan at the same timestamp.

Timestamps are hybrid (`hybrid_clock.py`). 0 means "none".
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import msgspec

from targets.kudu.messages.base import Message, TabletResponse, TabletServerCall
from targets.kudu.messages.schema import Column, Partition

if TYPE_CHECKING:
    Value = None | bool | int | float | str | bytes
    """The value of a cell, by the type of its column; msgpack distinguishes all of these types."""
else:
    Value = Any  # msgspec does not support a union of text and bytes


class RowKind(enum.IntEnum):
    """The kind of a row operation (Kudu's `RowOperationsPB.Type`)."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    UPSERT = 5


class RowOperation(Message, frozen=True):
    """One row of a write.

    `key` has the values of the key columns in order. `values` maps the ids of other columns to
    values. INSERT sets missing columns to null. UPDATE leaves them as they are, and so does UPSERT
    if the row exists.
    """

    kind: RowKind
    key: tuple[Value, ...]
    values: dict[int, Value] = msgspec.field(default_factory=dict)


class RowErrorCode(enum.IntEnum):
    """The reason why a row was not written. All replicas derive the same reason from the log."""

    NOT_FOUND = 1  # UPDATE, DELETE: the row does not exist
    INVALID_ARGUMENT = 4  # a column was dropped meanwhile, or must not be null
    ALREADY_PRESENT = 6  # INSERT: the row exists already
    OUT_OF_RANGE = 101  # the key belongs to another tablet (Kudu: NotFound)


class RowError(Message, frozen=True):
    """A row of a write request that was not written, by position."""

    row: int
    code: RowErrorCode


class RowRequestId(Message, frozen=True):
    """The id of one write. Every resend has the same id and the same rows.

    The client has the answers to all writes with numbers below `first_incomplete_seq_no`, and will
    not resend these. The server forgets their results, and answers a late copy with REQUEST_STALE.
    """

    client_id: str
    seq_no: int
    first_incomplete_seq_no: int = 0


class WriteResponse(TabletResponse, frozen=True):
    """The answer to a write. Without `error`, all rows not in `row_errors` are committed.

    With `error.indeterminate`, the write may have happened or may still happen. The client learns
    the outcome by sending the same request to the next leader. After any other error, the write did
    not happen and never will.
    """

    timestamp: int = 0
    row_errors: tuple[RowError, ...] = ()
    propagated_timestamp: int = 0
    index: int = 0  # index of the newest log entry that the answer reflects
    term: int = 0


class WriteRequest(TabletServerCall[WriteResponse], frozen=True):
    """Write rows in order, all with one timestamp."""

    tablet_id: str
    request_id: RowRequestId
    operations: tuple[RowOperation, ...]
    propagated_timestamp: int = 0


class ReadMode(enum.IntEnum):
    """The state that a read returns (`ReadMode` of `common/common.proto`)."""

    READ_LATEST = 1
    """The newest state on this replica.

    A leader first confirms its leadership, so the read is linearizable. If the request allows it,
    any replica may answer, with a state of any age.
    """
    READ_AT_SNAPSHOT = 2
    """The state at one timestamp. Every replica returns the same rows for it, at any time."""
    READ_YOUR_WRITES = 3
    """A snapshot at or after `propagated_timestamp`, as new as possible without waiting."""


class ReplicaInfo(Message, frozen=True):
    """The replica that answered: its role, its term, and the log index that the answer reflects."""

    ts_uuid: str = ""
    role: str = ""
    term: int = 0
    applied_index: int = 0
    leadership_confirmed: bool = False


class ScanResponse(TabletResponse, frozen=True):
    """A page of rows: the state at `snap_timestamp`, with values in the order of `column_ids`.

    The last page has no `page_token`. A page may be empty even if it is not the last one.
    """

    column_ids: tuple[int, ...] = ()
    rows: tuple[tuple[Value, ...], ...] = ()
    page_token: bytes = b""
    snap_timestamp: int = 0
    propagated_timestamp: int = 0
    schema_version: int = 0
    replica: ReplicaInfo = ReplicaInfo()


class ScanRequest(TabletServerCall[ScanResponse], frozen=True):
    """Read rows in key order, one page at a time.

    `projection` has column ids; `None` means all columns. The range is `[key_start, key_end)`, two
    encoded keys (`partitions.encode_key`); an empty key means no bound. A page has at most
    `batch_rows` rows, and fewer if they are large. `page_token`, from an earlier page, continues
    the scan at the same timestamp; mode, range and projection must be the same. `timeout_ms` limits
    the wait for the snapshot.
    """

    tablet_id: str
    mode: ReadMode = ReadMode.READ_LATEST
    snapshot_timestamp: int = 0
    propagated_timestamp: int = 0
    projection: tuple[int, ...] | None = None
    key_start: bytes = b""
    key_end: bytes = b""
    page_token: bytes = b""
    batch_rows: int = 1000
    allow_followers: bool = False  # READ_LATEST only; the other modes may read from any replica
    timeout_ms: int = 10_000


class ChecksumResponse(TabletResponse, frozen=True):
    """A checksum and a number of rows. All replicas agree on both at one timestamp and schema."""

    checksum: str = ""
    rows: int = 0
    snap_timestamp: int = 0
    schema_version: int = 0
    replica: ReplicaInfo = ReplicaInfo()


class ChecksumRequest(TabletServerCall[ChecksumResponse], frozen=True):
    """Ask for the checksum of a tablet's rows at a timestamp. 0 means now."""

    tablet_id: str
    snapshot_timestamp: int = 0
    timeout_ms: int = 10_000


class HostedTablet(Message, frozen=True):
    """A replica, as its server reports it; `ReportedTablet` lists the states."""

    tablet_id: str
    table_id: str
    table_name: str
    state: str
    data_state: str
    role: str
    term: int
    leader_uuid: str | None
    partition: Partition
    schema_version: int
    rows: int
    columns: tuple[Column, ...] = ()


class ListTabletsResponse(Message, frozen=True):
    """All replicas on a tablet server, sorted by tablet id."""

    ts_uuid: str
    tablets: tuple[HostedTablet, ...] = ()
    software_version: str = ""


class ListTabletsRequest(TabletServerCall[ListTabletsResponse], frozen=True):
    """Ask a tablet server for its replicas."""


class AdvanceSafeTimeResponse(TabletResponse, frozen=True):
    """The answer, sent once the leader has committed an entry later than the timestamp."""


class AdvanceSafeTimeRequest(TabletServerCall[AdvanceSafeTimeResponse], frozen=True):
    """A follower's request to the leader to append an entry later than `timestamp` to the log."""

    tablet_id: str
    timestamp: int
