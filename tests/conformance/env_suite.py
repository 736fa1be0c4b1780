"""The conformance suite of environments: what each must provide to nodes on `Env`.

A node (`actor`) carries out orders that the driver sends as JSON frames, so a check can use `Env`
inside a node and `Cluster` from outside. Each check is `async def check(session)`, uses only these
two interfaces, and takes at most about one second of real time. `CHECKS` lists all checks; run one
with

    environment.execute(suite_plan(), check)

If starting nodes costs more than the checks themselves, run `CALM` and `RESTARTING`, which together
contain all checks, on one cluster each:

    environment.execute(suite_plan(), in_turn(CALM))
"""

import asyncio
import contextlib
import errno
import json
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from harness.cluster import (
    CLIENT,
    STREAMS,
    Bite,
    ClusterEvent,
    DiskQuality,
    Link,
    LinkQuality,
    NodeSpec,
    NodeState,
    StreamQuality,
    client_end,
)
from harness.env import FRAME_BYTES_MAX, Address, Conn, Env, File, PageRequest, PageResponse
from harness.environments.pages import IN_FLIGHT_MAX, PAGE_BYTES_MAX
from harness.errors import UsageError
from harness.nodes.caller import call_as
from harness.nodes.faults import Pause
from harness.plugins import DeploymentPlan, Session
from tests.faults.door import door
from tests.support.waiting import LIMIT_S, until

PORT = 7000
UNUSED_PORT = 7001
PAGES_PORT = 8000
TURNS, TURNS_MAX = 5000, 160_000  # each turn takes 2 to 20 µs
ONE, OTHER = map(client_end, range(2))
SILENCE_S = 0.5  # an answer that takes longer counts as silence
LEASE_S = 60.0
ROUNDING_NS = 1_000
SLEW_NS = 50_000_000  # how far the host's time daemon may adjust the wall clock during a check

Check = Callable[[Session], Awaitable[None]]
T = TypeVar("T")


def suite_plan(
    *, seed: int = 1, folder: Path | None = None, knobs: dict[str, Any] | None = None
) -> DeploymentPlan:
    """Plan a deployment of two actors, `a` and `b`."""
    nodes = tuple(
        NodeSpec(
            name=name,
            role="actor",
            ports=(PORT, UNUSED_PORT),
            pages=PAGES_PORT,
            entry="tests.conformance.env_suite:actor",
            config={"greeting": f"I am {name}"},
        )
        for name in ("a", "b")
    )
    run_id = f"suite-{secrets.token_hex(4)}"  # another suite may use the same engine
    return DeploymentPlan(
        run_id=run_id,
        nodes=nodes,
        seed=seed,
        knobs=knobs or {},
        folder=folder,
        ends=(CLIENT, ONE, OTHER),
    )


# --- code inside a node ----------------------------------------------------------------------


def _name_of(error: Exception) -> str:
    """Return the errno name of an OSError that has no Python class of its own."""
    if type(error) is OSError and error.errno is not None:
        return errno.errorcode[error.errno]
    return type(error).__name__


class _Actor:
    def __init__(self, env: Env, config: dict[str, Any]) -> None:
        self.env = env
        self.config = config
        self.files: dict[str, File] = {}
        self.exit = asyncio.get_running_loop().create_future()

    async def serve(self, conn: Conn) -> None:
        while (frame := await conn.recv()) is not None:
            try:
                answer = await self.obey(json.loads(frame))
            except (OSError, ValueError, TimeoutError) as error:
                answer = {"error": _name_of(error)}
            if answer == "close":
                break
            await conn.send(json.dumps(answer).encode())
        conn.close()

    async def file(self, path: str) -> File:
        if path not in self.files:
            self.files[path] = await self.env.disk.open(path)
        return self.files[path]

    async def obey(self, order: dict[str, Any]) -> Any:
        method = getattr(self, "do_" + order.pop("do"))
        return await method(**order)

    async def do_echo(self, text: str) -> Any:
        return text

    async def do_close(self) -> Any:
        return "close"

    async def do_about(self) -> Any:
        env = self.env
        return {"name": env.name, "boot": env.boot, "config": self.config}

    async def do_clock(self) -> Any:
        clock = self.env.clock
        return [clock.monotonic_ns(), clock.wall_ns(), clock.max_error_ns()]

    async def do_sleep(self, time_s: float) -> Any:
        await asyncio.sleep(time_s)

    async def do_turns(self, count: int) -> Any:
        """Run `count` callbacks, each of which costs processor time; return how long they took."""
        begin_ns = self.env.clock.monotonic_ns()
        for _ in range(count):
            await asyncio.sleep(0)
        return self.env.clock.monotonic_ns() - begin_ns

    async def do_random(self) -> Any:
        return [self.env.random.random() for _ in range(4)]

    async def do_event(self, kind: str, data: dict[str, Any]) -> Any:
        self.env.event(kind, **data)

    async def do_ticks(self, path: str, count: int) -> Any:
        """Announce an event and write a file in the same callback, `count` times."""
        file = await self.file(path)
        for number in range(count):
            self.env.event("tick", number=number)
            await file.append(b"x")
            await asyncio.sleep(0.001)
        return "done"

    async def do_append(self, path: str, text: str) -> Any:
        file = await self.file(path)
        return await file.append(text.encode()), file.size()

    async def do_sync(self, path: str) -> Any:
        await (await self.file(path)).sync()

    async def do_truncate(self, path: str, size: int) -> Any:
        await (await self.file(path)).truncate(size)

    async def do_read_at(self, path: str, offset: int, size: int) -> Any:
        return (await (await self.file(path)).read(offset, size)).decode("latin-1")

    async def do_read(self, path: str) -> Any:
        return (await self.env.disk.read(path)).decode("latin-1")

    async def do_replace(self, path: str, text: str) -> Any:
        await self.env.disk.replace(path, text.encode())

    async def do_remove(self, path: str) -> Any:
        await self.env.disk.remove(path)

    async def do_list(self, prefix: str) -> Any:
        return await self.env.disk.list(prefix)

    async def do_relay(self, node: str, order: dict[str, Any]) -> Any:
        return await tell(self.env, node, order)

    async def do_resolve(self, node: str) -> Any:
        return self.env.net.resolve(Address(node, PORT))

    async def do_page_url(self, node: str) -> Any:
        return self.env.page_url(Address(node, PAGES_PORT))

    async def do_pages_on(self, port: int) -> Any:
        await self.env.serve_pages(port, show)

    async def do_panic(self, text: str) -> Any:
        async def fail() -> None:
            raise LookupError(text)

        self.env.spawn(fail(), name="fail")

    async def do_return(self) -> Any:
        self.exit.set_result(None)


