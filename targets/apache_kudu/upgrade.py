"""The rolling upgrade of a running cluster to another release of Kudu.

The order is that of Kudu's administration guide: masters one by one, then tablet servers. A tablet
server first enters maintenance, so that the masters do not replace its replicas, and hands over its
leaders ("quiesces"). It leaves maintenance when it serves again. Each step has a time limit. After
the limit, the upgrade continues, even if a fault keeps a server from becoming ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from harness.plugins import Restart
from targets.apache_kudu.servers import UPGRADED
from targets.apache_kudu.wire import WireRpc
from targets.apache_kudu.wire.administration import quiesce, set_maintenance
from targets.kudu import messages as m
from targets.kudu.rpc import RpcError

UPGRADE: Final = "rolling-upgrade"
_CALL_S: Final = 1.0
_QUIESCE_S: Final = 2.0
_SERVES_S: Final = 6.0
_POLL_S: Final = 0.2
_RUNNING: Final = "RUNNING"
_READY: Final = "READY"


class Upgrade:
    """The servers of one deployment, some of which may already have the new release."""

    def __init__(
        self,
        rpc: WireRpc,
        masters: dict[str, str],
        tservers: dict[str, str],
        ready: Callable[[], Awaitable[bool]],
        leader: Callable[[], Awaitable[str | None]],
    ) -> None:
        """Prepare to upgrade `masters` and `tservers`, which map names to addresses.

        `ready` returns whether a master leads and knows all tablet servers. `leader` returns the
        address of the leading master.
        """
        self._rpc = rpc
        self._masters = masters
        self._tservers = tservers
        self._ready = ready
        self._leader = leader
        self._turn = asyncio.Lock()
        self._done: set[str] = set()
        self._in_maintenance: dict[str, str] = {}
        """Uuids of the tablet servers that may be in maintenance."""

    async def run(self, nodes: Sequence[str], restart: Restart) -> str | None:
        """Upgrade the servers among `nodes` that run and have the old release, one by one.

        Does nothing while an earlier upgrade is running.
        """
        if self._turn.locked():
            return None
        async with self._turn:
            return await self._run(nodes, restart)

    async def _run(self, nodes: Sequence[str], restart: Restart) -> str | None:
        left = [name for name in (*self._masters, *self._tservers) if name in nodes]
        left = [name for name in left if name not in self._done]
        if not left:
            return "all these servers already have the new release"
        upgraded = [name for name in left if await self._upgrade(name, restart)]
        return f"upgraded {', '.join(upgraded)} in turn" if upgraded else None

    async def finish(self, restart: Restart) -> None:
        """Upgrade the remaining servers if one was upgraded, and end all maintenance."""
        if self._done:
            await self.run([*self._masters, *self._tservers], restart)
        for name in [*self._in_maintenance]:
            await self._leave_maintenance(name)

    async def _upgrade(self, name: str, restart: Restart) -> bool:
        address = self._tservers.get(name)
        if address is not None:
            await self._give_leaders_away(name, address)
        restarted = await restart(name, UPGRADED)
        if restarted:
            self._done.add(name)
            serves = self._ready if address is None else partial(self._serves, address)
            await _until(serves)
        await self._leave_maintenance(name)
        return restarted

    async def _give_leaders_away(self, name: str, address: str) -> None:
        try:
            uuid = await self._rpc.node_uuid(address, timeout_s=_CALL_S)
        except RpcError:
            return  # the server is down
        # Even if the answer is lost, the server may have entered maintenance.
        self._in_maintenance[name] = uuid
        await self._change_maintenance(uuid, on=True)

        async def is_idle() -> bool:
            asked = partial(quiesce, on=True)
            return await self._rpc.administer(address, asked, timeout_s=_CALL_S) == 0

        await _until(is_idle, within_s=_QUIESCE_S)

    async def _leave_maintenance(self, name: str) -> None:
        uuid = self._in_maintenance.get(name)
        if uuid is None:
            return
        with contextlib.suppress(RpcError):  # the server may be down
            asked = partial(quiesce, on=False)
            await self._rpc.administer(self._tservers[name], asked, timeout_s=_CALL_S)
        if await self._change_maintenance(uuid, on=False):
            del self._in_maintenance[name]

    async def _change_maintenance(self, uuid: str, *, on: bool) -> bool:
        leader = await self._leader()
        if leader is None:
            return False
        asked = partial(set_maintenance, uuid=uuid, on=on)
        try:
            await self._rpc.administer(leader, asked, timeout_s=_CALL_S)
        except RpcError:
            return False
        return True

    async def _serves(self, address: str) -> bool:
        listed = await self._rpc.call(address, m.ListTabletsRequest(), timeout_s=_CALL_S)
        return all(each.state == _RUNNING for each in listed.tablets if each.data_state == _READY)


async def _until(holds: Callable[[], Awaitable[bool]], *, within_s: float = _SERVES_S) -> None:
    try:
        async with asyncio.timeout(within_s):
            while not await _answered(holds):  # noqa: ASYNC110 - remote state
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return


async def _answered(holds: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await holds()
    except RpcError:
        return False
