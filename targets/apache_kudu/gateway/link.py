"""A Kudu client's connection to a bundled server, for the handlers of its calls."""

from __future__ import annotations

import itertools
import uuid  # determinism: not simulated
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from targets.apache_kudu.wire.errors import RpcCode
from targets.apache_kudu.wire.frames import RowsId
from targets.apache_kudu.wire.protobuf import Values
from targets.kudu import messages as m
from targets.kudu.rpc import Call, Caller, R_co

_SCANNERS_MAX: Final = 100
"""Maximum number of open scanners per connection. Beyond it, the oldest one is closed."""


class CallError(Exception):
    """An answer that is an error of the RPC layer."""

    def __init__(self, code: RpcCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Request(NamedTuple):
    """A decoded request, and the time that its client waits for the answer."""

    values: Values
    timeout_s: float
    rows_id: RowsId | None = None


class Scanner(NamedTuple):
    """An open scanner: the request for its next page, and the expected number of the next call."""

    scan: m.ScanRequest
    columns: tuple[m.Column, ...]
    wanted: Mapping[int, m.Value]
    """The values that rows must have in certain columns, by the column's position."""
    width: int
    """The number of columns that the client gets. The others are only compared."""
    next_call: int


class Link:
    """A client's connection. `uuid` and `address` identify the bundled server behind it.

    `place_of` returns the host and port at which clients reach a server (`Gateway.place_of`). The
    connection's scanners end with the connection.
    """

    def __init__(
        self,
        rpc: Caller,
        address: str,
        uuid_: str,
        place_of: Callable[[str, str | None], tuple[str, int]],
    ) -> None:
        self.uuid = uuid_
        self.address = address
        self._rpc = rpc
        self._place_of = place_of
        # The Java client sends changes of the catalog without ids, so each change gets a new id
        # here, even if it is resent.
        self._client = uuid.uuid4().hex  # determinism: not simulated
        self._changes = itertools.count(1)
        self._scanners: dict[bytes, Scanner] = {}
        self._scanner_ids = itertools.count(1)

    async def ask(self, call: Call[R_co], request: Request) -> R_co:
        """Call the bundled server. Raises `RpcError`, or `CallError` if the call is too large."""
        try:
            return await self._rpc.call(self.address, call, timeout_s=request.timeout_s)
        except ValueError as error:  # nothing was sent
            raise CallError(RpcCode.INVALID_REQUEST, str(error)) from error

    def change_id(self) -> m.RequestId:
        """Return a new id for one change of the catalog."""
        number = next(self._changes)
        return m.RequestId(self._client, number, f"{self._client}-{number}")

    def host_port(self, address: str, uuid: str | None = None) -> Values:
        """Return the host and port at which clients reach the server with this address and uuid."""
        host, port = self._place_of(address, uuid)
        return {"host": host, "port": port}

    def keep_scanner(self, scanner: Scanner, ident: bytes | None) -> bytes:
        """Keep a scanner under its id, or a new scanner under a new id; return the id."""
        ident = ident or f"{self._client}-{next(self._scanner_ids)}".encode()
        self._scanners[ident] = scanner
        if len(self._scanners) > _SCANNERS_MAX:
            del self._scanners[next(iter(self._scanners))]
        return ident

    def take_scanner(self, ident: bytes) -> Scanner | None:
        """Remove a scanner and return it, if it is open."""
        return self._scanners.pop(ident, None)


Handler = Callable[[Link, Request], Awaitable[Any]]
"""A function that answers a request with values, or with a `Reply` that has sidecars.

Raises `RpcError` and `CallError`.
"""
