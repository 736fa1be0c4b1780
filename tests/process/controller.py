"""A driver in a process of its own, to be frozen and killed: prints the run's state, then waits."""

from __future__ import annotations

import asyncio
import sys

from harness.cluster import CLIENT, Link
from harness.env import Address
from harness.environments.process import ProcessEnvironment
from harness.plugins import DeploymentPlan
from tests.process.conftest import Driver, echo_spec


def main() -> None:
    run_id, lease_s, link_proxy = sys.argv[1], float(sys.argv[2]), sys.argv[3]

    async def body(session):
        driver = Driver(session)
        await driver.wait_ready()
        await driver.cluster.pause("a", lease_s=lease_s)
        await driver.cluster.cut([Link(CLIENT, "b")], lease_s=lease_s)
        host, port = session.env.endpoint(Address("b", 7000))
        print(f"{host} {port}", flush=True)
        await asyncio.Event().wait()

    plan = DeploymentPlan(
        run_id=run_id,
        nodes=(echo_spec("a"), echo_spec("b")),
        seed=1,
        knobs={},
        folder=None,
        link_proxy=None if link_proxy == "-" else link_proxy,
    )
    ProcessEnvironment().execute(plan, body)


if __name__ == "__main__":
    main()
