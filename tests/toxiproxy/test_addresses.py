"""The proxy finds out who calls a shared address, and delays or drops unknown callers."""

import asyncio
import contextlib

import pytest

from harness.environments.callers import CallerGoneError
from harness.environments.toxiproxy import addresses, proxy
from harness.environments.toxiproxy.addresses import SharedAddress
from harness.environments.toxiproxy.link import ToxicEntry
from harness.environments.toxiproxy.proxy import Proxy, Withheld, split_address
from harness.environments.toxiproxy.toxics import TOXICS
from harness.errors import InfrastructureError
from tests.support.waiting import LIMIT_S, until

CALLERS = ("a", "b", "client")


class Book:
    """A fake of the kernel's socket table: it names the caller, or gives the reason why it is
    unknown.
    """

    def __init__(self, answer):
        self.answer = answer

    async def wait_found(self, local, remote):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Place:
    """A server behind an address that three callers share; one of them, b, is the server itself."""

    def __init__(self, answer):
        self.heard = []
        self.reports = []
        self._book = Book(answer)

    async def __aenter__(self):
        async def hear(reader, writer):
            self.heard.append(await reader.read())
            writer.close()

        self._server = await asyncio.start_server(hear, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.proxies = {
            caller: Proxy(caller, "127.0.0.1:0", f"{host}:{port}", seed=1) for caller in CALLERS
        }
        for each in self.proxies.values():
            await each.start()
        self._shared = SharedAddress(
            "127.203.1.1:0",
            self._book,
            self.proxies,
            hosts={"127.203.1.7": "a"},
            otherwise="client",
            neutral="b",
            report=self.reports.append,
        )
        await self._shared.start()
        self.address = self._shared.address
        return self

    async def __aexit__(self, *_):
        await self._shared.stop()
        for each in self.proxies.values():
            await each.stop()
        self._server.close()

    async def say(self, data, source="127.0.0.1"):
        _, writer = await asyncio.open_connection(
            *split_address(self.address), local_addr=(source, 0)
        )
        writer.write(data)
        writer.close()
        with contextlib.suppress(OSError):  # the connection may be refused
            await writer.wait_closed()

    async def cut(self, caller, kind="blackhole", stream="upstream", **attributes):
        toxic = TOXICS[kind](**attributes)
        entry = ToxicEntry(name="t", type=kind, stream=stream, toxicity=1.0, toxic=toxic)
        await self.proxies[caller].add_toxic(entry)

    def passed(self):
        return {
            caller for caller, each in self.proxies.items() if each.counters["upstream"].sent_bytes
        }


@pytest.mark.parametrize(
    ("answer", "source", "passes"),
    [
        (CallerGoneError(), "127.203.1.7", "a"),  # the address shows the caller
        ("a", "127.0.0.1", "a"),
        (None, "127.0.0.1", "client"),  # the process is no known caller
        (CallerGoneError(), "127.0.0.1", "b"),
    ],
)
async def test_the_proxy_that_a_connection_takes(answer, source, passes):
    async with Place(answer) as place:
        await place.say(b"hello", source)
        await until(lambda: place.heard == [b"hello"])
        assert place.passed() == {passes}
        assert place.reports == []


async def test_a_caller_unknown_to_the_kernel_is_dropped_and_reported():
    async with Place(InfrastructureError("the kernel does not say")) as place:
        await place.say(b"hello")
        await until(lambda: place.reports == [Withheld(place.address, 0, 1)])
        assert place.heard == []


async def test_an_unknown_caller_waits_for_the_end_of_the_last_cut():
    async with Place(CallerGoneError()) as place:
        await place.cut("a")
        await place.cut("client", "latency", latency=86_400_000)
        for word in (b"one", b"two"):
            await place.say(word)
        await until(lambda: place.reports == [Withheld(place.address, 1, 0)])
        await place.proxies["a"].remove_all_toxics()
        await asyncio.sleep(5 * addresses._POLL_S)
        assert place.heard == []
        await place.proxies["client"].remove_all_toxics()
        await until(lambda: sorted(place.heard) == [b"one", b"two"])
        assert place.reports == [Withheld(place.address, held, 0) for held in (1, 0)]


@pytest.mark.parametrize(
    ("kind", "stream", "attributes", "blocks"),
    [
        ("blackhole", "upstream", {}, True),
        ("blackhole", "downstream", {}, False),
        ("timeout", "upstream", {}, True),
        ("bandwidth", "upstream", {"rate": 0}, True),
        ("bandwidth", "upstream", {"rate": 1}, False),
        ("latency", "upstream", {"latency": 86_400_000}, True),
        ("latency", "upstream", {"latency": 2000, "jitter": 100}, False),
        ("slicer", "upstream", {"average_size": 10}, False),
        ("reset_peer", "upstream", {"timeout": 100}, False),
    ],
)
async def test_toxics_that_an_unknown_caller_waits_for(kind, stream, attributes, blocks):
    async with Place(CallerGoneError()) as place:
        await place.cut("a", kind, stream, **attributes)
        await place.say(b"hello")
        await until(lambda: place.heard == [b"hello"] or len(place.reports) == 1)
        assert place.heard == ([] if blocks else [b"hello"])


@pytest.mark.parametrize("limit", ["_HELD_S_MAX", "_HELD_MAX"])
async def test_connections_held_too_long_or_too_many_are_dropped_and_reported(monkeypatch, limit):
    monkeypatch.setattr(addresses, limit, 0)
    async with Place(CallerGoneError()) as place:
        await place.cut("a")
        for dropped in (1, 2):
            await place.say(b"hello")
            last = Withheld(place.address, 0, dropped)
            await until(lambda last=last: place.reports[-1:] == [last])
        await place.proxies["a"].remove_all_toxics()
        await place.say(b"late")
        await until(lambda: place.heard == [b"late"])


async def test_a_proxy_reports_connections_above_its_limit(monkeypatch):
    monkeypatch.setattr(proxy, "CONNECTIONS_MAX", 1)
    reports = []
    passage = Proxy("p", "127.0.0.1:0", "127.0.0.1:0", seed=1, report=reports.append)
    served = []
    server = await asyncio.start_server(lambda _, writer: served.append(writer), "127.0.0.1", 0)
    async with server:
        upstream = "{}:{}".format(*server.sockets[0].getsockname())
        await passage.update(passage.listen, upstream, enabled=True)
        where = split_address(passage.listen)
        async with asyncio.timeout(LIMIT_S):
            _, first = await asyncio.open_connection(*where)
            await until(lambda: passage.connections == len(served) == 1)
            reader, second = await asyncio.open_connection(*where)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert reports == [Withheld(passage.listen, 0, 1)]
        for writer in (first, second, *served):
            writer.transport.abort()
        await passage.stop()