async def show(request: PageRequest) -> PageResponse:
    """Serve a page that echoes the request, or fails or hangs as its path says."""
    if request.path == "/fail":
        raise LookupError(request.query["why"])
    if request.path == "/hang":
        await asyncio.sleep(float(request.query["s"]))
    if request.path == "/large":
        return PageResponse(200, "text/plain", b"x" * (PAGE_BYTES_MAX + 1))
    request_parts = [request.path, dict(request.query), request.accepts_json]
    return PageResponse(200, "application/json", json.dumps(request_parts).encode())


async def actor(env: Env, config: dict[str, Any]) -> None:
    """Run the node: carry out orders until stopped, and record a graceful stop on the disk."""
    self = _Actor(env, config)
    await env.serve_pages(PAGES_PORT, show)
    await env.net.listen(PORT, self.serve)
    try:
        await self.exit
    except asyncio.CancelledError:
        await env.disk.replace("stopped", b"in order")
        raise


# --- checks from outside -----------------------------------------------------------------------


@contextlib.contextmanager
def raising(kind: type[Exception], otherwise: str, text: str = "") -> Iterator[None]:
    """Assert that the block raises this error; the suite does not depend on pytest."""
    try:
        yield
    except kind as error:
        assert text in str(error)  # noqa: PT017
    else:
        raise AssertionError(otherwise)


async def tell(env: Env, node: str, order: dict[str, Any], *, timeout_s: float = LIMIT_S) -> Any:
    async with asyncio.timeout(timeout_s):
        conn = await env.net.connect(Address(node, PORT))
        try:
            await conn.send(json.dumps(order).encode())
            answer = await conn.recv()
        finally:
            conn.close()
    return None if answer is None else json.loads(answer)


