"""The Docker environment deploys runs on a real engine, and removes them completely."""

import asyncio
import secrets
import signal
import subprocess
import sys
import time

import pytest

from harness.cluster import NodeSpec
from harness.environments.docker.engine.labels import RUN_LABEL, Part, container_name
from harness.errors import StartError
from tests.docker.support import ask, echo_nodes, plan_of, wait_answering
from tests.process.conftest import processes_of
from tests.support.cleaning import kill_at_once, only_cleaner
from tests.support.programs import run_program
from tests.support.waiting import LIMIT_S, until, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def found(engine, run_id):
    label = f"{RUN_LABEL}={run_id}"
    kinds = (engine.containers(label), engine.networks(label), engine.volumes(label))
    return sorted(item.name for kind in kinds for item in kind)


def test_nodes_come_up_unprivileged_and_the_run_leaves_nothing(environment, engine, tmp_path):
    run_id = f"test-{secrets.token_hex(4)}"

    async def main(session):
        await wait_answering(session, "n1", "n2")
        who = [await ask(session, node, "who") for node in session.cluster.nodes]
        api = engine._api
        settings = {}
        for node in session.cluster.nodes:
            for name in (container_name(run_id, node), container_name(run_id, node, Part.KEEPER)):
                settings[name] = api.inspect_container(name)
        return who, settings

    plan = plan_of(echo_nodes(2), folder=tmp_path, run_id=run_id)
    who, settings = environment.execute(plan, main)

    as_nobody = {"boot": 0, "uid": 65532, "caps": "0" * 16}
    assert who == [{"name": "n1", **as_nobody}, {"name": "n2", **as_nobody}]
    for name, found_settings in settings.items():
        host = found_settings["HostConfig"]
        assert host["CapDrop"] == ["ALL"]
        added = [capability.removeprefix("CAP_") for capability in host["CapAdd"] or ()]
        assert added == (["NET_ADMIN"] if name.endswith(".net") else [])
        assert host["PidsLimit"] > 0
        assert host["Memory"] > 0
        bindings = found_settings["NetworkSettings"]["Ports"]
        addresses = {item["HostIp"] for items in bindings.values() for item in items or ()}
        assert addresses == ({"127.0.0.1"} if name.endswith(".net") else set())
    assert found(engine, run_id) == []
    assert '"event":"listening"' in (tmp_path / "logs" / "n1.log").read_text()


def test_init_ends_a_program_that_does_not_handle_sigterm(environment, monkeypatch):
    monkeypatch.setattr("harness.environments.docker.node.node._STOP_GRACE_S", 60)
    node = NodeSpec(name="a", role="x", ports=(), command=("sleep", "1000"))

    async def main(session):
        ends = []
        session.cluster.subscribe(lambda e: e.kind == "node-exited" and ends.append(e.data["code"]))
        await session.cluster.stop("a")
        await until(lambda: ends)
        return ends

    assert environment.execute(plan_of([node]), main) == [128 + signal.SIGTERM]  # no kill follows


def test_an_image_that_is_not_to_be_had_is_an_error_and_nothing_stays(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"
    image = "harness-no-such-image:1"
    node = NodeSpec(name="a", role="x", ports=(), image=image, command=("sleep", "1"))

    with pytest.raises(StartError, match=f"cannot pull {image}"):
        environment.execute(plan_of([node], run_id=run_id), lambda session: asyncio.sleep(0))

    assert found(engine, run_id) == []


def test_an_error_in_main_propagates_and_nothing_is_left(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"

    node = NodeSpec(name="a", role="x", ports=(), command=("sleep", "1000"))

    async def main(session):
        raise RuntimeError("main failed")

    with pytest.raises(RuntimeError, match="main failed"):
        environment.execute(plan_of([node], run_id=run_id), main)

    assert found(engine, run_id) == []


def start_driver(run_id):
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.docker.driver", run_id], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout.readline() == "broken\n"
    return driver


def kill_driver(driver):
    driver.send_signal(signal.SIGKILL)
    driver.wait(LIMIT_S)
    driver.stdout.close()


def test_a_killed_driver_leaves_nothing(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"
    driver = start_driver(run_id)
    assert len(found(engine, run_id)) == 9
    kill_driver(driver)

    wait_until(lambda: found(engine, run_id) == [])


@pytest.mark.parametrize("delay_s", [0.6, 1.0])
def test_a_driver_killed_while_it_deploys_leaves_nothing(engine, delay_s):
    run_id = f"test-{secrets.token_hex(4)}"
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.docker.driver", run_id], stdout=subprocess.PIPE, text=True
    )
    time.sleep(delay_s)
    kill_driver(driver)

    # The warden ends last: after it has found nothing left, it searches for one more second.
    wait_until(lambda: processes_of(run_id) == [] and found(engine, run_id) == [])
    # the engine may still execute its last commands, which may leave objects behind
    time.sleep(2.0)
    assert found(engine, run_id) == []


def test_clean_removes_dead_runs_and_leaves_live_ones(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"
    with only_cleaner():
        driver = start_driver(run_id)
        everything = found(engine, run_id)
        assert not [line for line in environment.clean() if run_id in line]
        assert found(engine, run_id) == everything
        children = run_program("pgrep", "-P", driver.pid, "-f", "harness.environments.warden")
        # kill the driver together with the warden of this run
        kill_at_once(driver.pid, int(children.stdout))
        kill_driver(driver)
        lines = [line for line in environment.clean() if run_id in line]

    assert len(lines) == len(everything) == 9
    assert found(engine, run_id) == []
