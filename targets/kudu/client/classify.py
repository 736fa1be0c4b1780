"""Pure functions that derive the effect of an operation from a master's answer.

Codes are Kudu's `MasterErrorPB.Code`:

* Codes 2, 5, 6 and 8 to 12 mean that nothing happened.
* Codes 3 and 4 (table not found, table already present) also show the state of the catalog.
* NOT_THE_LEADER means that nothing happened, unless the master lost its leadership *while writing*
  (KUDU-591). In this case the master sets `indeterminate`.
* Code 13 also comes with `indeterminate` if the metastore may have made the change.
* A lost answer proves nothing.

In doubt, the effect is `UNKNOWN`. If an operation were wrongly completed as `fail`, the checker
would blame a correct target. An unnecessary `info` only costs the checker time.
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
        MasterErrorCode.NOT_AUTHORIZED,
        MasterErrorCode.TABLE_SOFT_DELETED,
        MasterErrorCode.HIVE_METASTORE_ERROR,
    }
)
_ASK_ANOTHER = frozenset(
    {MasterErrorCode.NOT_THE_LEADER, MasterErrorCode.CATALOG_MANAGER_NOT_INITIALIZED}
)


class Effect(enum.Enum):
    """The effect of one attempt on the catalog."""

    DONE = "done"
    # A leader rejected the request. Nothing happened, and this is final.
    REFUSED = "refused"
    # No leader considered the request. Nothing happened, and another attempt may succeed.
    NONE = "none"
    UNKNOWN = "unknown"  # the attempt may have taken effect, or may still do so


def mutation_effect(error: MasterError | None) -> Effect:
    """Return the effect of a mutation that a master answered, with or without an error."""
    if error is None:
        return Effect.DONE
    if error.indeterminate:
        return Effect.UNKNOWN
    if is_of_another(error):
        return Effect.NONE
    if error.code in _REFUSALS:
        return Effect.REFUSED
    if error.status is AppStatus.INVALID_ARGUMENT:  # code 1, rejected during validation
        return Effect.REFUSED
    return Effect.UNKNOWN


def rpc_error_effect(error: RpcError) -> Effect:
    """Return the effect of a mutation that got no answer."""
    return Effect.UNKNOWN if error.sent else Effect.NONE


def is_of_another(error: MasterError) -> bool:
    """Whether `error` tells the client to try another master, or the same master again later."""
    return error.code in _ASK_ANOTHER


def error_text(error: MasterError) -> str:
    """Return the error as `CODE/STATUS: text`, with the master's message."""
    return f"{error.code.name}/{error.status.name}: {error.message}"


def rpc_error_text(error: RpcError) -> str:
    """Return the error as `RPC/SENT: text` or `RPC/NOT_SENT: text`."""
    return f"RPC/{'SENT' if error.sent else 'NOT_SENT'}: {error}"