async def wait_serving(session: Session, node: str) -> None:
    """Wait until a started node answers; processes need some time to start."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                await tell(session.env, node, {"do": "echo", "text": "?"})
            except (ConnectionError, OSError):
                await asyncio.sleep(0.02)
            else:
                return


def record(session: Session) -> list[ClusterEvent]:
    """Return a list that receives all further events of the cluster."""
    events: list[ClusterEvent] = []
    session.cluster.subscribe(events.append)
    return events


async def is_silent(session: Session, node: str) -> bool:
    """Whether a node neither answers nor refuses a connection."""
    try:
        await tell(session.env, node, {"do": "echo", "text": "?"}, timeout_s=SILENCE_S)
    except TimeoutError:
        return True
    return False


async def check_frames(session: Session) -> None:
    """Small, empty and large frames arrive whole and in order."""
    await wait_serving(session, "a")
    conn = await session.env.net.connect(Address("a", PORT))
    texts = ["", "x", "y" * 1_000_000, *map(str, range(50))]
    for text in texts:
        await conn.send(json.dumps({"do": "echo", "text": text}).encode())
    async with asyncio.timeout(LIMIT_S):
        answers = [json.loads(await conn.recv() or b"null") for _ in texts]
    assert answers == texts
    assert conn.peer == "a"
    conn.close()
    conn.close()


async def check_orderly_end(session: Session) -> None:
    """After the peer closes a connection, `recv` returns `None`, and sends soon fail."""
    await wait_serving(session, "a")
    conn = await session.env.net.connect(Address("a", PORT))
    await conn.send(b'{"do": "close"}')
    async with asyncio.timeout(LIMIT_S):
        assert await conn.recv() is None
        try:
            while True:
                await conn.send(b"[]")
                await asyncio.sleep(0.02)
        except ConnectionResetError:
            conn.close()


async def page_of(session: Session, target: str, **options: Any) -> tuple[int, Any]:
    """Request a page of `a`; return its status and its body, decoded if possible."""
    async with asyncio.timeout(LIMIT_S):
        response = await session.env.get_page(Address("a", PAGES_PORT), target, **options)
    is_json = response.content_type == "application/json"
    return response.status, json.loads(response.body) if is_json else response.body.decode()


async def check_pages(session: Session) -> None:
    """Pages answer as requested; a page that fails, hangs or is too large does no harm."""
    await wait_serving(session, "a")
    events = record(session)
    assert await page_of(session, "/x%20y/?a=1&b=%3C&a=2") == (
        200, ["/x y/", {"a": "2", "b": "<"}, False],
    )  # fmt: skip
    assert (await page_of(session, "/", accept="application/json"))[1][2] is True
    assert (await page_of(session, "/", accept="text/html, application/json"))[1][2] is False
    status, text = await page_of(session, "/fail?why=%3Cb%3E")
    assert (status, "LookupError: <b>" in text) == (500, True)
    assert (await page_of(session, "/large"))[0] == 500
    await until(lambda: len([event for event in events if event.kind == "page-failed"]) == 2)
    assert (await page_of(session, f"/?{'&'.join('a' * 40)}"))[0] == 400
    # Requests above the limit of concurrent requests are refused; later requests are served.
    hanging = (page_of(session, "/hang?s=1.5") for _ in range(IN_FLIGHT_MAX + 2))
    statuses = sorted(status for status, _ in await asyncio.gather(*hanging))
    assert statuses == [200] * IN_FLIGHT_MAX + [503] * 2
    assert (await page_of(session, "/"))[0] == 200
    assert (await tell(session.env, "a", {"do": "page_url", "node": "b"})).startswith("http://")
    assert (await tell(session.env, "a", {"do": "pages_on", "port": PORT})) == {
        "error": "ValueError"
    }


async def check_pages_of_the_dead(session: Session) -> None:
    """A request fails if its node ends, and pages are served again after a restart."""
    await wait_serving(session, "a")
    hanging = asyncio.ensure_future(page_of(session, "/hang?s=9"))
    await asyncio.sleep(0.2)
    await session.cluster.kill("a")
    for request in (hanging, page_of(session, "/")):
        with raising(ConnectionError, "the dead show no pages"):
            await request
    await session.cluster.start("a")
    await wait_serving(session, "a")
    assert (await page_of(session, "/"))[0] == 200


async def check_refused(session: Session) -> None:
    """A connection to an unknown name, or to a port without a listener, is refused at once."""
    await wait_serving(session, "a")
    for address in (Address("a", UNUSED_PORT), Address("nobody", UNUSED_PORT)):
        with raising(ConnectionRefusedError, f"connected to {address}, which has no listener"):
            async with asyncio.timeout(LIMIT_S):
                await session.env.net.connect(address)


async def check_frame_limit(session: Session) -> None:
    """A frame above the limit is refused, and the connection remains usable."""
    await wait_serving(session, "a")
    conn = await session.env.net.connect(Address("a", PORT))
    with raising(ValueError, "a frame above FRAME_BYTES_MAX was accepted"):
        await conn.send(bytes(FRAME_BYTES_MAX + 1))
    await conn.send(b'{"do": "echo", "text": "still here"}')
    async with asyncio.timeout(LIMIT_S):
        assert await conn.recv() == b'"still here"'
    conn.close()


async def check_node_to_node(session: Session) -> None:
    """Nodes reach each other by name, get their config, and know their name and boot number."""
    await wait_serving(session, "a")
    await wait_serving(session, "b")
    about = await tell(session.env, "a", {"do": "relay", "node": "b", "order": {"do": "about"}})
    assert about == {"name": "b", "boot": 0, "config": {"greeting": "I am b"}}


async def check_disk(session: Session) -> None:
    """Append, read, truncate, replace, list, remove."""
    env = session.env
    await wait_serving(session, "a")

    async def do(what: str, **arguments: Any) -> Any:
        return await tell(env, "a", {"do": what, **arguments})

    assert await do("append", path="wal/1", text="one") == [0, 3]
    assert await do("append", path="wal/1", text="two") == [3, 6]
    await do("sync", path="wal/1")
    assert await do("read", path="wal/1") == "onetwo"
    assert await do("read_at", path="wal/1", offset=2, size=3) == "etw"
    assert await do("read_at", path="wal/1", offset=4, size=99) == "wo"
    await do("truncate", path="wal/1", size=4)
    assert await do("append", path="wal/1", text="!") == [4, 5]
    assert await do("read", path="wal/1") == "onet!"
    await do("replace", path="meta", text="first")
    await do("replace", path="meta", text="second")
    assert await do("read", path="meta") == "second"
    await do("replace", path="wal/0", text="")
    assert await do("list", prefix="") == ["meta", "wal/0", "wal/1"]
    assert await do("list", prefix="wal/") == ["wal/0", "wal/1"]
    await do("remove", path="meta")
    await do("remove", path="meta")
    assert await do("read", path="meta") == {"error": "FileNotFoundError"}
    assert await do("list", prefix="") == ["wal/0", "wal/1"]


async def check_kill_and_restart(session: Session) -> None:
    """A kill ends connections and keeps the disk; boots are counted."""
    env, cluster = session.env, session.cluster
    events = record(session)
    await wait_serving(session, "a")
    boot = (await tell(env, "a", {"do": "about"}))["boot"]
    await tell(env, "a", {"do": "append", "path": "f", "text": "kept"})
    conn = await env.net.connect(Address("a", PORT))
    await conn.send(b'{"do": "echo", "text": "x"}')
    assert await conn.recv() == b'"x"'
    assert await cluster.kill("a")
    assert not await cluster.kill("a")
    assert cluster.state("a") is NodeState.DOWN
    assert not await cluster.pause("a", lease_s=LEASE_S)
    assert not await cluster.resume("a")
    assert not await cluster.stop("a")
    async with asyncio.timeout(LIMIT_S):
        with contextlib.suppress(ConnectionResetError):
            assert await conn.recv() is None
    with raising(ConnectionRefusedError, "a killed node answered"):
        await tell(env, "a", {"do": "about"})
    assert await cluster.start("a")
    assert not await cluster.start("a")
    await wait_serving(session, "a")
    assert (await tell(env, "a", {"do": "about"}))["boot"] == boot + 1
    assert await tell(env, "a", {"do": "read", "path": "f"}) == "kept"
    await until(lambda: sum(e.kind == "node-started" for e in events if e.node == "a") >= 1)
    (exited,) = [e for e in events if e.kind == "node-exited"]
    assert (exited.node, exited.data["expected"]) == ("a", True)


async def check_power_cut(session: Session) -> None:
    """Synced data survives; other data is lost or torn, also on a node that was down."""
    env, cluster = session.env, session.cluster
    await wait_serving(session, "a")
    names = [f"wal/{number}" for number in range(8)]

    async def left() -> list[str]:
        await cluster.start("a")
        await wait_serving(session, "a")
        return [await tell(env, "a", {"do": "read", "path": name}) for name in names]

    for was_down in (False, True):
        before = await left()
        for name in names:
            await tell(env, "a", {"do": "append", "path": name, "text": "synced"})
            await tell(env, "a", {"do": "sync", "path": name})
            await tell(env, "a", {"do": "append", "path": name, "text": "." * 100})
        if was_down:
            await cluster.kill("a")
        assert await cluster.kill("a", lose_unsynced=True, torn=True) != was_down
        contents = await left()
        for old, new in zip(before, contents, strict=True):
            durable = ("" if isinstance(old, dict) else old) + "synced"
            assert new.startswith(durable)
            assert set(new.removeprefix(durable)) <= {"."}
        assert any(not new.endswith("." * 100) for new in contents)


async def check_graceful_stop(session: Session) -> None:
    """A stop cancels `main`, whose `finally` may still use the disk; a wipe then empties it."""
    env, cluster = session.env, session.cluster
    events = record(session)
    await wait_serving(session, "a")
    assert await cluster.stop("a")
    assert not await cluster.stop("a")
    assert cluster.state("a") is NodeState.DOWN
    await until(lambda: any(e.kind == "node-exited" for e in events))
    (exited,) = [e for e in events if e.kind == "node-exited"]
    assert exited.data["expected"] is True
    await cluster.start("a")
    await wait_serving(session, "a")
    assert await tell(env, "a", {"do": "read", "path": "stopped"}) == "in order"
    await cluster.kill("a")
    assert await cluster.wipe("a")
    await cluster.start("a")
    await wait_serving(session, "a")
    assert await tell(env, "a", {"do": "list", "prefix": ""}) == []


async def check_panic(session: Session) -> None:
    """If a task fails or `main` returns, the node exits unexpectedly, with a reason."""
    events = record(session)
    await wait_serving(session, "a")
    await tell(session.env, "a", {"do": "event", "kind": "hello", "data": {"n": [1]}})
    with contextlib.suppress(ConnectionResetError):  # the node may exit before it answers
        await tell(session.env, "a", {"do": "panic", "text": "the disk is made of cheese"})
    await until(lambda: any(e.kind == "node-exited" for e in events))
    hello, exited = [e for e in events if e.kind in {"hello", "node-exited"}]
    assert (hello.node, hello.data) == ("a", {"n": [1]})
    assert exited.data["expected"] is False
    assert exited.data["code"] != 0
    assert any("the disk is made of cheese" in line for line in exited.data["log"])
    assert session.cluster.state("a") is NodeState.DOWN
    await wait_serving(session, "b")
    await tell(session.env, "b", {"do": "return"})
    await until(lambda: session.cluster.state("b") is NodeState.DOWN)
    await until(lambda: sum(e.kind == "node-exited" for e in events) == 2)
    (last,) = [e for e in events if (e.kind, e.node) == ("node-exited", "b")]
    assert last.data["expected"] is False
    assert any("hello" in line for line in await session.cluster.logs("a", last_lines=500))


async def check_pause(session: Session) -> None:
    """A paused node is silent and loses nothing; it continues when the fault's lease ends."""
    env, cluster = session.env, session.cluster
    await wait_serving(session, "a")
    conn = await env.net.connect(Address("a", PORT))
    assert await cluster.pause("a", lease_s=LEASE_S)
    assert not await cluster.pause("a", lease_s=LEASE_S)
    assert cluster.state("a") is NodeState.PAUSED
    await conn.send(b'{"do": "echo", "text": "later"}')
    with raising(TimeoutError, "a paused node answered"):
        async with asyncio.timeout(SILENCE_S):
            await conn.recv()
    assert await cluster.resume("a")
    assert not await cluster.resume("a")
    async with asyncio.timeout(LIMIT_S):
        assert await conn.recv() == b'"later"'
    conn.close()
    # This gives the node enough time to be paused before the lease ends.
    await door(session).inject(Pause(), ["a"], lease_s=3.0)
    await until(lambda: cluster.state("a") is NodeState.RUNNING)
    assert await tell(env, "a", {"do": "echo", "text": "thawed"}) == "thawed"


