"""A loopback server around a mini (a small fake server), and the clients that talk to it.

The server damages answers on request.
"""

import asyncio
import contextlib
from types import SimpleNamespace

from harness.env import Address
from targets.declared.operations import Operations
from targets.declared.protocols import FAILURES, DeclinedError, protocol_of
from tests.declared.protocols import minis, minis_sql
from tests.support.env import Clock

NODE = Address("n1", 1)
KV = {
    "read": {"request": "GET /kv/{key}", "value": "node.value", "nothing": [404]},
    "write": 'PUT /kv/{key} {"value": {value}}',
    "cas": {
        "request": "POST /kv/{key}",
        "body": {"old": "{old}", "new": "{new}"},
        "refused": [409],
    },
}
WORLDS = {
    "http": (minis.MiniKv, KV),
    "redis": (minis.MiniRedis, {}),
    "etcd": (minis.MiniEtcd, {}),
    "zookeeper": (minis.MiniZooKeeper, {}),
    "memcached": (minis.MiniMemcached, {}),
    "postgres": (minis_sql.MiniPostgres, {}),
    "mysql": (minis_sql.MiniMySql, {}),
}
CLOSE, SILENT = object(), object()


def whole(answer):
    return [answer]


def first(count):
    """Return a function that cuts an answer after `count` bytes and ends the connection."""
    return lambda answer: [answer[:count], CLOSE]


class Server:
    """A mini behind a port. `spoil` gets each answer and returns its replacement: bytes, `CLOSE` or
    `SILENT`. The first `after` answers pass unchanged.
    """

    def __init__(self, mini, spoil=whole, after=0):
        self.mini, self.spoil, self.after = mini, spoil, after
        self.asked, self.arrived = [], asyncio.Event()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.writers = []
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader, writer):
        self.writers.append(writer)
        writer.write(getattr(self.mini, "hello", b""))
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 20):
                self.asked.append(data)
                answer = self.mini.answer(data)
                late = len(self.asked) > self.after
                for part in self.spoil(answer) if late else [answer]:
                    if part is SILENT:
                        self.arrived.set()
                    elif part is CLOSE:
                        writer.close()
                        return
                    else:
                        writer.write(part)
                if data == b"srvr":  # ZooKeeper closes the connection after a four-letter word
                    break
            writer.close()

    @property
    def env(self):
        return env_at(self.port)


def env_at(port):
    return SimpleNamespace(name="client", clock=Clock(), endpoint=lambda _: ("127.0.0.1", port))


class Caller:
    """A client with one session; it classifies outcomes as the target's client does."""

    def __init__(self, name, env, settings=None, written=None, vocabulary="register"):
        self.protocol = protocol_of(name, settings or {})
        operations = Operations(self.protocol, written or WORLDS.get(name, (0, {}))[1])
        self.speaker, self.env = operations.speaking(vocabulary), env

    async def __aenter__(self):
        self.session = await self.protocol.open(self.env, NODE)
        return self

    async def __aexit__(self, *_):
        await self.session.close()

    async def __call__(self, f, value=None):
        self.session.begin()
        try:
            request = SimpleNamespace(f=f, value=value)
            return "ok", await self.speaker.perform(self.session, request, process=0)
        except DeclinedError as declined:
            return "fail", declined.value
        except FAILURES:
            return ("info" if self.session.may_have_changed else "fail"), None


def run(name, body, *, spoil=whole, after=0, settings=None, mini=None, vocabulary="register"):
    """Run `body(caller, server)` against a protocol's mini."""

    async def main():
        async with (
            Server(mini or WORLDS[name][0](), spoil, after) as server,
            Caller(name, server.env, settings, vocabulary=vocabulary) as caller,
        ):
            return await body(caller, server)

    return asyncio.run(main())
