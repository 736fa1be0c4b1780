"""Kinds of interference with a run in processes, by another user of the same machine.

Each kind is a whole run of a small correct target, during which a bystander does one thing, such as
killing a node. The run may end `valid` (the interference did not matter), `unknown` (it did), or
with an error that gives the reason. Only `invalid` would wrongly blame the target.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from harness.case import Case
from harness.cluster import NodeSpec
from harness.env import Env, load_entry
from harness.environments import procfs
from harness.environments.warden import ROLE_VARIABLE, RUN_VARIABLE
from harness.errors import HarnessError
from harness.ops import Verdict
from harness.plan.planning import plan_case
from harness.plugins import DeploymentPlan, Environment, Session
from harness.run.phases import conduct
from harness.verdict.judge import judge

T = TypeVar("T")
NodeEdit = Callable[[NodeSpec], NodeSpec]
ENV: Final = "toy-register"
FOREIGN: Final = "http-register"
_BEGIN_S: Final = 1.5
_STOPPED_S: Final = 2.0
_SQUATS_S: Final = 4.0
_PATIENCE_S: Final = 20.0
_POLL_S: Final = 0.005


@dataclass(frozen=True)
class Bystander:
    """Another user of the machine, who sees the run's processes and knows their roles."""

    run_id: str

    def roles(self) -> dict[str, procfs.ProcessId]:
        identities: dict[str, procfs.ProcessId] = {}
        for process in procfs.all_processes():
            marks = procfs.environment_of(process.pid)
            if marks.get(RUN_VARIABLE) == self.run_id and procfs.is_alive(process):
                identities.setdefault(marks[ROLE_VARIABLE], process)
        return identities

    async def process(self, role: str, *, child: bool = False) -> procfs.ProcessId:
        """Return the first process of this role, or its last descendant if `child`."""
        first = await _until(lambda: self.roles().get(role))
        if not child:
            return first
        last = await _until(lambda: procfs.identify(procfs.family(first.pid)[-1]))
        assert last != first, f"{role} has no child"
        return last

    async def send(self, number: signal.Signals, role: str, *, child: bool = False) -> None:
        procfs.send(await self.process(role, child=child), number)

    async def stop(self, role: str, *, child: bool = False, for_s: float = _STOPPED_S) -> None:
        process = await self.process(role, child=child)
        procfs.send(process, signal.SIGSTOP)
        await asyncio.sleep(for_s)
        procfs.send(process, signal.SIGCONT)

    async def take_port(self, node: str) -> None:
        """Take a node's port as soon as the node is down, until its start has failed."""
        process = await self.process(f"node:{node}")
        port = _port_of(process.pid)
        await _until(lambda: not procfs.is_alive(process))
        async with await asyncio.start_server(_answer, "127.0.0.1", port):
            await asyncio.sleep(_SQUATS_S)


Act = Callable[[Bystander], Awaitable[None]]


@dataclass(frozen=True)
class Way:
    """One kind of interference: its victim, and the changes to the target's nodes."""

    name: str
    target: str
    act: Act
    edit: NodeEdit = lambda spec: spec
    nemesis: str = "none"
    refused: bool = False
    """Whether the run ends with a `TargetError`, because the node did something that no node may
    do.
    """


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request like the register, but with a value that was never written."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\n777777")
    await writer.drain()
    writer.close()


def _port_of(pid: int) -> int:
    words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
    return int(words[words.index("--port") + 1])


async def _until(ask: Callable[[], T]) -> Any:
    async with asyncio.timeout(_PATIENCE_S):
        while not (answer := ask()):  # noqa: ASYNC110 - a poll
            await asyncio.sleep(_POLL_S)
    return answer


# --- nodes that one kind of interference needs ---------------------------------------------------


async def announcing(env: Env, config: dict[str, Any]) -> None:
    """Run the register, and announce what `config` says once the workload runs."""

    async def announce() -> None:
        await asyncio.sleep(2 * _BEGIN_S)
        env.event(config["kind"], **config["data"])

    env.spawn(announce(), name="announce")
    await load_entry("toy_register:main", env.name)(env, {})


def _announcing(kind: str, **data: Any) -> NodeEdit:
    config = {"kind": kind, "data": data}
    return lambda spec: msgspec.structs.replace(
        spec, entry="tests.process.ways:announcing", config=config
    )


def _behind(*wrapper: str) -> NodeEdit:
    """Return an edit of a node's declaration: `wrapper` starts the node's program."""
    return lambda spec: msgspec.structs.replace(spec, command=(*wrapper, *spec.command))


WRAPPED: Final = _behind("sh", "-c", '"$@"\nexit $?', "wrapper")
_PYTHON: Final = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
_SUPERVISED: Final = _behind(sys.executable, "-c", _PYTHON)
_RUN: Final = 'exec "$0" "$@"'
_PRINTED: Final = json.dumps(
    {"ts_ns": 1, "level": "event", "event": "node-exited", "node": "w", "data": {"code": 0}}
)