async def check_cut(session: Session) -> None:
    """A cut blocks both directions, counts its effect and heals; other links are unaffected."""
    env = session.env
    for node in ("a", "b"):
        await wait_serving(session, node)
    relayed = {"do": "relay", "node": "a", "order": {"do": "echo", "text": "around"}}
    for _ in range(5):
        fault = await door(session).cut(Link.between([CLIENT], ["a"]))
        assert await is_silent(session, "a")
        assert await tell(env, "b", relayed) == "around"
        bite = await door(session).heal(fault)
        assert isinstance(bite, Bite)
        if bite.count != 0:
            break  # otherwise a client on a busy machine gave up before it sent anything
    assert bite.count is None or bite.count > 0
    assert await door(session).heal(fault) == bite
    assert await tell(env, "a", {"do": "echo", "text": "back"}) == "back"


async def as_client(number: int, work: Coroutine[Any, Any, T]) -> T:
    """Do `work` as client `number`, which has links of its own."""

    async def do() -> T:
        call_as(number)
        return await work

    return await asyncio.create_task(do())


async def check_single_clients(session: Session) -> None:
    """A cut, a shape and a reset affect one client, but no other client and not the harness."""
    env, cluster = session.env, session.cluster
    assert tuple(cluster.clients) == (CLIENT, ONE, OTHER)
    echo = {"do": "echo", "text": "still here"}
    for node in ("a", "b"):
        await wait_serving(session, node)

    async def only(silent: str, node: str) -> None:
        """Assert that exactly the clients `silent` get no answer from the node."""
        asked = {end: tell(env, node, echo) for end in "01" if end not in silent}
        answers = [as_client(int(end), asking) for end, asking in asked.items()]
        waits = [as_client(int(end), is_silent(session, node)) for end in silent]
        assert set(await asyncio.gather(tell(env, node, echo), *answers)) == {"still here"}
        assert all(await asyncio.gather(*waits))

    both_ways = await door(session).cut(Link.between([OTHER], ["a"]))
    await only("1", "a")
    await only("", "b")
    one_way = await door(session).cut([Link("a", ONE)])
    await only("01", "a")
    bites = [await door(session).heal(fault) for fault in (both_ways, one_way)]
    assert None in {bite.count for bite in bites} or sum(bite.count or 0 for bite in bites) > 0
    await only("", "a")
    await door(session).cut(Link.between([ONE, OTHER], ["a", "b"]))
    await door(session).heal_among(["a"])
    await only("", "a")
    await only("01", "b")
    await door(session).heal_all()
    stalled = await door(session).shape([Link("a", ONE)], LinkQuality(stall=True))
    await only("0", "a")
    await door(session).heal(stalled)
    mine, others = [
        await as_client(number, env.net.connect(Address("b", PORT))) for number in (0, 1)
    ]
    assert await cluster.reset([Link(ONE, "b")]) >= 1
    async with asyncio.timeout(LIMIT_S):
        with contextlib.suppress(ConnectionResetError):
            assert await mine.recv() is None
        await others.send(json.dumps(echo).encode())
        assert await others.recv() == b'"still here"'
    for conn in (mine, others):
        conn.close()


