"""Foreign programs as nodes can be killed, paused and cut off like any other node."""

import asyncio
import os
import sys
import urllib.request
from pathlib import Path

import pytest

from harness.cluster import CLIENT, DiskQuality, Link, NodeSpec
from harness.env import Address
from harness.environments import procfs
from harness.environments.process.addresses import fill
from harness.errors import UsageError
from tests.faults.door import door
from tests.process.conftest import shell
from tests.support.waiting import LIMIT_S, until

pytestmark = pytest.mark.process

PORT = 8080


def register(name: str, peer: str) -> NodeSpec:
    return NodeSpec(
        name=name,
        role="register",
        ports=(PORT,),
        command=(
            *(sys.executable, "{package:tests}/tests/process/foreign.py", "{name}"),
            *("{host}", f"{{port:{PORT}}}", f"{{peer:{peer}:{PORT}}}", "{data}"),
        ),
        environment={"WHERE": "{data}"},
    )


class Web:
    def __init__(self, driver):
        self.env = driver.session.env

    async def __call__(
        self, node: str, path: str = "/", body: bytes | None = None, timeout_s: float = LIMIT_S
    ) -> str:
        host, port = self.env.endpoint(Address(node, PORT))
        request = urllib.request.Request(
            f"http://{host}:{port}{path}", body, method="PUT" if body else "GET"
        )

        def fetch() -> str:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return answer.read().decode()

        return await asyncio.to_thread(fetch)

    async def wait_up(self, node: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    await self(node)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    return


def test_a_foreign_program_is_deployed_and_broken(run):
    async def body(driver):
        web, cluster = Web(driver), driver.cluster
        await web.wait_up("x")
        await web.wait_up("y")
        await web("y", body=b"42")
        assert await web("x", f"/peer/{LIMIT_S}") == "y=42"

        with pytest.raises(UsageError, match="a clock fault cannot reach x: this foreign program"):
            await cluster.skew("x", offset_ns=1)
        with pytest.raises(UsageError, match="a disk fault cannot reach y: a foreign program"):
            await cluster.worsen_disk("y", DiskQuality(full=True))

        fault = await door(driver).cut([Link("x", "y")])
        for _ in range(3):  # a single request may be sent too late, so the test tries three
            with pytest.raises(OSError, match=r"timed out|500|closed|reset"):
                await web("x", "/peer/0.5")
        assert (await door(driver).heal(fault)).count > 0
        assert await web("x", f"/peer/{LIMIT_S}") == "y=42"

        await cluster.pause("y", lease_s=600)
        with pytest.raises(OSError, match="timed out"):
            await web("y", timeout_s=1)
        await cluster.resume("y")
        assert await web("y") == "y=42"

        await cluster.kill("y")
        with pytest.raises(OSError, match=r"reset|closed|refused"):
            await web("y")
        await cluster.start("y")
        await web.wait_up("y")
        assert await web("y") == "y=42"  # the restarted node has the same disk and the same port
        assert "serving" in await cluster.logs("y")
        fault = await door(driver).cut([Link(CLIENT, "y")])
        with pytest.raises(OSError, match="timed out"):
            await web("y", timeout_s=1)
        await door(driver).heal(fault)

    run(body, [register("x", "y"), register("y", "x")], wait=False)


def test_children_of_a_foreign_program_die_with_it(run):
    async def body(driver):
        await asyncio.sleep(0.2)
        assert await driver.cluster.kill("sh")

    # the fixture checks that no process remains
    run(body, [shell("sh", "sleep 1000 & sleep 1000; true")], wait=False)


def test_children_of_a_program_that_ends_by_itself_end_with_it(run):
    async def body(driver):
        await driver.wait_event("node-exited", "sh")
        await until(lambda: not marked())

    def marked() -> list[int]:
        return [
            process.pid
            for process in procfs.all_processes()
            if procfs.environment_of(process.pid).get("ORPHAN") == mark and procfs.is_alive(process)
        ]

    mark = f"test-{os.getpid()}"
    run(body, [shell("sh", "sleep 1000 & exit 0", environment={"ORPHAN": mark})], wait=False)


def test_the_exit_of_a_foreign_program_is_reported(run):
    async def body(driver):
        exited = await driver.wait_event("node-exited", "sh")
        assert (exited.data["code"], exited.data["expected"]) == (3, False)
        assert exited.data["log"] == ["bye"]

    run(body, [shell("sh", "echo bye; exit 3")], wait=False)


def test_placeholders():
    spec = NodeSpec(name="x", role="r", ports=(1,))
    places = {
        "data": Path("/d"),
        "files": Path("/f"),
        "listen": {"1": ("127.0.0.1", 11)},
        "connect": {"y:2": ("127.0.0.1", 22)},
        "addresses": {"y:2": ("127.9.8.7", 2)},
    }

    text = 'a={host}:{port:1} {peer:y:2} {data} {files} {name} {"json": {}} ${HOME} {}'
    expected = 'a=127.0.0.1:11 127.0.0.1:22 /d /f x {"json": {}} ${HOME} {}'
    assert fill(text, spec, **places) == expected
    assert fill("{address:y:2} {host:y}:7", spec, **places) == "127.9.8.7:2 127.9.8.7:7"
    root = str(Path(__file__).parents[2])
    assert fill("{package:tests}", spec, **places) == root
    assert fill("{package:tests.process.foreign}", spec, **places) == f"{root}/tests/process"
    unknown = ("{port:2}", "{peer:z:1}", "{prot:1}", "{package:no_such_thing}")
    for wrong in (*unknown, "{address:y:3}", "{host:1}", "{host:z}"):
        with pytest.raises(UsageError, match=wrong.split(":")[0]):
            fill(wrong, spec, **places)
