"""Measures how many seconds of the bundled target one CPU second simulates.

The cluster is the one for which the project has a goal: 3 masters, 3 tablet servers, 3 tablets, 10
operations per second on the catalog, and no faults. With `--rows` it has 3 masters, 5 tablet
servers, 20 tablets, and 50 operations per second on rows. CPU time is `time.process_time`, so other
load on the machine changes little. Run it with `python -m bench.targets.kudu_simulation [--rows]
[--seconds N] [--profile]`.

The last line is the cost of the whole run per RPC, divided by the cost of a bare RPC in the
simulation's kernel. This ratio depends little on the machine and its load.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from bench.measure import best_s, machine, profiled
from harness.cluster import NodeSpec
from harness.env import Address, Conn, Env
from harness.ops import OpType
from harness.plugins import Deployment, DeploymentPlan, Request, Session, System, TargetSettings
from harness.plugins.options import default_values
from harness.registry import load_plugin
from targets.kudu import KuduTarget
from targets.kudu.rpc import client as rpc_client

GOAL: Final = 200
KEYS: Final = 1000
ECHO_PORT: Final = 7000
ECHO_CALLS: Final = 50_000


@dataclass(frozen=True)
class Load:
    """A cluster with tables, and its load: clients send `request(count)`, `rate` per second."""

    tservers: int
    tables: int
    partitions: int
    rate: float
    clients: int
    request: Callable[[int], Request]
    flags: str = ""


def ddl_request(count: int, *, tables: int) -> Request:
    """Return request number `count` of a mix of DDL and reads that keeps the number of tablets."""
    name = f"t{count % tables}"
    kind = count % 10
    if kind < 3:
        return alter_request(name, count)
    if kind < 7:
        return Request("get", {"name": name})
    if kind < 8:
        return Request("list", {})
    return Request("locate", {"name": name})


def alter_request(name: str, count: int) -> Request:
    """Return a request to add a column and drop it again, in one alter."""
    steps = [["add", f"c{count}"], ["drop", f"c{count}"]]
    return Request("alter", {"name": name, "nonce": f"n{count}", "steps": steps})


def row_request(count: int, *, tables: int) -> Request:
    """Return request number `count` of a mix of writes, reads and scans over a fixed set of keys.

    Some writes are deletes, so a few keys are absent.
    """
    name, key = f"t{count % tables}", f"k{count * 7919 % KEYS:03}"
    kind = count // tables % 10
    if kind == 0:
        scan = {"table": name, "mode": "snapshot", "replica": "any", "start": key, "end": f"{key}~"}
        return Request("scan", scan)
    if kind < 5:
        return Request("read", {"table": name, "key": key})
    verb = "delete" if count % 97 == 0 else "upsert"
    cells = {} if verb == "delete" else {"v": f"value {count}"}
    return Request("write", {"table": name, "nonce": f"w{count}", "rows": [[verb, key, cells]]})


CATALOG: Final = Load(3, 3, 1, 10.0, 8, lambda count: ddl_request(count, tables=3))
ROWS: Final = Load(5, 5, 4, 50.0, 16, lambda count: row_request(count, tables=5))


@dataclass
class Measured:
    """Measurements of one simulated run."""

    cpu_s: float = 0.0
    simulated_s: float = 0.0
    ok: int = 0
    not_ok: int = 0
    rpcs: int = 0

    @property
    def speed(self) -> float:
        """The number of simulated seconds per CPU second."""
        return self.simulated_s / self.cpu_s


async def _settle(system: System, load: Load) -> None:
    while not (await system.ready()).ok:  # noqa: ASYNC110 - a remote fact
        await asyncio.sleep(0.1)
    client = system.client(0)
    for number in range(load.tables):
        value = {
            "name": f"t{number}",
            "nonce": f"create-{number}",
            "columns": ["v"],
            "partitions": load.partitions,
            "replicas": 3,
        }
        completion = await client.invoke(Request("create", value), timeout_s=30)
        assert completion.type is OpType.OK, completion
    while not (await system.converged()).ok:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.1)


async def _load(system: System, load: Load, measured: Measured) -> None:
    loop = asyncio.get_running_loop()

    async def work(client: Any, first: int) -> None:
        count = first
        for due_s in itertools.count(loop.time() + first / load.rate, load.clients / load.rate):
            await asyncio.sleep(due_s - loop.time())
            completion = await client.invoke(load.request(count), timeout_s=5)
            measured.ok += completion.type is OpType.OK
            measured.not_ok += completion.type is not OpType.OK
            count += load.clients

    clients = [system.client(1 + n) for n in range(load.clients)]
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(work(client, number))


async def echo(env: Env, config: dict[str, Any]) -> None:
    """A node that sends every frame back."""
    del config

    async def serve(conn: Conn) -> None:
        while (frame := await conn.recv()) is not None:
            await conn.send(frame)

    await env.net.listen(ECHO_PORT, serve)
    await asyncio.get_running_loop().create_future()


def rpc_s() -> float:
    """Return the CPU seconds of a bare RPC in the simulation's kernel, the best of three runs."""
    spec = NodeSpec(
        name="n0", role="node", ports=(ECHO_PORT,), entry="bench.targets.kudu_simulation:echo"
    )
    plan = DeploymentPlan(run_id="bench", nodes=(spec,), seed=1, knobs={}, folder=None)
    environment = load_plugin("environments", "sim")

    async def call(session: Session) -> None:
        conn = await session.env.net.connect(Address("n0", ECHO_PORT))
        for _ in range(ECHO_CALLS):
            await conn.send(b"x" * 100)
            await conn.recv()

    return best_s(lambda: environment.execute(plan, call), 3) / ECHO_CALLS


