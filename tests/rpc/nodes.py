"""A node that serves a few methods, for tests of the RPC layer in the simulation."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from harness.cluster import NodeSpec
from harness.env import Conn, Env
from harness.plugins import Session
from targets.kudu.rpc import Answer, Call, R_co, RpcHandlerError, RpcServer
from targets.kudu.rpc.wire import answer_frame
from tests.sim.toy import run

PORT = 7000
T = TypeVar("T")


class Pong(msgspec.Struct, array_like=True, frozen=True):
    number: int
    text: str = ""


class Ping(Call[R_co], frozen=True):
    service = "Test"
    number: int
    wait_s: float = 0.0


class Echo(Ping[Pong], frozen=True): ...


class Slow(Ping[Pong], frozen=True): ...


class Later(Ping[Pong], frozen=True): ...


class Refuse(Ping[Pong], frozen=True): ...


class BreakDown(Ping[Pong], frozen=True): ...


class Count(Ping[Pong], frozen=True): ...


class Nothing(Ping[Pong], frozen=True): ...


class Odd(Call[Pong], frozen=True):
    """A request of the method `Echo` that the server cannot decode."""

    text: str
    service = "Test"


Odd.method = Echo.method


class OtherCall(Call[R_co], frozen=True):
    service = "Other"
    number: int
    wait_s: float = 0.0


class SlowRequest(OtherCall[Pong], frozen=True): ...


async def server(env: Env, config: dict[str, Any]) -> None:
    calls: dict[int, int] = {}

    def echo(request: Echo, peer: str) -> Pong:
        calls[request.number] = calls.get(request.number, 0) + 1
        return Pong(request.number, f"{env.name} to {peer}")

    async def slow(request: Slow, peer: str) -> Pong:
        await asyncio.sleep(request.wait_s)
        return Pong(request.number)

    async def refuse(request: Refuse, peer: str) -> Pong:
        raise RpcHandlerError("no, thank you")

    async def break_down(request: BreakDown, peer: str) -> Pong:
        raise KeyError("a bug")

    def later(request: Later, peer: str) -> Answer:
        """Answer without a task: at once, after a wait, twice, or with an error."""
        answer = Answer()
        outcome = Pong(request.number) if request.number >= 0 else RpcHandlerError("no, thank you")
        if request.wait_s:
            asyncio.get_running_loop().call_later(request.wait_s, answer.set, outcome)
            asyncio.get_running_loop().call_later(request.wait_s, answer.set, Pong(-1))
        else:
            answer.set(outcome)
        return answer

    def count(request: Count, peer: str) -> Pong:
        return Pong(calls.get(request.number, 0))

    rpc = RpcServer(env, PORT, calls_in_flight_max=config.get("calls_in_flight_max", 256))
    for handler in (echo, slow, later, refuse, break_down, count):
        rpc.serve(handler)
    rpc.serve(slow, SlowRequest)
    await rpc.start()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        rpc.close()


async def stranger(env: Env, config: dict[str, Any]) -> None:
    """Run a node that listens but speaks another protocol."""
    await env.net.listen(PORT, lambda conn: conn.send(b"\xc1 not msgpack"))
    await asyncio.get_running_loop().create_future()


async def parrot(env: Env, config: dict[str, Any]) -> None:
    """Run a node that answers the first call correctly, then sends `answer` (hex) or echoes."""

    async def serve(conn: Conn) -> None:
        first = await conn.recv()
        assert first is not None
        await conn.send(answer_frame(1, Pong(1)))
        while (frame := await conn.recv()) is not None:
            await conn.send(bytes.fromhex(config["answer"]) or frame)

    await env.net.listen(PORT, serve)
    await asyncio.get_running_loop().create_future()


def spec(name: str, entry: str = "server", **config: Any) -> NodeSpec:
    entry = f"tests.rpc.nodes:{entry}"
    return NodeSpec(name=name, role="node", ports=(PORT,), entry=entry, config=config)


def simulate(
    main: Callable[[Session], Coroutine[Any, Any, T]], *nodes: NodeSpec, **options: Any
) -> T:
    return run(main, nodes or (spec("n1"),), **options)
