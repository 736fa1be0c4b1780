"""Ordinary asyncio programs run as simulated nodes."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cluster import NodeSpec, NodeState, ReadyHttp, ReadyLog, ReadyPort
from harness.errors import TargetError, UsageError
from harness.nodes.deployment import refuse_in_simulation
from tests.programs.world import PORT, ask, logs, program, run, server

ROOT = Path(__file__).parents[2]


# --- streams and modules -----------------------------------------------------------------------


def test_a_server_and_a_client_speak_over_streams():
    async def main(s):
        await asyncio.sleep(5)
        return await logs(s, "n2")

    client = program("n2", "counter:talk", "{host:n1}", "one", "two")
    one, two, end = run(main, (server(), client))
    assert json.loads(one.partition(" ")[2]) == {"total": 1, "words": ["a", "b", "zed", "one"]}
    assert json.loads(two.partition(" ")[2])["words"] == ["a", "b", "zed", "one", "two"]
    assert "code 0" in end


def test_each_life_of_each_node_has_its_own_modules_and_the_disk_stays():
    async def main(s):
        await asyncio.sleep(1)
        first = (
            json.loads(await ask(s, "n1", "x"))["total"],
            json.loads(await ask(s, "n1", "x"))["total"],
        )
        other = json.loads(await ask(s, "n2", "x"))["total"]
        await s.cluster.kill("n1")
        await s.cluster.start("n1")
        await asyncio.sleep(1)
        return first, other, json.loads(await ask(s, "n1", "y")), await s.cluster.usage("n1")

    first, other, again, usage = run(main, (server(), server("n2")))
    assert first == (1, 2)
    assert other == 1
    assert again == {"total": 1, "words": ["a", "b", "zed", "y"]}
    assert usage.disk_bytes == len("x\nx\ny\n")
    assert "tests.programs.apps.counter" not in sys.modules


def test_the_modules_of_the_harness_stay_as_they_are():
    import logging
    import random
    import time

    before = time.time, random.random, list(logging.getLogger().handlers), Path.cwd()

    async def main(s):
        await asyncio.sleep(1)

    run(main, (program("n1", "counter:describe"), server("n2")))
    assert before == (time.time, random.random, list(logging.getLogger().handlers), Path.cwd())


SCRIPT = """
import asyncio
from tests.programs.world import ask, logs, program, run, server

async def main(s):
    await asyncio.sleep(2)
    await ask(s, "n2", "word")
    return await logs(s, "n1"), s.trace_digest()