async def check_cut_stalls_connections(session: Session) -> None:
    """While a link is cut, an open connection delivers neither data nor an error."""
    events = record(session)
    await wait_serving(session, "a")
    conn = await session.env.net.connect(Address("a", PORT))
    await conn.send(b'{"do": "echo", "text": "before"}')
    assert await conn.recv() == b'"before"'
    fault = await door(session).cut([Link("a", CLIENT)])
    await conn.send(b'{"do": "event", "kind": "asked", "data": {}}')
    with raising(TimeoutError, "an answer crossed a cut"):
        async with asyncio.timeout(SILENCE_S):
            await conn.recv()
    await until(lambda: any(event.kind == "asked" for event in events))
    await door(session).heal(fault)
    async with asyncio.timeout(LIMIT_S):  # real networks may deliver the data late or never
        with contextlib.suppress(ConnectionResetError):
            assert await conn.recv() in {b"null", None}
    conn.close()


async def check_overlapping_cuts(session: Session) -> None:
    """A link stays cut until its last fault ends, and the effect of each fault is counted
    separately.
    """
    for node in ("a", "b"):
        await wait_serving(session, node)
    first = await door(session).cut([Link(CLIENT, "a")])
    second = await door(session).cut([Link(CLIENT, "a"), Link("b", CLIENT)])
    for fault, silent in ((first, "ab"), (second, "ab")):
        for node in silent:
            assert await is_silent(session, node)
        bite = await door(session).heal(fault)
        assert bite.count != 0
    for node in ("a", "b"):
        assert await tell(session.env, node, {"do": "echo", "text": node}) == node


async def check_leases_and_heal_all(session: Session) -> None:
    """A cut ends with its lease; `heal_among` heals faults on some nodes, `heal_all` all others."""
    cluster = session.cluster
    for node in ("a", "b"):
        await wait_serving(session, node)
    await door(session).cut(Link.between([CLIENT], ["a"]), lease_s=SILENCE_S)
    await wait_serving(session, "a")
    await door(session).cut(Link.between([CLIENT], ["a", "b"]))
    await door(session).heal_among(["b"])
    assert await tell(session.env, "b", {"do": "echo", "text": "b"}) == "b"
    assert await is_silent(session, "a")
    await cluster.pause("b", lease_s=LEASE_S)
    await door(session).heal_all()
    assert cluster.state("b") is NodeState.RUNNING
    assert await tell(session.env, "a", {"do": "echo", "text": "a"}) == "a"


async def check_link_quality(session: Session) -> None:
    """A delay affects one direction, a second fault adds to it, and healing both removes it."""
    env = session.env
    await wait_serving(session, "a")

    async def took_s() -> float:
        before_ns = env.clock.monotonic_ns()
        assert await tell(env, "a", {"do": "echo", "text": "a"}) == "a"
        return (env.clock.monotonic_ns() - before_ns) / 1e9

    slow, links = LinkQuality(delay_ms=1000 * SILENCE_S), [Link("a", CLIENT)]
    first = await door(session).shape(links, slow)
    assert await took_s() >= SILENCE_S
    second = await door(session).shape(links, slow)
    assert await took_s() >= 2 * SILENCE_S
    bites = [await door(session).heal(fault) for fault in (first, second)]
    assert all(bite.count is None or bite.count > 0 for bite in bites)
    assert bites[0] == await door(session).heal(first)
    async with asyncio.timeout(LIMIT_S):
        while await took_s() >= SILENCE_S:
            pass
    for bad in (LinkQuality(drop=2), LinkQuality(delay_ms=-1)):
        with raising(UsageError, f"{bad} was accepted"):
            await door(session).shape(links, bad)


async def check_streams(session: Session) -> None:
    """Streams are sliced in one direction or reset until healed, unless the environment refuses the
    fault.
    """
    env, cluster = session.env, session.cluster
    await wait_serving(session, "a")
    text, links = "x" * 4000, [Link("a", CLIENT)]

    async def took_s() -> float:
        before_ns = env.clock.monotonic_ns()
        assert await tell(env, "a", {"do": "echo", "text": text}) == text
        return (env.clock.monotonic_ns() - before_ns) / 1e9

    slices = StreamQuality(slice_bytes=64, gap_ms=20)  # at least 60 pieces
    resets = StreamQuality(reset_after_ms=100)
    if STREAMS.isdisjoint(cluster.capabilities):
        for quality in (slices, resets):
            with contextlib.suppress(UsageError):
                await door(session).shape(links, quality)
                raise AssertionError(f"{quality} was accepted")
        return
    # on a busy machine, one of the two requests may be late
    assert await took_s() < 1.2 or await took_s() < 1.2
    fault = await door(session).shape(links, slices)
    assert await took_s() >= 1.2
    bites = [await door(session).heal(fault)]
    fault = await door(session).shape(links, resets)
    try:
        answer = await tell(env, "a", {"do": "echo", "text": text})
    except ConnectionError:  # the node's greeting already triggers the reset
        pass
    else:
        raise AssertionError(f"the answer was {answer}")
    bites.append(await door(session).heal(fault))
    async with asyncio.timeout(LIMIT_S):
        while await took_s() >= 1.2:
            pass
    assert all(bite.count is None or bite.count > 0 for bite in bites)
    for bad in (StreamQuality(), StreamQuality(gap_ms=1), StreamQuality(reset_after_ms=-1)):
        with contextlib.suppress(UsageError):
            await door(session).shape(links, bad)
            raise AssertionError(f"{bad} was accepted")


