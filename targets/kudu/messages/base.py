"""Error codes, errors, and the base classes of requests and answers."""

from __future__ import annotations

import enum

import msgspec

from targets.kudu.rpc import Call, R_co


class Message(msgspec.Struct, frozen=True, array_like=True):
    """The base of all messages: an immutable msgpack array."""


class AppStatus(enum.IntEnum):
    """The kind of a failure, which refines its error code (Kudu's `AppStatusPB`)."""

    OK = 0
    NOT_FOUND = 1
    NOT_SUPPORTED = 3
    INVALID_ARGUMENT = 4
    ALREADY_PRESENT = 6
    RUNTIME_ERROR = 7
    NETWORK_ERROR = 8
    ILLEGAL_STATE = 9
    NOT_AUTHORIZED = 10
    ABORTED = 11
    REMOTE_ERROR = 12
    SERVICE_UNAVAILABLE = 13
    TIMED_OUT = 14


class MasterErrorCode(enum.IntEnum):
    """The code of a master's error (Kudu's `MasterErrorPB.Code`)."""

    UNKNOWN_ERROR = 1
    INVALID_SCHEMA = 2
    TABLE_NOT_FOUND = 3
    TABLE_ALREADY_PRESENT = 4
    TOO_MANY_TABLETS = 5
    CATALOG_MANAGER_NOT_INITIALIZED = 6
    NOT_THE_LEADER = 7
    REPLICATION_FACTOR_TOO_HIGH = 8
    TABLET_NOT_RUNNING = 9
    EVEN_REPLICATION_FACTOR = 10
    ILLEGAL_REPLICATION_FACTOR = 11
    HIVE_METASTORE_ERROR = 13
    NOT_AUTHORIZED = 14
    MASTER_ALREADY_PRESENT = 15
    TABLE_SOFT_DELETED = 16
    TOO_STALE = 101  # not in Kudu: this master's state is too old for the read


class TabletErrorCode(enum.IntEnum):
    """The code of a tablet server's error (part of Kudu's `TabletServerErrorPB.Code`)."""

    UNKNOWN_ERROR = 1
    MISMATCHED_SCHEMA = 5
    TABLET_NOT_FOUND = 6
    INVALID_SCAN_SPEC = 8
    TABLET_ALREADY_EXISTS = 10
    TABLET_HAS_A_NEWER_SCHEMA = 11
    TABLET_NOT_RUNNING = 12
    INVALID_SNAPSHOT = 13
    NOT_THE_LEADER = 15
    WRONG_SERVER_UUID = 16
    CAS_FAILED = 17
    ALREADY_INPROGRESS = 18
    THROTTLED = 19
    REQUEST_STALE = 101  # in Kudu, REQUEST_STALE and the next two codes are in other enumerations
    TIMED_OUT = 102
    CLOCK_TOO_FAR_AHEAD = 103


class MasterError(Message, frozen=True):
    """An application error of a master.

    A master that lost leadership *while* writing sets `indeterminate`: the write may still commit
    (Kudu's case 7(d), KUDU-591).
    """

    code: MasterErrorCode
    status: AppStatus
    message: str
    indeterminate: bool = False


class TabletError(Message, frozen=True):
    """An application error of a tablet server.

    A leader that lost its role while writing, or timed out, sets `indeterminate`: the write may
    still commit.
    """

    code: TabletErrorCode
    message: str
    indeterminate: bool = False


class Meta(Message, frozen=True):
    """The fields common to all responses of masters.

    `revision` is -1 if the master did not report one. `bound_ns` is set only for reads that
    tolerate stale data. Such a response includes every change acknowledged at least `bound_ns`
    before the master created it.
    """

    master_uuid: str
    term: int = 0
    revision: int = -1
    bound_ns: int | None = None


class RequestId(Message, frozen=True):
    """The id of one logical DDL operation; every resend carries the same id."""

    client_id: str
    seq_no: int
    nonce: str


class MasterResponse(Message, frozen=True):
    """The base of the answers of masters."""

    meta: Meta
    error: MasterError | None = None


class TabletResponse(Message, frozen=True):
    """The base of a tablet server's answers that have the field `error`."""

    error: TabletError | None = None


class MasterCall(Call[R_co], frozen=True):
    """A request to a master."""

    service = "MasterService"


class TabletServerCall(Call[R_co], frozen=True):
    """A request to a tablet server."""

    service = "TabletServerService"


class GenericCall(Call[R_co], frozen=True):
    """A request that both masters and tablet servers serve."""

    service = "GenericService"


class TabletServerAdminCall(Call[R_co], frozen=True):
    """A request with which a master manages a tablet server's replicas."""

    service = "TabletServerAdminService"
