"""Connections that begin with SASL, which a metastore with Kerberos requires.

A user who issues, renews or cancels tokens authenticates with Kerberos (GSSAPI), over a separate
connection. A client that presents a token authenticates with DIGEST-MD5, which proves that the
client has the token's password. Both mechanisms negotiate in Thrift's SASL frames: a status, a
length, and the mechanism's payload.
"""

from __future__ import annotations

import asyncio
import base64
import os  # determinism: no node runs this module
from typing import Any, Final

from puresasl import SASLError
from puresasl.client import SASLClient

from harness.env import Address, ClientEnv
from targets.apache_hive.connection import ANSWER_BYTES_MAX, ThriftConnection
from targets.apache_hive.kdc import (
    KDC_NODE,
    KDC_PORT,
    METASTORE,
    PASSWORD,
    configuration,
    principal,
)
from targets.apache_hive.tokens import read_text
from targets.hive import api
from targets.hive.channel import ChannelError

USERS: Final = ("harness", "alice", "bob", "yarn", "mallory")
"""Kerberos users. Calls for which the user does not matter use the first one."""
_START, _OK, _COMPLETE = 1, 2, 5
_NO_LAYER: Final = b"\x01\x00\x00\x00"
"""The client's choice of a GSSAPI security layer: neither signing nor encryption."""
_NOT_ITS_PASSWORD: Final = frozenset(
    {
        "DIGEST-MD5: IO error acquiring password",
        "DIGEST-MD5: digest response format violation. Mismatched response.",
    }
)
"""Java's messages for a missing or expired token, and for a wrong password.

If the token store fails, the connection ends without one of these messages.
"""


class _RefusedError(Exception):
    """The metastore ended the negotiation and gave a reason."""


class _Streams:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, status: int, said: bytes) -> None:
        self.writer.write(bytes([status]) + len(said).to_bytes(4) + said)
        await self.writer.drain()

    async def hear(self) -> tuple[int, bytes]:
        head = await self.reader.readexactly(5)
        size = int.from_bytes(head[1:])
        if size > ANSWER_BYTES_MAX:
            raise ChannelError(f"an answer of more than {ANSWER_BYTES_MAX} bytes", sent=False)
        payload = await self.reader.readexactly(size)
        if head[0] not in (_OK, _COMPLETE):
            raise _RefusedError(payload.decode(errors="replace"))
        return head[0], payload


class _Tickets:
    """A cache of the users' Kerberos tickets. Only one ticket is requested at a time."""

    def __init__(self, env: ClientEnv) -> None:
        self._env = env
        self._held: dict[str, Any] = {}
        self._lock = asyncio.Lock()
        self._file = -1

    async def context(self, user: str) -> tuple[Any, bytes]:
        """Begin a GSSAPI security context for a user; return the context and its first message."""
        async with self._lock:
            return await asyncio.to_thread(self._begin, user)  # determinism: not simulated

    def _begin(self, user: str) -> tuple[Any, bytes]:
        import gssapi

        self._configure()
        if user not in self._held:
            name = gssapi.Name(principal(user), gssapi.NameType.kerberos_principal)
            got = gssapi.raw.acquire_cred_with_password(name, PASSWORD.encode(), usage="initiate")
            self._held[user] = gssapi.Credentials(got.creds)
        context = gssapi.SecurityContext(
            name=gssapi.Name(principal(METASTORE), gssapi.NameType.kerberos_principal),
            creds=self._held[user],
            flags=gssapi.RequirementFlag.mutual_authentication,
            mech=gssapi.MechType.kerberos,
            usage="initiate",
        )
        return context, context.step() or b""

    def _configure(self) -> None:
        """Make the Kerberos library read a configuration file in this process's memory."""
        if self._file < 0:
            host, port = self._env.endpoint(Address(KDC_NODE, KDC_PORT))
            self._file = os.memfd_create("krb5.conf")
            os.write(self._file, configuration(f"{host}:{port}").encode())
        os.environ["KRB5_CONFIG"] = f"/proc/self/fd/{self._file}"


