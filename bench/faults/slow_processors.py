"""Slow-down of nodes under the fault `cpu`, among processes.

`python -m bench.faults.slow_processors [FACTOR ...]` deploys a node on `Env`, a foreign program,
and one whose child computes in a session of its own, one after the other. Of each it prints how
long a second on a processor takes before, during and after a fault of each factor. Run it where a
core is idle: there it takes one second, `factor` seconds, and one again.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any, Final

from bench.measure import machine
from harness.cluster import NodeSpec
from harness.env import Env
from harness.environments import procfs
from harness.environments.process import ProcessEnvironment
from harness.plugins import DeploymentPlan, Session

FACTORS: Final = (2.0, 10.0, 100.0)
MEASURE_S: Final = 5.0
SETTLE_S: Final = 1.0
SPIN: Final = "while :; do :; done"


async def computing(_env: Env, _config: dict[str, Any]) -> None:
    """A node that never waits for anything."""
    while True:
        sum(range(100_000))
        await asyncio.sleep(0)


NODES: Final = {
    "node on Env": NodeSpec(
        name="n", role="n", ports=(), entry="bench.faults.slow_processors:computing"
    ),
    "foreign program": NodeSpec(name="n", role="n", ports=(), command=("sh", "-c", SPIN)),
    "its child": NodeSpec(
        name="n", role="n", ports=(), command=("sh", "-c", f"setsid sh -c '{SPIN}' & wait")
    ),
}


def main(factors: list[float]) -> None:
    """Print the table."""
    print(f"{machine()}; seconds for one of computing")
    print(f"{'':18}{'factor':>8}{'before':>9}{'during':>9}{'after':>9}", flush=True)
    for what, spec in NODES.items():
        ProcessEnvironment().execute(_plan(spec), lambda s, what=what: _measure(s, what, factors))


def _plan(spec: NodeSpec) -> DeploymentPlan:
    return DeploymentPlan(
        run_id=f"bench-{os.getpid()}", nodes=(spec,), seed=1, knobs={}, folder=None
    )


async def _measure(session: Session, what: str, factors: list[float]) -> None:
    pid = session.cluster._nodes["n"].pid
    for factor in factors:
        before = await _took(pid)
        await session.cluster.slow("n", factor=factor)
        during = await _took(pid)
        await session.cluster.slow("n", factor=1.0)
        after = await _took(pid)
        print(f"{what:18}{factor:8g}{before:9.2f}{during:9.2f}{after:9.2f}", flush=True)


async def _took(pid: int) -> float:
    """The time in which a node and its children get one second of processor time."""
    await asyncio.sleep(SETTLE_S)
    begin_s, computed_s = time.monotonic(), procfs.computed_s(procfs.family(pid))
    await asyncio.sleep(MEASURE_S)
    took_s = time.monotonic() - begin_s
    return took_s / (procfs.computed_s(procfs.family(pid)) - computed_s)


if __name__ == "__main__":
    main([float(word) for word in sys.argv[1:]] or list(FACTORS))
