"""A driver in a separate process, which tests freeze and kill.

It prints the run's state and waits. Arguments: the run's id, the duration of its faults, a
Toxiproxy or `-`, and optionally `slow`, which adds a node that computes and is slowed down.
"""

import asyncio
import sys

from harness.cluster import CLIENT, Link, NodeSpec
from harness.env import Address
from harness.environments.process import ProcessEnvironment
from harness.plugins import DeploymentPlan
from tests.faults.door import door
from tests.process.conftest import Driver, echo_spec

SPINNER = NodeSpec(
    name="s", role="spinner", ports=(1,), command=("sh", "-c", "while :; do :; done")
)


def main() -> None:
    run_id, lease_s, link_proxy = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    slow = [SPINNER] if "slow" in sys.argv else []

    async def body(session):
        driver = Driver(session)
        await driver.wait_ready()
        for spec in slow:
            await driver.cluster.slow(spec.name, factor=100.0)
        await driver.cluster.pause("a", lease_s=lease_s)
        await door(driver).cut([Link(CLIENT, "b")], lease_s=lease_s)
        host, port = session.env.endpoint(Address("b", 7000))
        print(f"{host} {port}", flush=True)
        await asyncio.Event().wait()

    plan = DeploymentPlan(
        run_id=run_id,
        nodes=(echo_spec("a"), echo_spec("b"), *slow),
        seed=1,
        knobs={},
        folder=None,
        link_proxy=None if link_proxy == "-" else link_proxy,
    )
    ProcessEnvironment().execute(plan, body)


if __name__ == "__main__":
    main()
