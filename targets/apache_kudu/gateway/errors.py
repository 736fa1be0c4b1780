"""Converts errors of bundled servers to Kudu's errors.

The code and the status tell Kudu's clients whether to try again, and where:

| error | the Java client |
|---|---|
| a master's NOT_THE_LEADER | looks for the leader |
| a master's error with the status ServiceUnavailable | tries again |
| a tablet server's TABLET_NOT_FOUND or TABLET_NOT_RUNNING | asks for the locations again |
| a tablet server's error with the status IllegalState or Aborted | looks for the leader |
| a tablet server's error with the status ServiceUnavailable | tries the same server again |
| any other | gives up |

A write of unknown outcome becomes Aborted, so that clients send it to the next leader under the
same id.
"""

from __future__ import annotations

from typing import Final

from targets.apache_kudu.gateway.link import CallError
from targets.apache_kudu.wire.errors import RpcCode
from targets.apache_kudu.wire.protobuf import Values
from targets.kudu import messages as m
from targets.kudu.messages import AppStatus, MasterErrorCode
from targets.kudu.messages import TabletErrorCode as Code

_STATUSES: Final = {
    Code.MISMATCHED_SCHEMA: AppStatus.INVALID_ARGUMENT,
    Code.TABLET_NOT_FOUND: AppStatus.NOT_FOUND,
    Code.INVALID_SCAN_SPEC: AppStatus.INVALID_ARGUMENT,
    Code.INVALID_SNAPSHOT: AppStatus.INVALID_ARGUMENT,
    Code.TABLET_NOT_RUNNING: AppStatus.ILLEGAL_STATE,
    Code.NOT_THE_LEADER: AppStatus.ILLEGAL_STATE,
    Code.THROTTLED: AppStatus.SERVICE_UNAVAILABLE,
    Code.TIMED_OUT: AppStatus.TIMED_OUT,
    Code.CLOCK_TOO_FAR_AHEAD: AppStatus.INVALID_ARGUMENT,
}
_CODE_MAX: Final = 21
"""The highest code of Kudu's `TabletServerErrorPB`. Only bundled servers have higher ones."""
SCANNER_EXPIRED: Final = 7
INVALID_SCAN_CALL: Final = 14
INVALID_MUTATION: Final = 4


def error_values(code: int, status: int, text: str) -> Values:
    """Build an answer that consists of an error."""
    return {"error": {"code": code, "status": {"code": status, "message": text}}}


def master_error(answer: m.MasterResponse) -> Values | None:
    """Convert the error in a bundled master's answer to a Kudu answer; `None` if there is none."""
    error = answer.error
    return None if error is None else error_values(error.code, error.status, error.message)


def not_supported(text: str) -> Values:
    """Build a master's answer to a request that bundled masters do not support."""
    return error_values(MasterErrorCode.UNKNOWN_ERROR, AppStatus.NOT_SUPPORTED, text)


def tablet_error(answer: m.TabletResponse) -> Values | None:
    """Convert a bundled tablet server's error. Raises `CallError` for a stale request."""
    error = answer.error
    if error is None:
        return None
    if error.code is Code.REQUEST_STALE:
        raise CallError(RpcCode.REQUEST_STALE, error.message)
    if error.indeterminate:
        return error_values(Code.UNKNOWN_ERROR, AppStatus.ABORTED, error.message)
    code = int(error.code) if error.code <= _CODE_MAX else int(Code.UNKNOWN_ERROR)
    return error_values(code, _STATUSES.get(error.code, AppStatus.RUNTIME_ERROR), error.message)


def mismatched(text: str) -> Values:
    """Build a tablet server's answer to a request that does not fit the tablet's schema."""
    return error_values(Code.MISMATCHED_SCHEMA, AppStatus.INVALID_ARGUMENT, text)


def row_error(error: m.RowError) -> Values:
    """Convert the error of one row."""
    status = {"code": int(error.code), "message": error.code.name}
    if error.code is m.RowErrorCode.OUT_OF_RANGE:
        status = {"code": int(AppStatus.NOT_FOUND), "message": "Row not in tablet partition"}
    return {"row_index": error.row, "error": status}
