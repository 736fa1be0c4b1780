"""How many simulated seconds of the bundled target a CPU second buys.

The set-up of the project's goal: 3 masters, 3 tablet servers, 3 tablets, 10 operations a second,
no faults. CPU time is `time.process_time`, so a busy machine changes little. Run it with
`python -m bench.kudu_simulation [--seconds N] [--profile]`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass
from typing import Any

from bench.measure import machine, profiled
from harness.ops import OpType
from harness.plugins import Deployment, DeploymentPlan, Request, Session, System, TargetSettings
from harness.registry import load_plugin
from targets.kudu import KuduTarget

TABLES = 3
RATE = 10.0
CLIENTS = 8
GOAL = 200


@dataclass
class Measured:
    """What one run of the world brought."""

    cpu_s: float = 0.0
    simulated_s: float = 0.0
    ok: int = 0
    not_ok: int = 0

    @property
    def speed(self) -> float:
        """Simulated seconds a CPU second."""
        return self.simulated_s / self.cpu_s


def requests(count: int) -> Request:
    """A mix of DDL and reads that keeps the number of tablets."""
    name = f"t{count % TABLES}"
    kind = count % 10
    if kind < 3:
        return Request("alter", {"name": name, "nonce": f"n{count}", "steps": _steps(count)})
    if kind < 7:
        return Request("get", {"name": name})
    if kind < 8:
        return Request("list", {})
    return Request("locate", {"name": name})


def _steps(count: int) -> list[list[str]]:
    return [["add", f"c{count}"], ["drop", f"c{count}"]]


def measure(seed: int, seconds: float) -> Measured:
    target = KuduTarget()
    settings = TargetSettings(
        profile="strict",
        bugs=(),
        options={option.name.replace("-", "_"): option.default for option in target.options}
        | {"masters": 3, "tservers": 3},
    )
    measured = Measured()

    async def settle(system: System) -> None:
        while not (await system.ready()).ok:  # noqa: ASYNC110 - a remote fact
            await asyncio.sleep(0.1)
        client = system.client(0)
        for number in range(TABLES):
            value = {
                "name": f"t{number}",
                "nonce": f"create-{number}",
                "columns": ["v"],
                "partitions": 1,
                "replicas": 3,
            }
            completion = await client.invoke(Request("create", value), timeout_s=30)
            assert completion.type is OpType.OK, completion
        while not (await system.converged()).ok:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)

    async def main(session: Session) -> None:
        system = target.open(Deployment(session.env, settings, session.cluster.nodes))
        await settle(system)
        clients = [system.client(1 + n) for n in range(CLIENTS)]

        async def work(client: Any, first: int) -> None:
            count = first
            while True:
                completion = await client.invoke(requests(count), timeout_s=5)
                measured.ok += completion.type is OpType.OK
                measured.not_ok += completion.type is not OpType.OK
                count += CLIENTS
                await asyncio.sleep(CLIENTS / RATE)

        start_ns, start_cpu = session.env.clock.monotonic_ns(), time.process_time()
        tasks = [asyncio.create_task(work(c, n)) for n, c in enumerate(clients)]
        await asyncio.sleep(seconds)
        measured.cpu_s = time.process_time() - start_cpu
        measured.simulated_s = (session.env.clock.monotonic_ns() - start_ns) / 1e9
        for task in tasks:
            task.cancel()

    plan = DeploymentPlan(
        run_id=f"bench-{seed}",
        nodes=tuple(target.nodes(settings)),
        seed=seed,
        knobs={},
        folder=None,
    )
    load_plugin("environments", "sim").execute(plan, main)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="simulated seconds a run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    arguments = parser.parse_args()
    with profiled(arguments.profile):
        runs = [measure(seed, arguments.seconds) for seed in range(arguments.runs)]
    for seed, run in enumerate(runs):
        print(
            f"seed {seed}: {run.simulated_s:.0f} simulated s in {run.cpu_s:.2f} CPU s = "
            f"{run.speed:.0f} a CPU s; {run.ok / run.simulated_s:.1f} op/s ok, {run.not_ok} not ok"
        )
    median = statistics.median(run.speed for run in runs)
    print(f"median {median:.0f} simulated s a CPU s (goal {GOAL}) on one core of {machine()}")


if __name__ == "__main__":
    main()
