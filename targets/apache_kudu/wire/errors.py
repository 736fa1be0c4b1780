"""The meaning of Kudu's errors: whether the refused request may still take effect.

In doubt, an error is `indeterminate`. Names are from Kudu's sources (1.18).

**Errors of the RPC layer** (`rpc/rpc_header.proto`, `ErrorStatusPB`):

| code | the request |
|------|-------------|
| 2 no such method, 3 no such service, 5 invalid request, 12 to 18 (header, version, authorization) | was never executed |
| 4 too busy: the queue was full, or `SetupErrorAndRespond` in `tserver/tablet_service.cc` found the status ServiceUnavailable, which no write has after its append | was never executed |
| 1 application, 6 stale request, 7 unavailable, 10 unknown, 11 shutting down | may have been executed |

**Errors of masters** (`master/catalog_manager.cc`), for changes:

| error | the change |
|-------|------------|
| 7 NOT_THE_LEADER of `ScopedLeaderSharedLock`: "Not the leader", "Leader not yet ready", "is not initialized", "ConsensusState is not available" | did not happen |
| 7 of `CheckIfNoLongerLeaderAndSetupError` ("no longer the leader", KUDU-591), or of `AddMaster` | may happen |
| any error "while writing to" or "updating the sys-catalog" | may happen |
| 13 HIVE_METASTORE_ERROR | may have happened in the metastore |
| any other code | is judged by `targets.kudu.client.classify` |

**Errors of tablet servers** (`tserver/tablet_service.cc`, `tablet/ops/write_op.cc`), for writes:

| error | the write |
|-------|-----------|
| 2, 3, 4, 5, 21 (schema, rows, mutation, rights), 6 and 12 (no such tablet, not running), 16 (other server), 19 (throttled) | did not happen |
| any with "is not leader of this config" (`RaftConsensus::CheckActiveLeaderUnlocked`, before the append) | did not happen |
| any other, such as Aborted or TimedOut | may happen |
"""  # noqa: E501 - tables

from __future__ import annotations

import enum
from typing import Final, TypeVar

from harness.env import Address
from targets.apache_kudu.wire.protobuf import Values
from targets.kudu import messages as m
from targets.kudu.consensus.messages import ConsensusError, ConsensusErrorCode
from targets.kudu.rpc import RpcBusyError, RpcError

_NEVER_EXECUTED: Final = frozenset({2, 3, 4, 5, *range(12, 19)})
_NOT_LEADING: Final = (
    "Not the leader",
    "not yet ready",
    "is not initialized",
    "ConsensusState is not available",
)
_LOST: Final = ("no longer the leader", "sys-catalog")
_NOT_LEADER_OF_TABLET: Final = "is not leader of this config"
_OTHER_PARTITION: Final = "not in tablet partition"
_TABLET_CODES: Final = {
    2: m.TabletErrorCode.MISMATCHED_SCHEMA,
    3: m.TabletErrorCode.MISMATCHED_SCHEMA,
    4: m.TabletErrorCode.MISMATCHED_SCHEMA,
}
"""Kudu's own codes of refused writes, and the codes of the bundled target for them."""
_TABLET_REFUSALS: Final = frozenset({2, 3, 4, 5, 6, 12, 16, 19, 21})
_CONSENSUS_CODES: Final = {
    6: ConsensusErrorCode.TABLET_NOT_FOUND,
    9: ConsensusErrorCode.INVALID_CONFIG,
    12: ConsensusErrorCode.TABLET_NOT_FOUND,
    15: ConsensusErrorCode.NOT_THE_LEADER,
    16: ConsensusErrorCode.WRONG_SERVER_UUID,
    17: ConsensusErrorCode.CAS_FAILED,
}
E = TypeVar("E", bound=enum.IntEnum)


class RpcCode(enum.IntEnum):
    """The code of an error of the RPC layer (part of Kudu's `ErrorStatusPB`)."""

    APPLICATION = 1
    NO_SUCH_METHOD = 2
    TOO_BUSY = 4
    INVALID_REQUEST = 5
    REQUEST_STALE = 6


