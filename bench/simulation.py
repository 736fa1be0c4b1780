"""Speed of the simulation, per CPU second: `python -m bench.simulation [--profile]`.

The kernel alone, on nodes that do nothing but talk; cost grows with events, so the number to
watch is events per CPU-second. Run it on an idle machine and state the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from bench.measure import best_s, machine, profiled
from harness.cluster import NodeSpec
from harness.env import Address, Conn, Env
from harness.environments.sim import SimEnvironment
from harness.plugins import DeploymentPlan, Session

PORT = 7000
CALLS = 50_000


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


async def _serve(conn: Conn) -> None:
    while (frame := await conn.recv()) is not None:
        await conn.send(frame)


async def server(env: Env, config: dict[str, Any]) -> None:
    """Answers every frame with itself."""
    del config
    await env.net.listen(PORT, _serve)
    await _forever()


async def _call_forever(env: Env, node: str, pause_s: float) -> None:
    conn = await env.net.connect(Address(node, PORT))
    while True:
        async with asyncio.timeout(5):
            await conn.send(b"x" * 100)
            await conn.recv()
        env.event("called")
        if pause_s:
            await asyncio.sleep(pause_s)


async def peer(env: Env, config: dict[str, Any]) -> None:
    """Serves, and calls every peer again and again."""
    await env.net.listen(PORT, _serve)
    await asyncio.sleep(0.1)
    for node in config["peers"]:
        if node != env.name:
            env.spawn(_call_forever(env, node, config["pause_s"]), name=f"call-{node}")
    await _forever()


async def sleeper(env: Env, config: dict[str, Any]) -> None:
    """Does nothing but wait for short times."""
    while True:  # noqa: ASYNC110 (timers are measured)
        await asyncio.sleep(env.random.random() * config["pause_s"])


def _plan(entry: str, count: int, **config: Any) -> DeploymentPlan:
    names = [f"n{i}" for i in range(count)]
    nodes = tuple(
        NodeSpec(
            name=name,
            role="node",
            ports=(PORT,),
            entry=f"bench.simulation:{entry}",
            config={"peers": names, **config},
        )
        for name in names
    )
    return DeploymentPlan(run_id="bench", nodes=nodes, seed=1, knobs={}, folder=None)


def measure(
    title: str,
    plan: DeploymentPlan,
    virtual_s: float,
    main: Callable[[Session], Coroutine[Any, Any, int]] | None = None,
) -> None:
    """Run a world for a while and print what a CPU-second was good for."""
    events = 0

    async def wait(session: Any) -> int:
        nonlocal events
        calls = 0
        if main is None:
            await asyncio.sleep(virtual_s)
        else:
            calls = await main(session)
        events = session.events
        return calls

    start = time.process_time()
    calls = SimEnvironment().execute(plan, wait)
    took_s = time.process_time() - start
    rate = f", {calls / took_s:,.0f} calls" if calls else ""
    per = f"{virtual_s / took_s:,.0f} simulated s, " if virtual_s else ""
    print(f"{title}: {per}{events / took_s:,.0f} events{rate} per CPU-s ({events:,} events)")


async def _sequential_calls(session: Session) -> int:
    conn = await session.env.net.connect(Address("n0", PORT))
    for _ in range(CALLS):
        await conn.send(b"x" * 100)
        await conn.recv()
    return CALLS


def rpc_s() -> float:
    """CPU seconds of one call: the best of three runs."""
    plan, environment = _plan("server", 1), SimEnvironment()
    return best_s(lambda: environment.execute(plan, _sequential_calls), 3) / CALLS


async def _calls_with_timeout(session: Session) -> int:
    conn = await session.env.net.connect(Address("n0", PORT))
    for _ in range(CALLS):
        async with asyncio.timeout(5):
            await conn.send(b"x" * 100)
            await conn.recv()
    return CALLS


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    arguments = parser.parse_args()
    print(machine())
    with profiled(arguments.profile):
        measure("sequential RPC", _plan("server", 1), 0, _sequential_calls)
        measure("sequential RPC with a timeout", _plan("server", 1), 0, _calls_with_timeout)
        measure("6 nodes calling one another", _plan("peer", 6, pause_s=0.0), 5)
        measure("6 nodes, calls every 0.5 s", _plan("peer", 6, pause_s=0.5), 1000)
        measure("20 nodes sleeping", _plan("sleeper", 20, pause_s=0.1), 200)


if __name__ == "__main__":
    main()
