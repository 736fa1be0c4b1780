"""The refusals of a master, including Kudu's four cases of NOT_THE_LEADER (code 7).

(a) The master does not lead; (b) it leads but is not ready; (c) it is not initialised. In these
cases nothing was done. (d) It lost its leadership while writing: the write may still commit
(KUDU-591), and only this case is marked `indeterminate`.
"""

from __future__ import annotations

from targets.kudu.messages import AppStatus, MasterError, MasterErrorCode

_Code = MasterErrorCode
_Status = AppStatus


class RefusedError(Exception):
    """A refused request; the master service answers with `error`."""

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
    """Case 7(c), also for leader-only calls: the master is still starting."""
    return RefusedError(
        _Code.CATALOG_MANAGER_NOT_INITIALIZED,
        _Status.SERVICE_UNAVAILABLE,
        "the catalog manager is not initialized yet",
    )


def not_the_leader() -> RefusedError:
    """Case 7(a)."""
    message = "this master is not the leader"
    return RefusedError(_Code.NOT_THE_LEADER, _Status.ILLEGAL_STATE, message)


def not_yet_ready() -> RefusedError:
    """Case 7(b)."""
    message = "this master is the leader but not yet ready to serve requests"
    return RefusedError(_Code.NOT_THE_LEADER, _Status.SERVICE_UNAVAILABLE, message)


def unconfirmed() -> RefusedError:
    """Case 7(b) of profile `strict`: no majority confirmed the leader in time."""
    message = "no majority confirmed this master as the leader in time; nothing was done"
    return RefusedError(_Code.NOT_THE_LEADER, _Status.SERVICE_UNAVAILABLE, message)


def write_lost(cause: object) -> RefusedError:
    """Case 7(d)."""
    return RefusedError(
        _Code.NOT_THE_LEADER,
        _Status.SERVICE_UNAVAILABLE,
        f"this master is no longer the leader: writing to the sys-catalog failed: {cause}",
        indeterminate=True,
    )


def wrong_cluster(theirs: str, ours: str) -> RefusedError:
    """The tablet server belongs to another cluster; this master does not manage its replicas."""
    return invalid_argument(
        f"the tablet server belongs to the cluster {theirs}, and this is {ours}: check the "
        "addresses of masters that it was started with"
    )


def busy(what: str, limit: int) -> RefusedError:
    """A limit was reached; nothing was done."""
    return RefusedError(
        _Code.UNKNOWN_ERROR,
        _Status.SERVICE_UNAVAILABLE,
        f"{what}: the limit of {limit} is reached; nothing was done, try again later",
    )


def overloaded(cause: object) -> RefusedError:
    """The system tablet accepts no more writes; nothing was done."""
    return RefusedError(
        _Code.UNKNOWN_ERROR,
        _Status.SERVICE_UNAVAILABLE,
        f"the system tablet takes no more writes now: {cause}; nothing was done, try again later",
    )


def too_stale(bound_ns: int | None, limit_ms: int) -> RefusedError:
    """The state is older than a read allows; nothing was done."""
    age = "its age is not known" if bound_ns is None else f"it is up to {bound_ns / 1e6:.0f} ms"
    return RefusedError(
        _Code.TOO_STALE,
        _Status.SERVICE_UNAVAILABLE,
        f"the state of this master may be older than {limit_ms} ms: {age}; ask another one",
    )


def not_supported(what: str) -> RefusedError:
    """This profile lacks the feature; nothing was done."""
    message = f"{what}: not supported in this profile; use --profile strict"
    return RefusedError(_Code.UNKNOWN_ERROR, _Status.NOT_SUPPORTED, message)


def invalid_argument(message: str) -> RefusedError:
    """The request is malformed; nothing was done."""
    return RefusedError(_Code.UNKNOWN_ERROR, _Status.INVALID_ARGUMENT, message)


def invalid_schema(message: str, status: AppStatus = AppStatus.INVALID_ARGUMENT) -> RefusedError:
    """A name, schema or partitioning is not allowed; nothing was done."""
    return RefusedError(_Code.INVALID_SCHEMA, status, message)