def _answering_sigterm(code: int) -> NodeEdit:
    """Return an edit: the program exits with `code` at SIGTERM, as a JVM exits with 143."""
    return _behind("sh", "-c", f'trap "exit {code}" TERM; "$@" & wait', "wrapper")


async def _nothing(_: Bystander) -> None:
    """Leave the run alone."""


def _sends(number: signal.Signals, role: str, *, child: bool = False) -> Act:
    async def act(bystander: Bystander) -> None:
        await bystander.send(number, role, child=child)

    return act


def _stops(role: str, *, child: bool = False, for_s: float = _STOPPED_S) -> Act:
    async def act(bystander: Bystander) -> None:
        await bystander.stop(role, child=child, for_s=for_s)

    return act


def _ways() -> Iterator[Way]:
    for number in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGKILL"):
        sent = signal.Signals[number]
        yield Way(f"{number} to a node on Env", ENV, _sends(sent, "node:r1"))
        yield Way(f"{number} to a foreign node", FOREIGN, _sends(sent, "node:r2"))
    for number in ("SIGTERM", "SIGKILL"):
        act = _sends(signal.Signals[number], "node:r2", child=True)
        yield Way(f"{number} behind a shell", FOREIGN, act, WRAPPED)
        yield Way(f"{number} behind a supervisor", FOREIGN, act, _SUPERVISED)
    for code in (0, 143):
        act = _sends(signal.SIGTERM, "node:r2")
        yield Way(f"SIGTERM, answered with {code}", FOREIGN, act, _answering_sigterm(code))
    yield Way("SIGSTOP of a node on Env", ENV, _stops("node:r1"))
    yield Way("SIGSTOP of a foreign node", FOREIGN, _stops("node:r2"))
    yield Way("SIGSTOP behind a shell", FOREIGN, _stops("node:r1", child=True), WRAPPED)
    yield Way("SIGSTOP for good", FOREIGN, _stops("node:r1", child=True, for_s=600), WRAPPED)
    yield Way("a pause ended", FOREIGN, _ends_a_pause, WRAPPED, nemesis="pause-leader")
    yield Way("port taken", FOREIGN, lambda b: b.take_port("r1"), nemesis="kill-leader")
    yield Way("link proxy killed", FOREIGN, _sends(signal.SIGKILL, "link-proxy"))
    yield Way("link proxy stopped", FOREIGN, _stops("link-proxy"))
    yield Way(
        "events printed", FOREIGN, _nothing, _behind("sh", "-c", f"echo '{_PRINTED}'\n{_RUN}")
    )
    exited = {"member": "w3", "code": 0}
    for name, edit in (
        ("node-exited announced", _announcing("node-exited", **exited)),
        ("infrastructure announced", _announcing("infrastructure", what="all", lasts=True)),
        ("a term in words", _announcing("leader", term="third")),
    ):
        yield Way(name, ENV, _nothing, edit, refused=True)


async def _ends_a_pause(bystander: Bystander) -> None:
    child = await bystander.process("node:r1", child=True)
    await _until(lambda: procfs.state(child) in procfs.STOPPED)
    procfs.send(child, signal.SIGCONT)


WAYS: Final = tuple(_ways())


# --- running a kind of interference ----------------------------------------------------------


class _Disturbed:
    """An environment with a bystander."""

    def __init__(self, environment: Environment, way: Way) -> None:
        self._environment = environment
        self._way = way
        self.acted = False

    def execute(self, plan: DeploymentPlan, main: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Run `main`, and let the bystander act in the middle of the run."""

        async def disturbed(session: Session) -> T:
            session.env.spawn(self._act(plan.run_id), name="bystander")
            return await main(session)

        return self._environment.execute(plan, disturbed)

    async def _act(self, run_id: str) -> None:
        await asyncio.sleep(_BEGIN_S)
        self.acted = True
        await self._way.act(Bystander(run_id))


def outcome_of(way: Way, environment: Environment, *, time_limit_s: float = 5.0) -> str:
    """Run one kind of interference; return the verdict with the checkers' reasons, or the error."""
    case = Case(
        seed=1,
        target=way.target,
        workload="register",
        nemeses=(way.nemesis,),
        interval_s=1.0,
        duration_s=2.0,
        time_limit_s=time_limit_s,
        op_timeout_s=1.0,
    )
    plan = plan_case(case, environment)
    plan = msgspec.structs.replace(plan, nodes=tuple(map(way.edit, plan.nodes)))
    disturbed = _Disturbed(environment, way)
    run_id = f"outside-{secrets.token_hex(4)}"
    try:
        outcome = conduct(plan, disturbed, run_id=run_id, folder=None)  # type: ignore[arg-type]
    except HarnessError as error:
        return f"error: {type(error).__name__}: {error}"
    assert disturbed.acted, "the run was over before the bystander acted"
    judged = judge(outcome.history, plan.case, plan.checkers)
    reasons = [
        f"{result.checker}: {result.reason}"
        for result in judged.results
        if result.verdict is not Verdict.VALID
    ]
    return " | ".join([judged.verdict, *reasons])
