"""A driver to be killed: `python -m tests.docker.driver RUN_ID` breaks its cluster and waits."""

import asyncio
import sys

from harness.cluster import Link, LinkQuality, StreamQuality
from harness.environments.docker import DockerEnvironment
from tests.docker.support import echo_nodes, plan_of, wait_answering


async def main(session) -> None:
    await wait_answering(session, "n1", "n2")
    await session.cluster.cut([Link("n1", "n2")], lease_s=600)
    slow = LinkQuality(delay_ms=5000)
    await session.cluster.shape([Link("n2", "n1")], slow, lease_s=600)
    slices = StreamQuality(slice_bytes=1)
    await session.cluster.shape([Link("n1", "n2")], slices, lease_s=600)
    await session.cluster.pause("n2", lease_s=600)
    print("broken", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    DockerEnvironment().execute(plan_of(echo_nodes(2), run_id=sys.argv[1]), main)
