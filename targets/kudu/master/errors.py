"""How a master says no: errors that end a request, and Kudu's four shades of NOT_THE_LEADER.

(a) not the leader, (b) leader but not ready, (c) not initialised: nothing was done. (d) leadership
was lost while writing: the write may still commit (KUDU-591), and only this one is marked
`indeterminate`.
"""

from __future__ import annotations

from targets.kudu.messages import AppStatus, MasterError, MasterErrorCode


class RefusedError(Exception):
    """Ends a request with `error` as its answer."""

    def __init__(self, error: MasterError) -> None:
        super().__init__(error.message)
        self.error = error


def not_initialized() -> MasterError:
    """7(c) of leader-only calls is this too: the master is still starting."""
    return MasterError(
        MasterErrorCode.CATALOG_MANAGER_NOT_INITIALIZED,
        AppStatus.SERVICE_UNAVAILABLE,
        "the catalog manager is not initialized yet",
    )


def not_the_leader() -> MasterError:
    """7(a)."""
    return MasterError(
        MasterErrorCode.NOT_THE_LEADER, AppStatus.ILLEGAL_STATE, "this master is not the leader"
    )


def not_yet_ready() -> MasterError:
    """7(b)."""
    return MasterError(
        MasterErrorCode.NOT_THE_LEADER,
        AppStatus.SERVICE_UNAVAILABLE,
        "this master is the leader but not yet ready to serve requests",
    )


def unconfirmed() -> MasterError:
    """7(b) of profile `strict`: no majority confirmed the leader in time."""
    return MasterError(
        MasterErrorCode.NOT_THE_LEADER,
        AppStatus.SERVICE_UNAVAILABLE,
        "no majority confirmed this master as the leader in time; nothing was done",
    )


def wrong_cluster(theirs: str, ours: str) -> MasterError:
    """A tablet server of another cluster: nothing of what it holds is any business of ours."""
    return MasterError(
        MasterErrorCode.UNKNOWN_ERROR,
        AppStatus.INVALID_ARGUMENT,
        f"the tablet server belongs to the cluster {theirs}, and this is {ours}: check the "
        "addresses of masters that it was started with",
    )


def write_lost(cause: str) -> MasterError:
    """7(d)."""
    return MasterError(
        MasterErrorCode.NOT_THE_LEADER,
        AppStatus.SERVICE_UNAVAILABLE,
        f"this master is no longer the leader: writing to the sys-catalog failed: {cause}",
        indeterminate=True,
    )


def busy(what: str, limit: int) -> MasterError:
    """A limit was hit; nothing was done."""
    return MasterError(
        MasterErrorCode.UNKNOWN_ERROR,
        AppStatus.SERVICE_UNAVAILABLE,
        f"{what}: the limit of {limit} is reached; nothing was done, try again later",
    )


def overloaded(cause: str) -> MasterError:
    """The system tablet took no more writes; nothing was done."""
    return MasterError(
        MasterErrorCode.UNKNOWN_ERROR,
        AppStatus.SERVICE_UNAVAILABLE,
        f"the system tablet takes no more writes now: {cause}; nothing was done, try again later",
    )


def too_stale(bound_ns: int | None, limit_ms: int) -> MasterError:
    """A read allows for less staleness than there is; nothing was done."""
    known = "nothing is known of it" if bound_ns is None else f"it is up to {bound_ns / 1e6:.0f} ms"
    return MasterError(
        MasterErrorCode.TOO_STALE,
        AppStatus.SERVICE_UNAVAILABLE,
        f"the state of this master may be older than {limit_ms} ms: {known}; ask another one",
    )


def not_supported(what: str) -> MasterError:
    """This profile has no such thing; nothing was done."""
    return MasterError(
        MasterErrorCode.UNKNOWN_ERROR,
        AppStatus.NOT_SUPPORTED,
        f"{what}: not supported in this profile; use --profile strict",
    )


def invalid_argument(message: str) -> MasterError:
    """The request makes no sense; nothing was done."""
    return MasterError(MasterErrorCode.UNKNOWN_ERROR, AppStatus.INVALID_ARGUMENT, message)
