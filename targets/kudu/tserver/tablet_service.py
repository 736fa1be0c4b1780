"""`TabletServerService`: finds the tablet that a call is about, and hands it over."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from targets.kudu import messages as m
from targets.kudu.rpc import RpcServer
from targets.kudu.tserver.tablet_replica import Tablet

_Request = TypeVar("_Request", m.WriteRequest, m.ScanRequest, m.ChecksumRequest, m.SafeTimeRequest)
_Response = TypeVar(
    "_Response", m.WriteResponse, m.ScanResponse, m.ChecksumResponse, m.SafeTimeResponse
)


class Tablets(Protocol):
    """Where the tablets are: the tablet manager."""

    def find(self, tablet_id: str) -> Tablet | m.TabletError:
        """The replica, if it serves; else TABLET_NOT_FOUND or TABLET_NOT_RUNNING."""
        ...

    def list_tablets(self) -> m.ListTabletsResponse:
        """All replicas."""
        ...


def register_row_service(server: RpcServer, tablets: Tablets) -> None:
    """Serve reads and writes of rows on `server`."""

    def serve(
        name: str,
        request_type: type[_Request],
        response_type: type[_Response],
        call: Callable[[Tablet, _Request], Coroutine[Any, Any, _Response]],
    ) -> None:
        async def handle(request: Any, peer: str) -> _Response:
            del peer
            tablet = tablets.find(request.tablet_id)
            if isinstance(tablet, m.TabletError):
                return response_type(error=tablet)
            return await call(tablet, request)

        server.register(f"TabletServerService.{name}", handle, request_type)

    serve("Write", m.WriteRequest, m.WriteResponse, lambda t, r: t.writes.write(r))
    serve("Scan", m.ScanRequest, m.ScanResponse, lambda t, r: t.scans.scan(r))
    serve("Checksum", m.ChecksumRequest, m.ChecksumResponse, lambda t, r: t.scans.checksum(r))
    serve("AdvanceSafeTime", m.SafeTimeRequest, m.SafeTimeResponse, Tablet.advance_safe_time)

    def list_tablets(request: m.ListTabletsRequest, peer: str) -> m.ListTabletsResponse:
        del request, peer
        return tablets.list_tablets()

    server.register("TabletServerService.ListTablets", list_tablets, m.ListTabletsRequest)