print(run(main, (program("n1", "counter:describe"), server("n2")), seed=5))
"""


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_in_every_process():
    outputs = []
    for seed in ("0", "1", "random"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PADDING": "x" * len(outputs) * 77}
        output = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
        ).stdout
        outputs.append(output)
    assert outputs[0] == outputs[1] == outputs[2] != b""


def test_a_program_sees_the_world_of_its_node():
    async def main(s):
        await asyncio.sleep(1)
        return await logs(s, "n1"), s.env.clock.wall_ns()

    lines, wall_ns = run(main, (program("n1", "counter:describe", environment={"MINE": "{data}"}),))
    assert abs(float(lines[0].split()[0]) - wall_ns / 1e9) < 3
    assert "('MINE', '/data')" in lines[4]
    assert lines[5].startswith("{'x', 'y', 'zed', 'w'} ['h', 'a', 's']")
    assert "['a', 'b', 'c', 'd']" in lines
    assert "inline" in lines
    again, _ = run(main, (program("n1", "counter:describe", environment={"MINE": "{data}"}),))
    assert again == lines
    other, _ = run(
        main, (program("n1", "counter:describe", environment={"MINE": "{data}"}),), seed=2
    )
    assert other[2] != lines[2]


def test_warnings_are_the_programs_own_and_go_to_its_log():
    async def main(s):
        await asyncio.sleep(1)
        return await logs(s, "n1")

    lines = run(main, (program("n1", "ends:warns"),))  # in these tests, a warning is an error
    assert any("UserWarning: careful" in line for line in lines)
    assert "after" in lines


# --- how programs end --------------------------------------------------------------------------


def exits(session):
    events = []
    session.cluster.subscribe(lambda e: events.append(e) if e.kind == "node-exited" else None)
    return events


@pytest.mark.parametrize(
    ("place", "code", "line"),
    [("code", 3, "at exit"), ("fails", 1, "ValueError: a mistake")],
)
def test_a_program_exits_as_a_process_does(place, code, line):
    async def main(s):
        events = exits(s)
        await asyncio.sleep(1)
        return events[0].data, await logs(s, "n1")

    data, lines = run(main, (program("n1", f"ends:{place}"),))
    assert (data["code"], data["expected"]) == (code, False)
    assert line in lines


@pytest.mark.parametrize(
    ("place", "sent", "code", "line"),
    [
        ("waits", "SIGTERM", -15, "ended by signal 15"),
        ("handles", "SIGTERM", 0, "stopped"),
        ("raises_in_handler", "SIGTERM", 0, "caught"),
        ("interrupted", "SIGINT", 0, "cleaned interrupted"),
        ("waits", "SIGINT", 130, ""),
    ],
)
def test_a_graceful_stop_is_a_signal(place, sent, code, line):
    async def main(s):
        events = exits(s)
        await asyncio.sleep(1)
        await s.cluster.stop("n1")
        await asyncio.sleep(1)
        return events[0].data, " ".join(await logs(s, "n1"))

    data, text = run(main, (program("n1", f"ends:{place}", stop_signal=sent),))
    assert (data["code"], data["expected"]) == (code, True)
    assert line in text


def test_a_killed_program_is_gone():
    async def main(s):
        await asyncio.sleep(1)
        await s.cluster.kill("n1")
        await asyncio.sleep(1)
        return await s.cluster.usage("n1")

    assert run(main, (program("n1", "ends:waits"),)).disk_bytes == 0


@pytest.mark.parametrize(("unread", "said"), [("0", "b'line\\n'"), ("1", "reset")])
def test_the_peer_of_a_killed_program_gets_the_end_or_a_reset(unread, said):
    async def main(s):
        await asyncio.sleep(3)
        await s.cluster.kill("n1")
        await asyncio.sleep(8)
        return await logs(s, "n2")

    killed = program("n1", "ends:answers_once", "{port:8080}", ready=ReadyPort(PORT))
    asking = program("n2", "ends:asks", "{host:n1}", unread, after=("n1",))
    assert said in run(main, (killed, asking))


def test_a_file_that_is_open_at_the_end_is_flushed():
    async def main(s):
        await asyncio.sleep(1)
        return await s.cluster.usage("n1")

    assert run(main, (program("n1", "ends:leaves_a_file_open"),)).disk_bytes == len("kept")


def test_clocks_and_timers_count_the_time_of_blocking_calls():
    async def main(s):
        await asyncio.sleep(2)
        return await logs(s, "n1")

    slow = {"disk_ms_min": 50.0, "disk_ms_max": 60.0}
    assert "True True True" in run(main, (program("n1", "ends:measures"),), **slow)


def test_a_power_cut_loses_data_that_was_not_synced():
    async def main(s):
        await asyncio.sleep(1)
        await s.cluster.kill("n1", lose_unsynced=True)
        return {state.path: state.visible_bytes for state in disk(s, "n1").states()}

    outcomes = [run(main, (program("n1", "ends:lives"),), seed=seed) for seed in range(30)]
    assert {each["/data/synced"] for each in outcomes} == {10}
    assert {each.get("/data/unsynced") for each in outcomes} >= {0, 10}
    assert {each.get("/data/renamed") for each in outcomes} >= {None, 0, 7}


def disk(session, node):
    return session.cluster._machines[node].disk


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("thread", "a thread"),
        ("sleep", "time.sleep"),
        ("swallowed", "time.sleep"),
        ("connect", "socket.create_connection"),
        ("receive", "socket.recv"),
        ("subprocess", "a subprocess"),
        ("popen", "subprocess.run"),
        ("tls", "TLS"),
        ("fork", "os.fork"),
        ("sqlite", "sqlite3.connect"),
        ("reader", "file descriptor"),
    ],
)
def test_features_missing_in_the_simulation_are_refused_by_name(place, named):
    async def main(s):
        await asyncio.sleep(1)

    with pytest.raises(TargetError, match=f"n1 needs .*{re.escape(named)}.* use "):
        run(main, (program("n1", f"refused:{place}"),))


@pytest.mark.parametrize(
    "command", ["python:", "python:app", "python:app:", "python:a b:main", "python::main"]
)
def test_a_malformed_command_is_refused(command):
    with pytest.raises(UsageError, match="python:MODULE:CALLABLE"):
        refuse_in_simulation([NodeSpec(name="n", role="r", ports=(), command=(command,))])


def test_a_missing_module_is_refused_before_anything_starts():
    async def main(s):
        raise AssertionError

    spec = NodeSpec(name="n", role="r", ports=(), command=("python:no_such_module:main",))
    with pytest.raises(UsageError, match="no module 'no_such_module'"):
        run(main, (spec,))


# --- readiness ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ready", [ReadyPort(PORT), ReadyHttp(PORT, "/"), ReadyLog("late")])
def test_nodes_start_once_the_nodes_before_them_are_ready(ready):
    async def main(s):
        assert s.cluster.state("n2") is NodeState.RUNNING
        return await s.cluster.logs("n2")

    first = program("n1", "late:main", "{port:8080}", ready=ready)
    second = program("n2", "late:main", "{port:8080}", after=("n1",))
    lines = run(main, (first, second))
    assert float(lines[0].split()[0]) >= 3


def test_a_program_that_does_not_get_ready_ends_the_run():
    async def main(s):
        raise AssertionError

    never = program("n1", "ends:waits", ready=ReadyPort(PORT, within_s=5))
    with pytest.raises(TargetError, match="did not get ready within 5 s"):
        run(main, (never,))
