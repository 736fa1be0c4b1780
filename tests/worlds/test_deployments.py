"""Every part of a node's declaration works in processes and in Docker."""

import asyncio
import secrets
import sys
import urllib.request

import pytest

from harness.cluster import (
    BASE,
    NodeSpec,
    ReadyCommand,
    ReadyHttp,
    ReadyLog,
    ReadyPort,
    Variant,
)
from harness.env import Address
from harness.errors import TargetError, UsageError
from harness.plugins import DeploymentPlan
from harness.registry import load_plugin
from tests.support.waiting import LIMIT_S
from tests.worlds.conftest import WORLDS

PORT = 8080
SERVE = "{package:tests}/tests/worlds/image/serve.py"
pytestmark = pytest.mark.parametrize("environment", WORLDS[1:], indirect=True)


def server(name, *arguments, **fields):
    command = (sys.executable, SERVE, "{host}", f"{{port:{PORT}}}", *arguments)
    return NodeSpec(**({"role": "web", "ports": (PORT,), "command": command} | fields), name=name)


def execute(environment, nodes, main):
    plan = DeploymentPlan(
        run_id=f"worlds-{secrets.token_hex(4)}", nodes=tuple(nodes), seed=1, knobs={}, folder=None
    )
    return environment.execute(plan, main)


async def nothing(session):
    raise AssertionError("nothing may come up")


async def get(session, node, path):
    host, port = session.env.endpoint(Address(node, PORT))

    def fetch():
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=LIMIT_S) as answer:
            return answer.read().decode()

    async with asyncio.timeout(LIMIT_S):
        while True:  # not every probe here waits until the node serves
            try:
                return await asyncio.to_thread(fetch)
            except OSError:
                await asyncio.sleep(0.05)


def test_set_up_files_order_and_readiness(environment):
    first = server(
        "first",
        after=("last",),
        ready=ReadyHttp(PORT, "/made", LIMIT_S),
        setup=(("touch", "{data}/made"),),
    )
    last = server(
        "last",
        ready=ReadyCommand(("grep", "-q", "last", "{files}/conf/own"), LIMIT_S),
        files={"conf/own": 'I am {name}, {"at": {}} {port:8080}\n'},
        setup=(
            ("sh", "-c", "cat {files}/conf/own; echo $MODE >> {data}/made"),
            ("cp", "{files}/conf/own", "{data}/own"),
        ),
        environment={"MODE": "{name}-mode"},
    )

    async def main(session):
        cluster = session.cluster
        events = []
        cluster.subscribe(lambda event: events.append((event.node, event.kind, event.data)))
        seen = [await get(session, "last", path) for path in ("/made", "/own")]
        seen.append(await get(session, "first", "/made"))
        log = await cluster.logs("last")
        for wipe in (False, True):
            await cluster.kill("last")
            if wipe:
                await cluster.wipe("last")
            await cluster.start("last")
            assert await cluster.wait_ready("last") is None
            seen.append(await get(session, "last", "/made"))
        logs = await cluster.logs("last")
        await cluster.kill("last")
        return seen, log, logs, events, await cluster.wait_ready("last")

    seen, log, logs, events, reason = execute(environment, [first, last], main)
    real = log[0].rpartition(" ")[2]
    text = f'I am last, {{"at": {{}}}} {real}\n'
    assert seen == ["last-mode\n", text, "", "last-mode\n", "last-mode\n"]
    assert log[0] == text.strip()
    started = [node for node, kind, _ in events if kind == "node-started"]
    assert started == ["last", "first", "last", "last"]
    # the set-up printed the line only at the first start and after the wipe
    assert sum(line == log[0] for line in logs) == 2
    assert "ended before it was ready" in reason


def test_a_node_comes_back_as_another_variant_and_stays_so(environment):
    node = server(
        "n",
        "old",
        ready=ReadyPort(PORT, LIMIT_S),
        environment={"A": "1", "B": "1"},
        setup=(("touch", "{data}/kept"),),
        variants={
            "new": Variant(
                command=(sys.executable, SERVE, "{host}", f"{{port:{PORT}}}", "new"),
                environment={"B": "2"},
            )
        },
    )

    async def main(session):
        cluster = session.cluster
        events, seen = [], []
        cluster.subscribe(lambda event: events.append((event.kind, event.data.get("variant"))))
        with pytest.raises(UsageError, match=r"no variant 'odd'; it has: base, new"):
            await cluster.start("n", "odd")
        for variant in ("new", None, BASE):
            await cluster.kill("n")
            assert await cluster.start("n", variant)
            assert await cluster.wait_ready("n") is None
            seen.append([await get(session, "n", path) for path in ("/kept", "/env/A", "/env/B")])
        return events, seen, await cluster.logs("n")

    events, seen, logs = execute(environment, [node], main)
    started = [variant for kind, variant in events if kind == "node-started"]
    assert started == [BASE, "new", "new", BASE]
    assert seen == [["", "1", "2"], ["", "1", "2"], ["", "1", "1"]]
    served = [line.split()[-1] for line in logs if line.startswith("serving")]
    assert served == ["old", "new", "new", "old"]


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        (
            {"setup": (("sh", "-c", "echo on {name}; exit 3"), ("sh", "-c", "echo never"))},
            ["set-up of node 'n'", "exited with 3", "\n  on n"],
        ),
        (
            {"ready": ReadyLog("^never$", 1.0)},
            ["did not get ready within 1 s", "'^never$'", "\n  serving as"],
        ),
        (
            {"command": ("sh", "-c", "echo bye; exit 2"), "ready": ReadyPort(PORT, LIMIT_S)},
            ["ended before it was ready", "port 8080 accepts", "\n  bye"],
        ),
        (
            {"ready": ReadyCommand(("sh", "-c", "echo not yet; exit 4"), 1.0)},
            ["within 1 s", "it exited with 4: not yet"],
        ),
    ],
    ids=["setup", "log", "ended", "command"],
)
def test_a_node_that_does_not_start_ends_the_deployment(environment, fields, messages):
    with pytest.raises(TargetError) as caught:
        execute(environment, [server("n", **fields), server("x", after=("n",))], nothing)

    for message in messages:
        assert message in str(caught.value)


def test_an_image_that_brings_its_command(environment):
    spec = NodeSpec(
        name="n",
        role="web",
        ports=(PORT,),
        dockerfile="{package:tests}/tests/worlds/image",
        ready=ReadyHttp(PORT, within_s=LIMIT_S),
        user="1234:1234",
        memory_mib=100,
        cpus=0.5,
        setup=(("sh", "-c", "id -u > {data}/uid"),),
    )
    if environment.name == "process":
        with pytest.raises(UsageError, match=r"only an image.*|--env docker"):
            execute(environment, [spec], nothing)
        return
    reports = []
    environment.prepare_nodes([spec], reports.append)
    environment.prepare_nodes([spec], lambda text: pytest.fail(f"it is there already: {text}"))

    async def main(session):
        return await get(session, "n", "/uid"), await session.cluster.logs("n")

    uid, logs = execute(environment, [spec], main)
    assert uid == "1234\n"
    assert "serving as 1234" in logs
    assert load_plugin("environments", "docker").unavailable() is None
