"""What the metastore, or the way to it, said no with, and what a master answers then."""

from __future__ import annotations

from targets.kudu.messages import AppStatus, MasterError, MasterErrorCode


class HmsError(Exception):
    """A call failed. `kind` is the exception's name in Thrift, or empty where no answer came;
    `maybe_done`: it may have been carried out, or may yet be.
    """

    def __init__(self, kind: str, message: str, *, maybe_done: bool) -> None:
        super().__init__(f"{kind}: {message}" if kind else message)
        self.kind = kind
        self.maybe_done = maybe_done


def hms_refused(cause: object) -> MasterError:
    """Code 13; nothing was done, and never will be."""
    return MasterError(
        MasterErrorCode.HIVE_METASTORE_ERROR,
        AppStatus.REMOTE_ERROR,
        f"the Hive Metastore refused, or could not be asked: {cause}",
    )


def hms_unknown(cause: object) -> MasterError:
    """Code 13; the change may be in the metastore, and the next leader may still carry it out."""
    return MasterError(
        MasterErrorCode.HIVE_METASTORE_ERROR,
        AppStatus.REMOTE_ERROR,
        f"the change may be in the Hive Metastore, but was not seen to be done: {cause}",
        indeterminate=True,
    )
