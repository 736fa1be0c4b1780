"""A master's client of the metastores: Kudu's `HaClient` (`thrift/client.h`).

Calls run one at a time, as on a single worker thread. The client prefers the metastore that
answered last. A metastore that loses a call, or cannot be reached, moves to the end of the order,
and the client sends the call once more. If no metastore can be reached, all calls fail at once
during a pause, which doubles each time.

The settings correspond to Kudu's flags:

| here          | flag of Kudu                                   | there by default |
|---------------|------------------------------------------------|------------------|
| addresses     | hive_metastore_uris                            |                  |
| retry_count   | hive_metastore_retry_count                     | 1                |
| connect_s     | hive_metastore_conn_timeout                    | 60 s             |
| answer_s      | hive_metastore_send_timeout, ..._recv_timeout  | 60 s             |
| poll_period_s | hive_metastore_notification_log_poll_period... | 15 s             |
| batch_size    | hive_metastore_notification_log_batch_size     | 100              |
| wait_s        | ..._notification_log_catch_up_deadline_ms      | 30 s             |

`repair_s` does not exist in Kudu. In the profile `strict`, the leader compares the catalogs at this
interval.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from harness.env import Env
from targets.hive import api
from targets.hive.channel import ChannelError
from targets.hive.client.classify import Proof, proof_of, retries
from targets.hive.client.connection import Connection, Door
from targets.kudu.rpc import parse_address


class HmsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A master's settings for the metastores; the module's table has their names in Kudu.

    `addresses` have the form "node:port", in the order in which the client tries them.
    """

    addresses: tuple[str, ...]
    retry_count: int = 1
    connect_s: float = 1.0
    answer_s: float = 2.0
    poll_period_s: float = 1.0
    batch_size: int = 100
    wait_s: float = 10.0
    backoff_s_min: float = 0.1
    backoff_s_max: float = 2.0
    repair_s: float = 1.0


class HmsError(Exception):
    """A call to a metastore failed.

    `kind` is the exception's name in Thrift, or empty if no answer came. If `maybe_done`, the
    metastore may have carried out the call, or may still do so.
    """

    def __init__(self, kind: str, message: str, *, maybe_done: bool) -> None:
        super().__init__(f"{kind}: {message}" if kind else message)
        self.kind = kind
        self.maybe_done = maybe_done


class HaClient:
    """A master's client of the metastores; only one call runs at a time."""

    def __init__(self, env: Env, settings: HmsSettings) -> None:
        self._env = env
        self._connect = Door(env)
        self._settings = settings
        self._uris = [parse_address(address) for address in settings.addresses]
        self._turn = asyncio.Lock()
        self.changing = 0
        """The number of calls in progress or in the queue that change something."""
        self._channel: Connection | None = None
        self._first = 0
        self._pause_s = settings.backoff_s_min
        self._closed_until_ns = 0

    async def call(self, call: api.ApiCall, *, once: bool = True) -> Any:
        """Send a call and return the answer. Raises `HmsError`.

        `once` says that the metastore executes a call only once, even if it gets copies. If it
        refuses a copy, it has refused the first call too.
        """
        changes = isinstance(call, api.CreateTable | api.AlterTable | api.DropTable)
        self.changing += changes
        try:
            async with self._turn:
                return await self._call(call, once=once)
        finally:
            self.changing -= changes

    async def _call(self, call: api.ApiCall, *, once: bool) -> Any:
        lost = ""
        for _ in range(self._settings.retry_count + 1):
            channel = await self._connected(maybe_done=bool(lost))
            try:
                reply = await channel.call(call, timeout_s=self._settings.answer_s)
            except ChannelError as error:
                lost = str(error)
                self._leave()
                continue
            if not reply.error:
                return reply.result
            refusal = api.MetastoreError(reply.error, reply.message)
            # A MetaException that is not about the database is a plug-in's refusal: final as well.
            is_final = proof_of(refusal) is Proof.NOTHING or (
                refusal.kind == api.META and not retries(refusal)
            )
            maybe_done = not is_final or (bool(lost) and not once)
            raise HmsError(refusal.kind, refusal.message, maybe_done=maybe_done)
        raise HmsError("", lost, maybe_done=True)

    def close(self) -> None:
        self._leave()

    # --- connections -------------------------------------------------------------------------

    async def _connected(self, *, maybe_done: bool) -> Connection:
        if self._channel is not None:
            return self._channel
        if self._env.clock.monotonic_ns() < self._closed_until_ns:
            raise HmsError("", "no metastore could be reached a moment ago", maybe_done=maybe_done)
        why = ""
        for _ in self._uris:
            uri = self._uris[self._first]
            try:
                channel = await self._connect(uri, timeout_s=self._settings.connect_s)
            except ChannelError as error:
                why = str(error)
                self._first = (self._first + 1) % len(self._uris)
                continue
            self._channel = channel
            self._pause_s = self._settings.backoff_s_min
            return channel
        self._closed_until_ns = self._env.clock.monotonic_ns() + int(self._pause_s * 1e9)
        self._pause_s = min(2 * self._pause_s, self._settings.backoff_s_max)
        raise HmsError("", f"no metastore can be reached: {why}", maybe_done=maybe_done)

    def _leave(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._first = (self._first + 1) % len(self._uris)