async def check_clocks(session: Session) -> None:
    """Clocks advance, and a skew moves the wall clock only."""
    env, cluster = session.env, session.cluster
    await wait_serving(session, "a")
    skew_ns = 3600 * 1_000_000_000
    before = await tell(env, "a", {"do": "clock"})
    await cluster.skew("a", offset_ns=skew_ns)
    after = await tell(env, "a", {"do": "clock"})
    assert before[0] < after[0] < before[0] + LIMIT_S * 1e9
    assert skew_ns <= after[1] - before[1] < skew_ns + LIMIT_S * 1e9
    await door(session).heal_all()
    healed = await tell(env, "a", {"do": "clock"})
    assert 0 < healed[1] - before[1] < LIMIT_S * 1e9
    assert abs(healed[1] - env.clock.wall_ns()) < LIMIT_S * 1e9


async def measure_rate(session: Session, rate: float) -> None:
    """Assert the rate of both clocks of `a`, within the precision of two requests."""
    env = session.env

    async def look() -> tuple[int, int, int, int]:
        asked_ns = env.clock.monotonic_ns()
        monotonic_ns, wall_ns, _ = await tell(env, "a", {"do": "clock"})
        return asked_ns, monotonic_ns, wall_ns, env.clock.monotonic_ns()

    asked, monotonic, wall, answered = await look()
    await asyncio.sleep(0.1)
    asked_later, monotonic_later, wall_later, answered_later = await look()
    least = rate * (asked_later - answered) - ROUNDING_NS
    most = rate * (answered_later - asked) + ROUNDING_NS
    assert least <= monotonic_later - monotonic <= most
    assert least - SLEW_NS <= wall_later - wall <= most + SLEW_NS


async def check_clock_drift(session: Session) -> None:
    """A drift changes the rate of both clocks at once, and affects running timers."""
    env, cluster = session.env, session.cluster
    await wait_serving(session, "a")
    await measure_rate(session, 1.0)
    begin_ns = env.clock.monotonic_ns()
    asleep = env.spawn(tell(env, "a", {"do": "sleep", "time_s": 20.0}), name="asleep")
    await measure_rate(session, 1.0)  # the node is in the middle of a sleep during this measurement
    await cluster.skew("a", offset_ns=0, drift_ppm=9_000_000)
    await measure_rate(session, 10.0)
    await asleep
    assert env.clock.monotonic_ns() - begin_ns < 18e9
    await cluster.skew("a", offset_ns=0, drift_ppm=-900_000)
    await measure_rate(session, 0.1)
    begin_ns = env.clock.monotonic_ns()
    await tell(env, "a", {"do": "sleep", "time_s": 0.05})
    assert env.clock.monotonic_ns() - begin_ns >= 0.5e9
    await door(session).heal_all()
    await measure_rate(session, 1.0)


async def check_clocks_outlast_nodes(session: Session) -> None:
    """A fault also affects nodes that are restarted, down or paused while it lasts."""
    env, cluster = session.env, session.cluster
    hour_ns = 3600 * 1_000_000_000

    async def hours_ahead() -> int:
        _, wall_ns, error_ns = await tell(env, "a", {"do": "clock"})
        assert error_ns < hour_ns  # the error that the node reports does not include the fault
        return round((wall_ns - env.clock.wall_ns()) / hour_ns)

    await wait_serving(session, "a")
    await cluster.skew("a", offset_ns=5 * hour_ns, drift_ppm=1_000_000)
    await cluster.kill("a")
    await cluster.start("a")
    await wait_serving(session, "a")
    assert await hours_ahead() == 5
    await measure_rate(session, 2.0)
    await cluster.kill("a")
    await cluster.skew("a", offset_ns=-7 * hour_ns)
    await cluster.start("a")
    await wait_serving(session, "a")
    assert await hours_ahead() == -7
    await measure_rate(session, 1.0)
    await cluster.pause("a", lease_s=LEASE_S)
    await cluster.skew("a", offset_ns=9 * hour_ns)
    await cluster.resume("a")
    async with asyncio.timeout(LIMIT_S):
        while await hours_ahead() != 9:
            pass
    assert await tell(env, "b", {"do": "clock"})
    await door(session).heal_all()
    assert await hours_ahead() == 0


async def check_slow_processor(session: Session) -> None:
    """Computing takes longer, even across a pause, until the fault is healed."""
    cluster = session.cluster
    await wait_serving(session, "a")

    count = TURNS

    async def took_ns() -> int:
        return int(await tell(session.env, "a", {"do": "turns", "count": count}))

    # Real environments do not slow down the first 10 ms, so these must be a small share of the
    # work, even if other programs use half of the measured time.
    while (usual_ns := min([await took_ns() for _ in range(5)])) < 200_000_000:
        if count == TURNS_MAX or usual_ns == 0:  # in a simulation, turns may take no time
            break
        count *= 2

    async def is_slowed() -> bool:
        """Whether the node is slower; other programs may have distorted the reference time."""
        nonlocal usual_ns
        for _ in range(12):  # the first try fails only if other programs disturb the measurement
            if await took_ns() >= 4 * usual_ns:
                return True
            await cluster.slow("a", factor=1.0)
            usual_ns = min(usual_ns, *[await took_ns() for _ in range(5)])
            await cluster.slow("a", factor=10.0)
        return False

    await cluster.slow("a", factor=10.0)
    assert await is_slowed()
    await cluster.pause("a", lease_s=LEASE_S)
    assert cluster.state("a") is NodeState.PAUSED
    await cluster.resume("a")
    assert await took_ns() >= 4 * usual_ns
    await cluster.slow("a", factor=1.0)
    async with asyncio.timeout(LIMIT_S):
        while await took_ns() >= 4 * usual_ns > 0:
            pass
    for factor in (0.0, -1.0):
        with contextlib.suppress(UsageError):
            await cluster.slow("a", factor=factor)
            raise AssertionError(f"factor {factor} was accepted")


