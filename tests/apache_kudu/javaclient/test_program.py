"""The process of the Java client, replaced by a small script that speaks the same protocol."""

import asyncio
import os
import sys

import pytest

from harness.errors import UsageError
from targets.apache_kudu.javaclient.program import JavaProgram
from tests.support.env import FakeEnv

BEGIN = f"""#!{sys.executable} -IS
import json, os, sys
assert sys.argv[-2:] == ["org.apache.kudu.client.JavaClient", "h1:1,h2:2"]
"""
ECHO = """
for line in sys.stdin:
    asked = json.loads(line)
    said = {"id": asked["id"], "answer": asked, "frames": [1], "begun": False}
    print(json.dumps(said), flush=True)
"""
OUT_OF_ORDER = """
first, second = (json.loads(sys.stdin.readline()) for _ in range(2))
for asked in (second, first):
    print(json.dumps({"id": asked["id"], "error": ["NOT_FOUND", asked["f"]]}), flush=True)
sys.stdin.read()
"""
FATAL = """
asked = json.loads(sys.stdin.readline())
print(json.dumps({"id": asked["id"], "fatal": "NullPointerException"}), flush=True)
sys.stdin.read()
"""
DIES = """
sys.stdin.readline()
print("SLF4J: noise", "no more memory", sep="\\n", file=sys.stderr, flush=True)
os._exit(3)
"""
BABBLES = """
sys.stdin.readline()
print("Exception in thread main", flush=True)
sys.stdin.read()
"""
SILENT = "sys.stdin.read()"
HOLDS_ITS_INPUT = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdin.readline()
print(json.dumps({"id": 1, "answer": {"pid": os.getpid()}}), flush=True)
while True:
    signal.pause()
"""


class Running:
    """Runs a script in place of the Java client's process, on a fake `Env`."""

    def __init__(self, folder, script):
        path = folder / "java"
        path.write_text(BEGIN + script)
        path.chmod(0o755)
        self.env = FakeEnv()
        self.program = JavaProgram(self.env, str(path), "unused")

    def ask(self, f="list", process=1, timeout_s=30.0):
        return self.program.ask(("h1:1", "h2:2"), process, {"f": f}, timeout_s=timeout_s)

    async def close(self):
        for task in self.env.tasks:
            task.cancel()
        return await asyncio.gather(*self.env.tasks, return_exceptions=True)

    async def failure(self):
        waiting = asyncio.create_task(self.ask())
        try:
            await asyncio.sleep(0)  # lets the operation start the program
            with pytest.raises(UsageError) as caught:
                await self.env.tasks[0]
            return str(caught.value)
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await self.close()


def test_answers_reach_the_operations_that_asked(tmp_path):
    async def run():
        running = Running(tmp_path, ECHO)
        result = await asyncio.gather(*(running.ask(process=number) for number in (1, 2)))
        await running.program.close(1)
        await running.close()
        return result

    result = asyncio.run(run())
    assert [each.answer["client"] for each in result] == [1, 2]
    assert result[0].frames == [1]
    assert not result[0].begun


def test_answers_may_come_in_any_order(tmp_path):
    async def run():
        running = Running(tmp_path, OUT_OF_ORDER)
        result = await asyncio.gather(running.ask("get"), running.ask("list"))
        await running.close()
        return result

    assert [each.error for each in asyncio.run(run())] == [
        ("NOT_FOUND", "get"),
        ("NOT_FOUND", "list"),
    ]


def test_a_program_that_does_not_answer_leaves_the_outcome_open(tmp_path):
    async def run():
        running = Running(tmp_path, SILENT)
        said = await running.ask(timeout_s=0.0)
        await running.close()
        return said

    said = asyncio.run(run())
    assert (said.error[0], said.begun) == ("OPEN", True)


def test_a_defect_of_the_program_is_no_answer(tmp_path):
    async def run():
        running = Running(tmp_path, FATAL)
        with pytest.raises(RuntimeError, match="NullPointerException"):
            await running.ask()
        await running.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("script", "part"),
    [(DIES, "exit code 3: no more memory"), (BABBLES, "Exception in thread main")],
    ids=["dies", "babbles"],
)
def test_a_program_that_ends_or_babbles_ends_the_run_with_one_line(tmp_path, script, part):
    text = asyncio.run(Running(tmp_path, script).failure())
    assert part in text
    assert "no verdict" in text
    assert "\n" not in text


def test_java_that_cannot_be_run_ends_the_run_with_one_line(tmp_path):
    async def run():
        running = Running(tmp_path, SILENT)
        (tmp_path / "java").chmod(0o644)
        return await running.failure()

    assert "cannot run" in asyncio.run(run())


def test_the_program_ends_with_its_environment(tmp_path):
    async def run():
        running = Running(tmp_path, HOLDS_ITS_INPUT)
        pid = (await running.ask()).answer["pid"]
        await running.close()
        return pid

    pid = asyncio.run(run())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
