"""Operations of the vocabulary `rows` on tablet servers, for one client process.

Module `row_writes` implements writes, and `row_reads` reads and scans. Every request carries the
highest timestamp of all answers, so later operations of this client get later timestamps on any
server (Kudu's `propagated_timestamp`).
"""

from __future__ import annotations

from typing import Final

from harness.env import Env
from harness.ops import OpType
from harness.plugins import Completion, Request
from harness.vocabularies import rows as v
from targets.kudu.client.replicas import Replicas
from targets.kudu.client.row_reads import RowReader
from targets.kudu.client.row_writes import RowWriter
from targets.kudu.client.session import ClientTime, Deadline, RetryPolicy
from targets.kudu.client.tables import Gone, TableCache

_NO_MASTER: Final = "NO_LEADER: no master was found to lead before the deadline"


class RowsClient:
    """The row operations of one client process."""

    def __init__(
        self,
        env: Env,
        tables: TableCache,
        replicas: Replicas,
        policy: RetryPolicy,
        client_id: str,
    ) -> None:
        time = ClientTime()
        self._tables = tables
        self._writer = RowWriter(env, tables, replicas, policy, client_id, time)
        self._reader = RowReader(tables, replicas, policy, time)

    def close(self) -> None:
        self._writer.close()

    async def invoke(self, request: Request, deadline: Deadline) -> Completion:
        call = v.call_of(request.f, request.value)
        assert isinstance(call, v.Write | v.Read | v.Scan), "the others are for masters"
        try:
            table = await self._tables.find(call.table, deadline)
        except Gone as gone:
            kind = OpType.FAIL if isinstance(call, v.Write) else OpType.OK
            error = f"TABLE_NOT_FOUND: {gone}" if kind is OpType.FAIL else None
            return Completion(kind, {"result": "not-found"}, error)
        if table is None:
            return Completion(OpType.FAIL, None, _NO_MASTER)
        match call:
            case v.Write():
                return await self._writer.write(call, table, deadline)
            case v.Read():
                return await self._reader.read(call, table, deadline)
            case v.Scan():
                return await self._reader.scan(call, table, deadline)
