"""Drops and renames of masters with a metastore, which tell more than such masters promise.

The metastore makes the change. A leader acknowledges the change after its listener has read the
event, whether or not it could apply the event (KUDU-2475); a leader that has lost its leadership
meanwhile reads nothing, and acknowledges all the same. So an acknowledgement alone says nothing
about Kudu's own catalog. After it, the client looks at the table by its id, at the same master and
in the same term. If the table is still there, or lacks its new name, the change has an unknown
outcome: it may take effect later, or never. This includes a renamed table that is gone (an event
may have dropped it under its old name) and a drop of a table whose id is not certain.

Masters make creates and other alters themselves. If such a request ends with an error of the
metastore, then before the master has written anything, so it is certain that Kudu has no change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec.structs import replace

from targets.apache_kudu.wire import methods as w
from targets.apache_kudu.wire.errors import master_error
from targets.apache_kudu.wire.session import Session
from targets.kudu import messages as m

Handler = Callable[[Session, Any], Awaitable[m.MasterResponse]]
_OF_METASTORE: Final = m.MasterErrorCode.HIVE_METASTORE_ERROR
_NOT_APPLIED: Final = m.MasterError(
    _OF_METASTORE,
    m.AppStatus.ILLEGAL_STATE,
    "acknowledged, but the master does not show the change",
    indeterminate=True,
)


async def followed(handler: Handler, s: Session, request: Any) -> m.MasterResponse:
    """Make the change, and look whether the master's own catalog has it, too."""
    answer = await handler(s, request)
    error = answer.error
    if error is not None:
        is_certain = error.code is _OF_METASTORE and not _is_made_by_metastore(request)
        return replace(answer, error=replace(error, indeterminate=False)) if is_certain else answer
    if not _is_made_by_metastore(request):
        return answer
    assert isinstance(answer, m.DeleteTableResponse | m.AlterTableResponse)
    expected = getattr(request, "new_table_name", None)
    is_seen = answer.table_id and await _name_of(s, answer.table_id) == expected
    return answer if is_seen else replace(answer, error=_NOT_APPLIED)


def _is_made_by_metastore(request: Any) -> bool:
    return isinstance(request, m.DeleteTableRequest) or bool(
        isinstance(request, m.AlterTableRequest) and request.new_table_name
    )


async def _name_of(s: Session, table_id: str) -> str | None:
    """The name of a table; `None` if the master does not have the table, and "" if it does not say.

    Raises `RpcError`.
    """
    seen = await s.ask(w.GET_TABLE_SCHEMA, {"table": {"table_id": table_id}})
    error = master_error(seen)
    if error is not None and error.code is m.MasterErrorCode.TABLE_NOT_FOUND:
        return None
    return str(seen.get("table_name", ""))