async def check_bad_disk(session: Session) -> None:
    """Disk requests fail, run out of space or take long, as the fault says; these are counted."""
    env, cluster = session.env, session.cluster
    await wait_serving(session, "b")

    async def do(what: str, **arguments: Any) -> Any:
        return await tell(env, "b", {"do": what, **arguments})

    await do("append", path="f", text="one")
    assert await cluster.worsen_disk("b", DiskQuality(error=1.0)) == 0
    for order in ({"what": "sync"}, {"what": "append", "text": "two"}, {"what": "read"}):
        assert await do(**order, path="f") == {"error": "EIO"}
    assert await cluster.worsen_disk("b", DiskQuality(full=True)) == 3
    assert await do("append", path="f", text="three") == {"error": "ENOSPC"}
    assert await do("replace", path="g", text="four") == {"error": "ENOSPC"}
    assert await do("read", path="f") == "one"  # the failed request had no effect
    await do("sync", path="f")
    assert await cluster.worsen_disk("b", DiskQuality(delay_ms=300.0)) == 2
    begin_ns = env.clock.monotonic_ns()
    await do("sync", path="f")
    assert env.clock.monotonic_ns() - begin_ns >= 300_000_000
    assert await cluster.worsen_disk("b", DiskQuality()) == 1
    await do("append", path="f", text="five")
    await do("sync", path="f")
    assert await do("list", prefix="") == ["f"]
    assert await do("read", path="f") == "onefive"
    assert await cluster.worsen_disk("b", DiskQuality(error=0.5)) == 0
    answers = [await do("list", prefix="") for _ in range(40)]
    failed = answers.count({"error": "EIO"})
    assert 0 < failed < 40
    assert await cluster.worsen_disk("b", DiskQuality()) == failed


async def check_a_bad_disk_that_ends_a_node(session: Session) -> None:
    """A request counts even if it makes its node exit."""
    env, cluster = session.env, session.cluster
    await wait_serving(session, "a")
    await cluster.worsen_disk("a", DiskQuality(error=1.0))
    await tell(env, "a", {"do": "list", "prefix": ""})
    with contextlib.suppress(ConnectionResetError):  # the node may exit before it answers
        await tell(env, "a", {"do": "panic", "text": "it cannot read"})
    await until(lambda: cluster.state("a") is NodeState.DOWN)
    assert await cluster.worsen_disk("a", DiskQuality()) == 1


async def check_bad_disks_outlast_nodes(session: Session) -> None:
    """A fault also affects nodes that are restarted, down or paused while it lasts."""
    env, cluster = session.env, session.cluster

    async def outcome(node: str = "a") -> Any:
        await wait_serving(session, node)
        return await tell(env, node, {"do": "replace", "path": "f", "text": ""})

    await wait_serving(session, "a")
    await cluster.worsen_disk("a", DiskQuality(full=True))
    await cluster.kill("a")
    await cluster.start("a")
    assert await outcome() == {"error": "ENOSPC"}
    assert await outcome("b") is None
    await cluster.kill("a")
    await cluster.worsen_disk("a", DiskQuality(error=1.0))
    await cluster.start("a")
    assert await outcome() == {"error": "EIO"}
    await cluster.pause("a", lease_s=LEASE_S)
    await cluster.worsen_disk("a", DiskQuality(full=True))
    await cluster.resume("a")
    async with asyncio.timeout(LIMIT_S):
        while await outcome() != {"error": "ENOSPC"}:
            pass
    await door(session).heal_all()
    assert await outcome() is None


async def check_aliases(session: Session) -> None:
    """A name that is moved to another node resolves to that node, for clients and for all nodes."""
    env, cluster = session.env, session.cluster

    async def leads(node: str) -> Any:
        """Return the node to which the name leads, for two nodes and the clients."""
        asked = {"do": "resolve", "node": node}
        places = [await tell(env, asker, asked) for asker in ("a", "b")]
        places.append([*env.net.resolve(Address(node, PORT))])
        assert places.count(places[0]) == 3, places
        return places[0]

    for node in ("a", "b"):
        await wait_serving(session, node)
        assert await leads(node) == [node, PORT]
    await cluster.alias("b", "a")
    assert cluster.aliases["b"] == "a"
    assert await leads("b") == ["a", PORT] == await leads("a")
    await door(session).heal_all()
    await cluster.kill("b")
    await cluster.start("b")
    await wait_serving(session, "b")  # `connect` does not resolve names
    assert await leads("b") == ["a", PORT]
    await cluster.kill("b")
    await cluster.pause("a", lease_s=LEASE_S)
    await cluster.alias("b", "b")
    await cluster.start("b")
    await cluster.resume("a")
    await wait_serving(session, "b")
    async with asyncio.timeout(LIMIT_S):
        while await tell(env, "a", {"do": "resolve", "node": "b"}) != ["b", PORT]:
            pass
    assert await leads("b") == ["b", PORT]
    for names in (("c", "a"), ("a", "c"), (CLIENT, "a")):
        with contextlib.suppress(UsageError):
            await cluster.alias(*names)
            raise AssertionError(f"{names} are not both nodes")


