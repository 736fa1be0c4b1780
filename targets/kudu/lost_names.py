"""A fault: for a while, nodes cannot resolve some host names, as in an outage of a DNS server.

The call `LoseNamesRequest` names the lost hosts. The outage ends on its own, so it cannot outlast a
harness that crashed. Open connections survive the outage. A restarted node can resolve all names
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from harness.errors import counted
from targets.kudu.messages import LoseNamesRequest, LoseNamesResponse
from targets.kudu.rpc import Caller, RpcClient, RpcError, RpcServer

LOST_S: Final = 8.0
"""The length of an outage in seconds, longer than the elections after the loss of a leader."""
_ASK_LIMIT_S: Final = 1.0


def serve_lost_names(server: RpcServer, client: RpcClient) -> None:
    """Make a node's `server` answer `LoseNamesRequest`: `client` then loses the listed names."""

    def lose(request: LoseNamesRequest, _peer: str) -> LoseNamesResponse:
        for address in request.addresses:
            client.lose_name(address, request.for_ms / 1000)
        return LoseNamesResponse()

    server.serve(lose)


async def lose_names(
    caller: Caller, lost: Sequence[str], addresses: Mapping[str, str]
) -> str | None:
    """Make all nodes except those in `lost` fail to resolve the names in `lost`.

    `addresses` has all nodes. Return a sentence about the effect, or `None` if no node got the
    call.
    """
    done = [await _lose_name(caller, name, addresses) for name in lost if name in addresses]
    return "; ".join(filter(None, done)) or None


async def _lose_name(caller: Caller, name: str, addresses: Mapping[str, str]) -> str | None:
    nodes = [address for node, address in addresses.items() if node != name]
    request = LoseNamesRequest((addresses[name],), round(LOST_S * 1000))

    async def ask(node: str) -> bool:
        try:
            await caller.call(node, request, timeout_s=_ASK_LIMIT_S)
        except RpcError:  # the node is down, or cut off from the operator
            return False
        return True

    heard = sum(await asyncio.gather(*map(ask, nodes)))
    if not heard:
        return None
    return f"{counted(heard, 'node')} cannot resolve {name} for {LOST_S:.0f} s"
