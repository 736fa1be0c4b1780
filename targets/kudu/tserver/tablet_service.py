"""The RPC handlers of `TabletServerService` and `TabletServerAdminService` on one tablet server."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from harness.env import Disk
from targets.kudu import messages as m
from targets.kudu.rpc import RpcServer
from targets.kudu.rpc.server import request_type_of
from targets.kudu.tserver.errors import TabletRefusedError
from targets.kudu.tserver.tablet_replica import Tablet
from targets.kudu.tserver.ts_tablet_manager import TabletManager


class TabletService:
    """The handlers of a tablet server's calls. They turn `TabletRefusedError` into an answer."""

    def __init__(self, server: RpcServer, tablets: TabletManager, disk: Disk) -> None:
        self._server = server
        self._tablets = tablets
        self._disk = disk
        self._serve(m.WriteRequest, lambda tablet, request: tablet.writes.write(request))
        self._serve(m.ScanRequest, lambda tablet, request: tablet.scans.scan(request))
        self._serve(m.ChecksumRequest, lambda tablet, request: tablet.scans.checksum(request))
        self._serve(m.AdvanceSafeTimeRequest, Tablet.advance_safe_time)
        server.serve(self._list_tablets)
        server.serve(self._dump)
        for operation in (tablets.create_tablet, tablets.delete_tablet, tablets.alter_schema):
            self._serve_admin(operation)

    def _serve(
        self,
        request_type: type[Any],
        call: Callable[[Tablet, Any], Coroutine[Any, Any, m.TabletResponse]],
    ) -> None:
        async def handle(request: Any, _peer: str) -> m.TabletResponse:
            try:
                return await call(self._tablets.find(request.tablet_id), request)
            except TabletRefusedError as refusal:
                answer: m.TabletResponse = request.answer_type(error=refusal.error)
                return answer

        self._server.serve(handle, request_type)

    def _serve_admin(self, operation: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        request_type = request_type_of(operation)

        async def handle(request: Any, _peer: str) -> m.TabletServerResponse:
            try:
                await operation(request)
            except TabletRefusedError as refusal:
                if refusal.error.code is m.TabletErrorCode.ALREADY_INPROGRESS:
                    self._server.put_off[request_type.method] += 1
                return m.TabletServerResponse(refusal.error)
            return m.TabletServerResponse()

        self._server.serve(handle, request_type)

    def _list_tablets(self, _request: m.ListTabletsRequest, _peer: str) -> m.ListTabletsResponse:
        return self._tablets.list_tablets()

    async def _dump(self, _request: m.DumpTabletsRequest, _peer: str) -> m.DumpResponse:
        files = len(await self._disk.list())
        calls, put_off = (
            dict(sorted(counts.items())) for counts in (self._server.calls, self._server.put_off)
        )
        counts = {"calls": calls, "put_off": put_off, "files": files}
        return m.DumpResponse({**self._tablets.dump(), **counts})