class KerberosConnection:
    """The connections to one metastore, one for each Kerberos user. It implements `Connection`."""

    def __init__(self, door: KerberosDoor, address: Address, usual: ThriftConnection) -> None:
        self._door, self._address = door, address
        self._of_users = {USERS[0]: usual}
        self.broken = False

    async def call(self, call: api.ApiCall, *, timeout_s: float) -> api.Reply:
        """Make a call as the user or with the token in `call`, or by default as `USERS[0]`."""
        whole = False
        try:
            if isinstance(call, api.Authenticate):
                reply = await self._door.authenticate(self._address, call.token, timeout_s)
            else:
                user = _user_of(call)
                if user not in self._of_users:
                    opened = await self._door.open(self._address, user, timeout_s)
                    self._of_users[user] = opened
                reply = await self._of_users[user].call(call, timeout_s=timeout_s)
            whole = True
        finally:
            if not whole:
                self.close()
        return reply

    def close(self) -> None:
        self.broken = True
        for each in self._of_users.values():
            each.close()


def _user_of(call: api.ApiCall) -> str:
    if isinstance(call, api.GetDelegationToken):
        return call.owner
    return call.user if isinstance(call, api.RenewDelegationToken) else USERS[0]


class KerberosDoor:
    """Opens Kerberos connections. It implements `targets.hive.client.connection.Connect`."""

    def __init__(self, env: ClientEnv) -> None:
        self._env = env
        self._tickets = _Tickets(env)

    async def __call__(self, address: Address, *, timeout_s: float) -> KerberosConnection:
        """Open a connection as the user `USERS[0]`. Raises `ChannelError` with `sent` false."""
        return KerberosConnection(self, address, await self.open(address, USERS[0], timeout_s))

    async def open(self, address: Address, user: str, timeout_s: float) -> ThriftConnection:
        try:
            return await self._opened(address, timeout_s, user=user)
        except _RefusedError as error:
            raise ChannelError(f"connect to {address} failed: {error}", sent=False) from error

    async def authenticate(self, address: Address, token: str, timeout_s: float) -> api.Reply:
        """Log in with a token; return its owner or a refusal. May raise `ChannelError`."""
        try:
            opened = await self._opened(address, timeout_s, token=token)
        except _RefusedError as error:
            if str(error) not in _NOT_ITS_PASSWORD:
                raise ChannelError(f"{address} refused: {error}", sent=False) from error
            return api.Reply(error=api.INVALID_TOKEN, message=str(error))
        opened.close()
        return api.Reply(read_text(token).owner)

    async def _opened(
        self, address: Address, timeout_s: float, *, user: str = "", token: str = ""
    ) -> ThriftConnection:
        import gssapi

        writer: asyncio.StreamWriter | None = None
        opened: ThriftConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                host, port = self._env.endpoint(address)
                reader, writer = await asyncio.open_connection(host, port)  # determinism: real runs
                streams = _Streams(reader, writer)
                await (_digest(streams, token) if token else self._gssapi(streams, user))
                connection = ThriftConnection(reader, writer, framed=True)
                await connection.greet(timeout_s=timeout_s)
                opened = connection
        except TimeoutError as error:
            message = f"connect to {address} timed out after {timeout_s:g} s"
            raise ChannelError(message, sent=False) from error
        except (OSError, EOFError, ChannelError, SASLError, gssapi.raw.GSSError) as error:
            raise ChannelError(f"connect to {address} failed: {error}", sent=False) from error
        finally:
            if opened is None and writer is not None:
                writer.transport.abort()
        return opened

    async def _gssapi(self, streams: _Streams, user: str) -> None:
        context, reply = await self._tickets.context(user)
        await streams.say(_START, b"GSSAPI")
        await streams.say(_OK, reply)
        while not context.complete:
            _, heard = await streams.hear()
            await streams.say(_OK, context.step(heard) or b"")
        _, heard = await streams.hear()
        context.unwrap(heard)  # the server's offer of security layers, which must be decoded
        await streams.say(_COMPLETE, context.wrap(_NO_LAYER, False).message)
        await streams.hear()


async def _digest(streams: _Streams, text: str) -> None:
    token = read_text(text)
    client = SASLClient(
        "default",
        service="null",
        mechanism="DIGEST-MD5",
        username=base64.b64encode(token.identifier).decode(),
        password=base64.b64encode(token.password).decode(),
    )
    await streams.say(_START, b"DIGEST-MD5")
    await streams.say(_OK, b"")
    _, heard = await streams.hear()
    await streams.say(_OK, client.process(heard))
    _, heard = await streams.hear()
    client.process(heard)
