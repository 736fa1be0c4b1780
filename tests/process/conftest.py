"""Fixtures that run nodes in the process environment, and check that nothing of a run remains."""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cluster import ClusterEvent, NodeSpec
from harness.env import Address
from harness.environments import procfs
from harness.environments.process import ProcessEnvironment
from harness.environments.warden import ROLE_VARIABLE, RUN_VARIABLE
from harness.plugins import DeploymentPlan
from tests.faults.door import door
from tests.process.nodes import PORT, ask
from tests.support.waiting import LIMIT_S, until, wait_until
from tests.toxiproxy.conftest import REPOSITORY

_numbers = itertools.count()


def echo_spec(name: str, **config: object) -> NodeSpec:
    return NodeSpec(
        name=name, role="echo", ports=(PORT,), entry="tests.process.nodes:main", config=config
    )


def foreign(name: str, *command: str, **fields: object) -> NodeSpec:
    return NodeSpec(name=name, role="r", ports=(PORT,), command=command, **fields)


def shell(name: str, script: str, *words: str, **fields: object) -> NodeSpec:
    return foreign(name, "sh", "-c", script, "sh", *words, **fields)


def processes_of(run_id: str) -> list[int]:
    return [
        process.pid
        for process in procfs.all_processes()
        if procfs.environment_of(process.pid).get(RUN_VARIABLE) == run_id
        and procfs.is_alive(process)
    ]


def roles_of(run_id: str) -> dict[str, int]:
    return {procfs.environment_of(pid).get(ROLE_VARIABLE, "?"): pid for pid in processes_of(run_id)}


async def process_of(role):
    """Return the process with this role in the only run of this test process.

    The function waits, because the kernel does not show the environment of a program that is still
    starting.
    """

    def found():
        return [
            process
            for process in procfs.all_processes()
            if (variables := procfs.environment_of(process.pid)).get(ROLE_VARIABLE) == role
            and variables.get(RUN_VARIABLE, "").startswith(f"test-{os.getpid()}-")
        ]

    await until(found)
    (process,) = found()
    return process


@contextlib.contextmanager
def controller(run_id: str, *words: object):
    """Start a driver in a process that a test can kill; return it and its first output line."""
    process = subprocess.Popen(
        [sys.executable, *map(str, words)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        assert line, "the controller did not come up"
        yield process, line
    finally:
        process.kill()
        process.wait(LIMIT_S)
        process.stdout.close()
        wait_until(lambda: processes_of(run_id) == [])


async def never(driver):
    raise AssertionError("nothing may start")


class Driver:
    """Shortcuts for what tests do in a session."""

    def __init__(self, session):
        self.session = session
        self.cluster = session.cluster
        self.events: list[ClusterEvent] = []
        self.cluster.subscribe(self.events.append)

    async def ask(self, node: str, request: dict, timeout_s: float = LIMIT_S):
        return await ask(self.session.env, Address(node, PORT), request, timeout_s)

    async def reaches(self, source: str, destination: str) -> str:
        return await self._outcome(source, destination, LIMIT_S / 2)

    async def is_cut(self, source: str, destination: str) -> bool:
        """Whether three requests get no answer; a single one may be sent too late."""
        outcomes = [await self._outcome(source, destination, for_s) for for_s in (0.4, 0.4, 1.2)]
        return set(outcomes) == {"TimeoutError"}

    async def _outcome(self, source: str, destination: str, for_s: float) -> str:
        request = {"ask": destination, "text": "hello", "for_s": for_s}
        answer = await self.ask(source, request)
        return answer.get("error", "ok")

    async def wait_event(self, kind: str, node: str, count: int = 1) -> ClusterEvent:
        async with asyncio.timeout(LIMIT_S):
            while True:
                events = [e for e in self.events if (e.kind, e.node) == (kind, node)]
                if len(events) >= count:
                    return events[count - 1]
                await asyncio.sleep(0.005)

    async def wait_ready(self) -> None:
        for name, spec in self.cluster.nodes.items():
            if spec.entry is not None:  # foreign programs announce nothing
                await self.wait_event("ready", name)


def in_turn(*checks):
    """Return a body that runs `checks` in turn on one cluster, because starting one is slow."""

    async def body(driver):
        for check in checks:
            after = Driver(driver.session)
            await door(after).heal_all()
            for name, spec in after.cluster.nodes.items():
                if await after.cluster.start(name) and spec.entry is not None:
                    await after.wait_event("ready", name)
            try:
                await check(Driver(driver.session))
            except BaseException as error:
                error.add_note(f"in {check.__name__}")
                raise

    return body


@pytest.fixture
def run(tmp_path: Path, monkeypatch):
    """Return a function that runs `body(driver)` on some nodes, and checks that nothing remains."""
    # On a busy machine, actions of kernel, nodes and proxy take longer.
    for patience in (
        *("child._STATE_TIMEOUT_S", "node._STOP_TIMEOUT_S", "node._KILL_TIMEOUT_S"),
        *("links._SETTLE_S", "linkproxy._START_TIMEOUT_S", "linkproxy._EXIT_TIMEOUT_S"),
    ):
        monkeypatch.setattr(f"harness.environments.process.{patience}", LIMIT_S)

    def execute(body, specs, *, link_proxy=None, wait=True, seed=7):
        run_id = f"test-{os.getpid()}-{next(_numbers)}"
        plan = DeploymentPlan(
            run_id=run_id,
            nodes=tuple(specs),
            seed=seed,
            knobs={},
            folder=tmp_path / "run",
            link_proxy=link_proxy,
        )

        async def main(session):
            driver = Driver(session)
            if wait:
                await driver.wait_ready()
            return await body(driver)

        try:
            return ProcessEnvironment().execute(plan, main)
        finally:
            wait_until(lambda: processes_of(run_id) == [])  # killed, but perhaps not reaped yet
            assert not list(Path("/tmp").glob(f"harness-process-{run_id}-*"))

    return execute


@pytest.fixture
def three():
    return [echo_spec(name) for name in ("a", "b", "c")]


@pytest.fixture
def only_a():
    """Plan a single node, for tests that need no peer; processes are most of a test's cost."""
    return [echo_spec("a")]


@pytest.fixture
def sleeper():
    """Plan the cheap node `s`, for tests that work with any node."""
    return [NodeSpec(name="s", role="sleeper", ports=(PORT,), command=("sleep", "1000"))]