class RpcLayerError(RpcError):
    """A server's RPC layer answered with an error, whose number is `code`."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text, sent=code not in _NEVER_EXECUTED)
        self.code = code


def rpc_error_of(address: Address, method: str, error: Values) -> RpcError:
    """Build the exception for an error of the RPC layer."""
    code = int(error.get("code", 0))
    text = f"{address} refused {method} with code {code}: {error.get('message', '')}"
    return RpcBusyError(text, sent=False) if code == RpcCode.TOO_BUSY else RpcLayerError(text, code)


def master_error(answer: Values) -> m.MasterError | None:
    """Return the error in a master's answer, if there is one."""
    error = answer.get("error")
    if error is None:
        return None
    code, status, text = _parts(error)
    listed = _member(m.MasterErrorCode, code, m.MasterErrorCode.UNKNOWN_ERROR)
    lost = any(phrase in text for phrase in _LOST)
    if listed is m.MasterErrorCode.NOT_THE_LEADER:
        lost = lost or not any(phrase in text for phrase in _NOT_LEADING)
    lost = lost or listed is m.MasterErrorCode.HIVE_METASTORE_ERROR
    if int(listed) != code:
        text = f"code {code}: {text}"
    return m.MasterError(listed, status, text, indeterminate=lost)


def tablet_error(answer: Values) -> m.TabletError | None:
    """Return the error in a tablet server's answer, if there is one."""
    error = answer.get("error")
    if error is None:
        return None
    code, status, text = _parts(error)
    if _NOT_LEADER_OF_TABLET in text:
        return m.TabletError(m.TabletErrorCode.NOT_THE_LEADER, text)
    listed = _TABLET_CODES.get(code) or _member(
        m.TabletErrorCode, code, m.TabletErrorCode.UNKNOWN_ERROR
    )
    if listed is m.TabletErrorCode.UNKNOWN_ERROR and status is m.AppStatus.TIMED_OUT:
        listed = m.TabletErrorCode.TIMED_OUT  # bundled servers have a code for Kudu's status
    text = f"{status.name}, code {code}: {text}"
    return m.TabletError(listed, text, indeterminate=code not in _TABLET_REFUSALS)


def consensus_error(answer: Values) -> ConsensusError | None:
    """Return the error in an answer about a Raft group. ABORTED: the change may happen."""
    error = answer.get("error")
    if error is None:
        return None
    code, status, text = _parts(error)
    listed = _CONSENSUS_CODES.get(code)
    if listed is None and status is m.AppStatus.ILLEGAL_STATE:
        listed = ConsensusErrorCode.ILLEGAL_STATE
    if listed is None and status is m.AppStatus.INVALID_ARGUMENT:
        listed = ConsensusErrorCode.INVALID_CONFIG
    text = f"{status.name}, code {code}: {text}"
    return ConsensusError(listed or ConsensusErrorCode.ABORTED, text)


def row_error(position: int, status: Values) -> m.RowError | None:
    """Return the error of a row that was not written; `None` if the reason is unknown."""
    code, text = int(status.get("code", 0)), str(status.get("message", ""))
    if code == m.RowErrorCode.NOT_FOUND and _OTHER_PARTITION in text:
        return m.RowError(position, m.RowErrorCode.OUT_OF_RANGE)
    listed = _member(m.RowErrorCode, code, m.RowErrorCode.OUT_OF_RANGE)
    return m.RowError(position, listed) if int(listed) == code else None


def _parts(error: Values) -> tuple[int, m.AppStatus, str]:
    status = error.get("status", {})
    listed = _member(m.AppStatus, int(status.get("code", 0)), m.AppStatus.RUNTIME_ERROR)
    return int(error.get("code", 0)), listed, str(status.get("message", ""))


def _member(codes: type[E], number: int, other: E) -> E:
    try:
        return codes(number)
    except ValueError:
        return other
