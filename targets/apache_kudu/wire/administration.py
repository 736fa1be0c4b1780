"""Requests of administrators that only real servers answer: maintenance, quiescing and flags.

Field numbers are taken from Kudu 1.16 to 1.18: `master/master.proto`, `tserver/tserver_admin.proto`
and `server/server_base.proto`.
"""

from __future__ import annotations

from typing import Final

from targets.apache_kudu.wire.errors import master_error, tablet_error
from targets.apache_kudu.wire.messages import ERROR, ERROR_ONLY
from targets.apache_kudu.wire.methods import DELETE_TABLE, Method
from targets.apache_kudu.wire.protobuf import Message, bool_, many, nested, text, uint
from targets.apache_kudu.wire.session import Session
from targets.kudu.messages import MasterErrorCode
from targets.kudu.rpc import RpcConnectionError

CHANGE_TSERVER_STATE: Final = Method(
    "kudu.master.MasterService",
    "ChangeTServerState",
    Message(
        "ChangeTServerStateRequest",
        change=nested(1, Message("TServerStateChange", uuid=text(1), change=uint(2))),
    ),
    ERROR_ONLY,
)
QUIESCE: Final = Method(
    "kudu.tserver.TabletServerAdminService",
    "Quiesce",
    Message("QuiesceTabletServerRequest", quiesce=bool_(1), return_stats=bool_(2)),
    Message(
        "QuiesceTabletServerResponse",
        error=nested(1, ERROR),
        is_quiescing=bool_(2),
        num_leaders=uint(4),
    ),
)
SET_FLAG: Final = Method(
    "kudu.server.GenericService",
    "SetFlag",
    Message("SetFlagRequest", flag=text(1), value=text(2), force=bool_(3)),
    Message("SetFlagResponse", result=uint(1), message=text(2)),
)
GET_FLAGS: Final = Method(
    "kudu.server.GenericService",
    "GetFlags",
    Message("GetFlagsRequest", all_flags=bool_(1), flags=many(text(3))),
    Message(
        "GetFlagsResponse",
        flags=many(nested(1, Message("Flag", name=text(1), value=text(2)))),
    ),
)
_NO_TABLE: Final = "default.harness_never_creates_this"
_ENTER: Final = 1
_EXIT: Final = 2
_SET: Final = 1


async def applies_events(s: Session) -> bool:
    """Whether a leading master has applied all earlier events of its metastore, and still leads.

    The master is asked to drop a table that does not exist. A leader with a metastore applies all
    events before it looks for the table. Raises `RpcError`.
    """
    error = master_error(await s.ask(DELETE_TABLE, {"table": {"table_name": _NO_TABLE}}))
    return error is not None and error.code is MasterErrorCode.TABLE_NOT_FOUND


async def set_maintenance(s: Session, uuid: str, *, on: bool) -> None:
    """Make a leading master put a tablet server into maintenance, or take it out.

    While a server is in maintenance, masters do not replace its replicas, even if it is down.
    Raises `RpcError`.
    """
    change = {"uuid": uuid, "change": _ENTER if on else _EXIT}
    error = master_error(await s.ask(CHANGE_TSERVER_STATE, {"change": change}))
    if error is not None:
        raise RpcConnectionError(f"maintenance of {uuid}: {error.message}", sent=True)


async def quiesce(s: Session, *, on: bool) -> int:
    """Start or stop quiescing, in which a tablet server hands over its leaders.

    Return the number of leaders that the server still has. A restart ends quiescing. Raises
    `RpcError`.
    """
    reply = await s.ask(QUIESCE, {"quiesce": on, "return_stats": True})
    error = tablet_error(reply)
    if error is not None:
        raise RpcConnectionError(f"quiescing {s.uuid}: {error.message}", sent=True)
    return int(reply.get("num_leaders", 0))


async def flag_value(s: Session, flag: str) -> str:
    """Return the value of a flag of a running server. Raises `RpcError`."""
    reply = await s.ask(GET_FLAGS, {"all_flags": True, "flags": [flag]})
    for each in reply["flags"]:
        if each["name"] == flag:
            return str(each.get("value", ""))
    raise RpcConnectionError(f"{s.connection.address} has no flag --{flag}", sent=False)


async def set_flag(s: Session, flag: str, value: str) -> None:
    """Set a flag of a running server. Raises `RpcError`."""
    reply = await s.ask(SET_FLAG, {"flag": flag, "value": value, "force": True})
    if reply.get("result") != _SET:
        refusal = reply.get("message", "")
        raise RpcConnectionError(f"{s.connection.address} refused --{flag}: {refusal}", sent=True)