def run(load: Load, seed: int, body: Callable[[Session, Measured], Awaitable[None]]) -> Measured:
    """Measure the load while `body` runs. The cost of `body` itself is included."""
    target = KuduTarget()
    defaults = default_values(target.options)
    settings = TargetSettings(
        profile="strict",
        bugs=(),
        options=defaults | {"tservers": load.tservers, "kudu_flag": load.flags},
    )
    measured = Measured()
    request_frame = rpc_client.request_frame

    def counted(*request: Any) -> bytes:
        measured.rpcs += 1
        return request_frame(*request)

    async def main(session: Session) -> None:
        system = target.open(Deployment(session.env, settings, session.cluster.nodes))
        await _settle(system, load)
        measured.rpcs = 0
        start_ns, start_cpu = session.env.clock.monotonic_ns(), time.process_time()
        task = asyncio.create_task(_load(system, load, measured))
        await body(session, measured)
        measured.cpu_s = time.process_time() - start_cpu
        measured.simulated_s = (session.env.clock.monotonic_ns() - start_ns) / 1e9
        task.cancel()

    plan = DeploymentPlan(
        run_id=f"bench-{seed}",
        nodes=tuple(target.nodes(settings)),
        seed=seed,
        knobs={},
        folder=None,
    )
    with mock.patch.object(rpc_client, "request_frame", counted):
        load_plugin("environments", "sim").execute(plan, main)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", action="store_true", help="measure operations on rows instead of the catalog"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="simulated seconds per run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    with profiled(options.profile):
        runs = [
            run(ROWS if options.rows else CATALOG, seed, lambda *_: asyncio.sleep(options.seconds))
            for seed in range(options.runs)
        ]
    for seed, measured in enumerate(runs):
        print(
            f"seed {seed}: {measured.simulated_s:.0f} simulated s in {measured.cpu_s:.2f} CPU s = "
            f"{measured.speed:.0f} s per CPU second; "
            f"{measured.ok / measured.simulated_s:.1f} op/s ok, {measured.not_ok} not ok"
        )
    median = statistics.median(measured.speed for measured in runs)
    goal = "" if options.rows else f" (goal {GOAL})"
    print(f"median {median:.0f} simulated s per CPU second{goal} on one core of {machine()}")
    if not options.profile:
        target_us = 1e6 * min(measured.cpu_s / measured.rpcs for measured in runs)
        kernel_us = 1e6 * rpc_s()
        print(
            f"the whole run cost {target_us:.1f} us per RPC; a bare RPC in the simulation's kernel "
            f"costs {kernel_us:.1f} us; ratio {target_us / kernel_us:.1f}"
        )


if __name__ == "__main__":
    main()
