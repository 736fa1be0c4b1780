"""The errors with which a master refuses a request.

Four cases concern the leadership, as in Kudu: (a) the master does not lead; (b) it leads but is not
ready; (c) it is not initialised; (d) it lost its leadership during a write. The code is
CATALOG_MANAGER_NOT_INITIALIZED in case (c), and otherwise NOT_THE_LEADER. In cases (a) to (c), the
master did nothing. In case (d), the write may still commit (KUDU-591), and the error is marked
`indeterminate`.
"""

from __future__ import annotations

from targets.kudu.messages import AppStatus, MasterError, MasterErrorCode

_Code = MasterErrorCode
_Status = AppStatus


class RefusedError(Exception):
    """The master refuses a request; the master service sends `error` as the answer."""

    def __init__(
        self,
        code: MasterErrorCode,
        status: AppStatus,
        message: str,
        *,
        indeterminate: bool = False,
    ) -> None:
        super().__init__(message)
        self.error = MasterError(code, status, message, indeterminate)


def not_initialized() -> RefusedError:
    """Return the error of a master that is still starting (case c of the module's docstring)."""
    return RefusedError(
        _Code.CATALOG_MANAGER_NOT_INITIALIZED,
        _Status.SERVICE_UNAVAILABLE,
        "the catalog manager is not initialized yet",
    )


def not_the_leader() -> RefusedError:
    """Return the error of a master that does not lead (case a of the module's docstring)."""
    message = "Not the leader: this master does not lead"
    return RefusedError(_Code.NOT_THE_LEADER, _Status.ILLEGAL_STATE, message)


def not_yet_ready() -> RefusedError:
    """Return the error of a leader that is still loading the catalog (case b)."""
    message = "Leader not yet ready to serve requests"
    return RefusedError(_Code.NOT_THE_LEADER, _Status.SERVICE_UNAVAILABLE, message)


def unconfirmed() -> RefusedError:
    """Return the error of a leader that no majority confirmed in time (case b).

    Only the profile `strict` confirms leadership.
    """
    message = "no majority confirmed this master as the leader in time; nothing was done"
    return RefusedError(_Code.NOT_THE_LEADER, _Status.SERVICE_UNAVAILABLE, message)


def write_lost(cause: object) -> RefusedError:
    """Return the error of a write that may commit after leadership was lost (case d)."""
    return RefusedError(
        _Code.NOT_THE_LEADER,
        _Status.SERVICE_UNAVAILABLE,
        f"this master is no longer the leader: writing to the sys-catalog failed: {cause}",
        indeterminate=True,
    )


def wrong_cluster(theirs: str, ours: str) -> RefusedError:
    """Return the error for a tablet server that belongs to another cluster than this master."""
    return invalid_argument(
        f"the tablet server belongs to cluster {theirs}, and this master to cluster {ours}: check "
        "the master addresses with which the tablet server was started"
    )


def busy(what: str, limit: int) -> RefusedError:
    """Return the error for a request beyond a limit of this master; nothing was done."""
    return RefusedError(
        _Code.UNKNOWN_ERROR,
        _Status.SERVICE_UNAVAILABLE,
        f"{what}: the limit of {limit} is reached; nothing was done, try again later",
    )


def overloaded(cause: object) -> RefusedError:
    """Return the error for a write that the overloaded system tablet refused; nothing was done."""
    return RefusedError(
        _Code.UNKNOWN_ERROR,
        _Status.SERVICE_UNAVAILABLE,
        f"the system tablet takes no more writes now: {cause}; nothing was done, try again later",
    )


def too_stale(bound_ns: int | None, limit_ms: int) -> RefusedError:
    """Return the error for a read that this master's state is too old to answer."""
    age = "its age is unknown" if bound_ns is None else f"its age is up to {bound_ns / 1e6:.0f} ms"
    return RefusedError(
        _Code.TOO_STALE,
        _Status.SERVICE_UNAVAILABLE,
        f"the state of this master may be older than {limit_ms} ms: {age}; ask another master",
    )


def not_supported(what: str) -> RefusedError:
    """Return the error for a feature that the cluster's profile lacks; nothing was done."""
    message = f"{what}: not supported in this profile; use --profile strict"
    return RefusedError(_Code.UNKNOWN_ERROR, _Status.NOT_SUPPORTED, message)


def invalid_argument(message: str) -> RefusedError:
    """Return the error for a malformed request; nothing was done."""
    return RefusedError(_Code.UNKNOWN_ERROR, _Status.INVALID_ARGUMENT, message)


def invalid_schema(message: str, status: AppStatus = AppStatus.INVALID_ARGUMENT) -> RefusedError:
    """Return the error for a forbidden name, schema or partitioning; nothing was done."""
    return RefusedError(_Code.INVALID_SCHEMA, status, message)
