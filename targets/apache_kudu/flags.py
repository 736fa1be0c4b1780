"""Faults that set flags of running servers for a few seconds.

Kudu reads these flags each time that it uses them, so `SetFlag` changes a running server. Some
flags slow a server down, and others change when it holds elections. Even with these flags, Kudu
keeps all its promises, so they never excuse a violation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from targets.apache_kudu.wire import WireRpc
from targets.apache_kudu.wire.administration import flag_value, set_flag
from targets.apache_kudu.wire.session import Session
from targets.kudu.rpc import RpcError

FLAG_FAULTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "slow-log": {"log_inject_latency_ms_mean": "300", "log_inject_latency": "true"},
        "slow-commits": {"consensus_inject_latency_ms_in_notifications": "300"},
        "slow-rows": {"tablet_inject_latency_on_apply_write_op_ms": "500"},
        "slow-tablets": {"tablet_open_inject_latency_ms": "1000"},
        "slow-heartbeats": {"heartbeat_interval_ms": "5000"},
        "hasty-elections": {"leader_failure_max_missed_heartbeat_periods": "0.5"},
        "no-elections": {"enable_leader_failure_detection": "false"},
        "no-pre-elections": {
            "raft_enable_pre_election": "false",
            "leader_failure_max_missed_heartbeat_periods": "0.5",
        },
        "deaf-followers": {"follower_reject_update_consensus_requests": "true"},
        "short-timeouts": {"consensus_rpc_timeout_ms": "100"},
    }
)
"""The flags that each operation sets, in this order."""
LASTS_S: Final = 6.0
_CALL_S: Final = 1.0
T = TypeVar("T")
_Place = tuple[str, str]


class FlagFaults:
    """The flags that operations have set on the servers of one deployment."""

    def __init__(self, rpc: WireRpc, addresses: Mapping[str, str]) -> None:
        """Set no flags yet; `addresses` maps the names of the servers to their addresses."""
        self._rpc = rpc
        self._addresses = addresses
        self._usual: dict[_Place, str] = {}
        """The values of flags before operations set them."""
        self._users: dict[_Place, int] = {}
        """The number of running operations that have set each flag."""

    async def run(self, flags: Mapping[str, str], nodes: Sequence[str]) -> str | None:
        """Set `flags` on the servers among `nodes`, and reset them after `LASTS_S`."""
        done = [name for name in nodes if name in self._addresses]
        done = [name for name in done if await self._set_all(self._addresses[name], flags)]
        if not done:
            return None
        await asyncio.sleep(LASTS_S)
        for name in done:
            for flag in flags:
                await self._give_back((self._addresses[name], flag))
        words = ", ".join(f"--{flag}={value}" for flag, value in flags.items())
        return f"set {words} at {', '.join(done)} for {LASTS_S:g} s"

    async def restore(self) -> None:
        """Reset all flags that still differ, for example because a server was down."""
        self._users.clear()
        for place in [*self._usual]:
            await self._give_back(place)

    async def _set_all(self, address: str, flags: Mapping[str, str]) -> bool:
        """Set the flags on one server. If one of them cannot be set, reset all of them.

        The old value of each flag is read before the change, so that the flag can be reset.
        """
        taken: list[_Place] = []
        for flag, value in flags.items():
            place = address, flag
            usual = self._usual.get(place)
            if usual is None:
                usual = await self._ask(address, partial(flag_value, flag=flag))
            if usual is not None:
                self._usual[place] = usual
                self._users[place] = self._users.get(place, 0) + 1
                taken.append(place)
            if usual is None or not await self._set(place, value):
                for each in taken:
                    await self._give_back(each)
                return False
        return True

    async def _give_back(self, place: _Place) -> None:
        """Reset a flag, unless another running operation has set it.

        This also tries a server that seems to be down, since it may only be cut off.
        """
        self._users[place] = self._users.get(place, 1) - 1
        if self._users[place] > 0:
            return
        if await self._set(place, self._usual[place]):
            del self._usual[place]
            del self._users[place]

    async def _set(self, place: _Place, value: str) -> bool:
        address, flag = place

        async def work(session: Session) -> bool:
            await set_flag(session, flag, value)
            return True

        return bool(await self._ask(address, work))

    async def _ask(self, address: str, work: Callable[[Session], Awaitable[T]]) -> T | None:
        try:
            return await self._rpc.administer(address, work, timeout_s=_CALL_S)
        except RpcError:
            return None
