"""Drops and renames through masters with a metastore, and the proof that they took effect.

The metastore makes the change. A leader acknowledges the change after its listener has read the
event, even if it could not apply the event (KUDU-2475). A leader that loses its leadership
meanwhile reads no event, but acknowledges as well. An acknowledgement alone therefore proves
nothing about Kudu's own catalog.

For a proof, the client then reads the table by its id, from the same master and in the same term.
The outcome of the change is unknown in four cases: the table is still there; it lacks its new name;
it is gone after a rename, perhaps dropped under its old name; or the id of the dropped table is not
certain.

Masters make creates and other alters themselves, after the metastore. If the metastore fails such a
request, Kudu's catalog is certainly unchanged.
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
    """Make the change, and check that the master's own catalog shows it."""
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
    """Return the name of a table, or `None` if the master does not have the table.

    The name is "" if the answer lacks it. Raises `RpcError`.
    """
    seen = await s.ask(w.GET_TABLE_SCHEMA, {"table": {"table_id": table_id}})
    error = master_error(seen)
    if error is not None and error.code is m.MasterErrorCode.TABLE_NOT_FOUND:
        return None
    return str(seen.get("table_name", ""))