async def check_bit_rot(session: Session) -> None:
    """Synced data is read with one wrong bit, even after a restart, until the fault is healed."""
    env, cluster = session.env, session.cluster
    text = "0123456789" * 30

    async def read() -> str:
        await wait_serving(session, "b")
        return str(await tell(env, "b", {"do": "read", "path": "rot"}))

    await wait_serving(session, "b")
    await tell(env, "b", {"do": "append", "path": "rot", "text": text})
    await tell(env, "b", {"do": "sync", "path": "rot"})
    assert await cluster.worsen_disk("b", DiskQuality(bitrot=1.0)) == 0
    rotten = await read()
    flipped = [ord(a) ^ ord(b) for a, b in zip(rotten, text, strict=True) if a != b]
    assert [bits.bit_count() for bits in flipped] == [1]
    at = next(i for i, (a, b) in enumerate(zip(rotten, text, strict=True)) if a != b)
    order = {"do": "read_at", "path": "rot", "offset": at, "size": 1}
    assert await tell(env, "b", order) == rotten[at]
    assert await cluster.worsen_disk("b", DiskQuality(bitrot=1.0)) == 2
    await cluster.kill("b")
    await cluster.start("b")
    assert await read() == rotten
    assert await cluster.worsen_disk("b", DiskQuality()) == 1
    assert await read() == text


async def check_conditions_that_nothing_has(session: Session) -> None:
    """Faults of clocks and disks beyond the limits are refused and have no effect."""
    cluster = session.cluster
    await wait_serving(session, "a")
    for attempt, text in (
        (cluster.skew("a", offset_ns=0, drift_ppm=-900_001), "drift_ppm is -900001"),
        (cluster.skew("a", offset_ns=0, drift_ppm=9_000_001), "drift_ppm is 9000001"),
        (cluster.skew("a", offset_ns=-(10**18) - 1), "offset_ns is -1000000000000000001"),
        (cluster.worsen_disk("a", DiskQuality(error=1.5)), "error is 1.5"),
        (cluster.worsen_disk("a", DiskQuality(delay_ms=-1)), "delay_ms is -1"),
        (cluster.worsen_disk("a", DiskQuality(bitrot=-0.1)), "bitrot is -0.1"),
        (cluster.skew("z", offset_ns=1), "no node"),
        (cluster.worsen_disk("z", DiskQuality()), "no node"),
    ):
        with raising(UsageError, f"it was accepted, although {text}", text):
            await attempt
    await measure_rate(session, 1.0)


async def check_faults_at_events(session: Session) -> None:
    """Between an event and the fault that it triggers, the node does nothing."""
    env, cluster = session.env, session.cluster
    strikes: dict[str, Callable[[], Awaitable[Any]]] = {
        "kill": lambda: cluster.kill("a"),
        "pause": lambda: cluster.pause("a", lease_s=LEASE_S),
        "disk": lambda: cluster.worsen_disk("a", DiskQuality(full=True)),
        "slow": lambda: cluster.slow("a", factor=10.0),
    }
    for verb, strike in strikes.items():
        for attempt in range(5):
            path = f"{verb}/{attempt}"
            struck = asyncio.Event()

            async def spring(
                event: ClusterEvent,
                strike: Callable[[], Awaitable[Any]] = strike,
                struck: asyncio.Event = struck,
            ) -> None:
                if event.data["number"] == 5:
                    await strike()
                    struck.set()

            await cluster.start("a")
            await wait_serving(session, "a")
            remove = cluster.trap("tick", spring)
            await cluster.worsen_disk("a", DiskQuality())
            ticks = env.spawn(outcome_of(env, {"do": "ticks", "path": path, "count": 7}), name=verb)
            async with asyncio.timeout(LIMIT_S):
                await struck.wait()
            await cluster.start("a")
            if verb == "pause":
                await asyncio.sleep(0.1)
                assert not ticks.done()
                await cluster.resume("a")
            outcome = await ticks
            await wait_serving(session, "a")
            written = await tell(env, "a", {"do": "read", "path": path})
            remove()
            await door(session).heal_all()
            expected = (5 if verb in {"kill", "disk"} else 7) * "x"
            late = any(
                "continued after the event" in x for x in await cluster.logs("a", last_lines=50)
            )
            if written == expected or not late:
                break  # otherwise the machine was too busy for the fault to strike in time
        assert written == expected
        assert outcome == {"kill": None, "disk": {"error": "ENOSPC"}}.get(verb, "done")


async def outcome_of(env: Env, order: dict[str, Any]) -> Any:
    """Return the answer of `a`, or `None` if the node ends before it answers."""
    try:
        return await tell(env, "a", order)
    except ConnectionResetError:
        return None


async def check_randomness(session: Session) -> None:
    """Every node has a separate stream of random numbers."""
    for node in ("a", "b"):
        await wait_serving(session, node)
    first = await tell(session.env, "a", {"do": "random"})
    assert first != await tell(session.env, "b", {"do": "random"})


CALM: tuple[Check, ...] = (
    check_node_to_node,
    check_disk,
    check_frames,
    check_orderly_end,
    check_refused,
    check_pages,
    check_frame_limit,
    check_pause,
    check_cut,
    check_single_clients,
    check_cut_stalls_connections,
    check_overlapping_cuts,
    check_leases_and_heal_all,
    check_link_quality,
    check_streams,
    check_clocks,
    check_clock_drift,
    check_slow_processor,
    check_bad_disk,
    check_conditions_that_nothing_has,
    check_randomness,
)
RESTARTING: tuple[Check, ...] = (
    check_kill_and_restart,
    check_clocks_outlast_nodes,
    check_bad_disks_outlast_nodes,
    check_aliases,
    check_bit_rot,
    check_power_cut,
    check_pages_of_the_dead,
    check_faults_at_events,
    check_graceful_stop,
    check_a_bad_disk_that_ends_a_node,
    check_panic,
)
CHECKS = CALM + RESTARTING


def in_turn(checks: tuple[Check, ...]) -> Check:
    """Return one check that runs `checks` in turn, each with all nodes up and without faults."""

    async def main(session: Session) -> None:
        for check in checks:
            await door(session).heal_all()
            for node in session.cluster.nodes:
                await session.cluster.start(node)
            try:
                await check(session)
            except BaseException as error:
                error.add_note(f"in {check.__name__}")
                raise

    return main
