"""Cuts links and waits until a test kills it: `python -m tests.docker.driver RUN_ID`."""

import asyncio
import sys

from harness.cluster import Link, LinkQuality, StreamQuality
from harness.environments.docker import DockerEnvironment
from tests.docker.support import echo_nodes, plan_of, wait_answering
from tests.faults.door import door


async def main(session) -> None:
    await wait_answering(session, "n1", "n2")
    await door(session).cut([Link("n1", "n2")])
    slow = LinkQuality(delay_ms=5000)
    await door(session).shape([Link("n2", "n1")], slow)
    slices = StreamQuality(slice_bytes=1)
    await door(session).shape([Link("n1", "n2")], slices)
    await session.cluster.pause("n2", lease_s=600)
    print("broken", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    DockerEnvironment().execute(plan_of(echo_nodes(2), run_id=sys.argv[1]), main)
