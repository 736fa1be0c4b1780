"""A master's client of the metastores: Kudu's `HaClient` (`thrift/client.h`).

Calls wait for each other, as for one worker thread. The client is sticky: it stays with the
metastore that served it. One that lost a call, or that cannot be reached, is tried last, and the
call is sent once more. Where no metastore can be reached the call fails, and all others do at once
during a pause that doubles each time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from harness.env import Env
from targets.hive import api
from targets.hive.channel import Channel, ChannelError
from targets.hive.client.classify import Proof, proof_of, retries
from targets.kudu.hms.errors import HmsError
from targets.kudu.hms.settings import HmsSettings
from targets.kudu.rpc import parse_address

_reply: Final = msgspec.msgpack.Decoder(api.Reply)


class HaClient:
    """Calls to whichever metastore serves."""

    def __init__(self, env: Env, settings: HmsSettings) -> None:
        """Connect to nothing yet."""
        self._env = env
        self._settings = settings
        self._uris = [parse_address(address) for address in settings.addresses]
        self._turn = asyncio.Lock()
        self.changing = 0
        """Calls that change something, under way or waiting."""
        self._channel: Channel | None = None
        self._first = 0  # which is tried first
        self._pause_s = settings.backoff_s_min
        self._closed_until_ns = 0

    async def call(self, call: api.ApiCall, *, once: bool = True) -> Any:
        """The answer. Raises `HmsError`.

        `once`: a copy of the call does nothing a second time, so that its refusal is one of the
        first as well.
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
                raw = await channel.call(call, timeout_s=self._settings.answer_s)
            except ChannelError as error:
                lost = str(error)
                self._leave()
                continue
            reply = _reply.decode(raw)
            if not reply.error:
                return reply.result
            refusal = api.MetastoreError(reply.error, reply.message)
            # Rules of plug-ins refuse by a MetaException too, but not by one about the database.
            is_final = proof_of(refusal) is Proof.NOTHING or (
                refusal.kind == api.META and not retries(refusal)
            )
            maybe_done = not is_final or (bool(lost) and not once)
            raise HmsError(refusal.kind, refusal.message, maybe_done=maybe_done)
        raise HmsError("", lost, maybe_done=True)

    def close(self) -> None:
        """Hang up."""
        self._leave()

    # --- connections -------------------------------------------------------------------------

    async def _connected(self, *, maybe_done: bool) -> Channel:
        if self._channel is not None:
            return self._channel
        if self._env.clock.monotonic_ns() < self._closed_until_ns:
            raise HmsError("", "no metastore was reached a moment ago", maybe_done=maybe_done)
        why = ""
        for _ in self._uris:
            uri = self._uris[self._first]
            try:
                channel = await Channel.open(self._env, uri, timeout_s=self._settings.connect_s)
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
