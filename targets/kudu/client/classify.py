"""Pure functions that say what one answer of a master proves about the operation.

The table is section 19 of Kudu's semantics as this project recorded them: codes 2, 5, 6 and 8 to
12 did nothing; 3 and 4 are observations; NOT_THE_LEADER did nothing unless the master lost its
leadership *while writing* (KUDU-591), which it says with `indeterminate`, as 13 does where the
metastore may have done it; a lost answer proves nothing. When in doubt the answer is `UNKNOWN`: an
operation wrongly called `fail` would blame a correct target, one wrongly called `info` only costs
the checker time.
"""

from __future__ import annotations

import enum

from targets.kudu.messages import AppStatus, MasterError, MasterErrorCode
from targets.kudu.rpc import RpcError

_REFUSALS = frozenset(
    {
        MasterErrorCode.INVALID_SCHEMA,
        MasterErrorCode.TABLE_NOT_FOUND,
        MasterErrorCode.TABLE_ALREADY_PRESENT,
        MasterErrorCode.TOO_MANY_TABLETS,
        MasterErrorCode.REPLICATION_FACTOR_TOO_HIGH,
        MasterErrorCode.TABLET_NOT_RUNNING,
        MasterErrorCode.EVEN_REPLICATION_FACTOR,
        MasterErrorCode.ILLEGAL_REPLICATION_FACTOR,
        MasterErrorCode.HIVE_METASTORE_ERROR,  # unless it says that it is indeterminate
    }
)
_ASK_ANOTHER = frozenset(
    {MasterErrorCode.NOT_THE_LEADER, MasterErrorCode.CATALOG_MANAGER_NOT_INITIALIZED}
)


class Effect(enum.Enum):
    """The change that an attempt made to the catalog."""

    DONE = "done"
    REFUSED = "refused"  # considered by a leader and rejected: nothing happened, and it is final
    NONE = "none"  # never considered: nothing happened, and another attempt may succeed
    UNKNOWN = "unknown"  # it may have taken effect, or may still do so


def mutation_effect(error: MasterError | None) -> Effect:
    """The effect of a mutation that was answered with `error`."""
    if error is None:
        return Effect.DONE
    if error.indeterminate:
        return Effect.UNKNOWN
    if is_of_another(error):
        return Effect.NONE
    if error.code in _REFUSALS:
        return Effect.REFUSED
    if error.status is AppStatus.INVALID_ARGUMENT:  # code 1, rejected while it was validated
        return Effect.REFUSED
    return Effect.UNKNOWN


def rpc_error_effect(error: RpcError) -> Effect:
    """The effect of a mutation that got no answer."""
    return Effect.UNKNOWN if error.sent else Effect.NONE


def is_of_another(error: MasterError) -> bool:
    """Whether it says that another master is to be asked, or this one a moment later."""
    return error.code in _ASK_ANOTHER


def error_text(error: MasterError) -> str:
    """`CODE/STATUS: text`, in the target's words."""
    return f"{error.code.name}/{error.status.name}: {error.message}"


def rpc_error_text(error: RpcError) -> str:
    """`RPC/SENT: text` or `RPC/NOT_SENT: text`."""
    return f"RPC/{'SENT' if error.sent else 'NOT_SENT'}: {error}"
