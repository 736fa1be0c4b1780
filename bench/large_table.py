"""A table of a thousand tablets, and the master that leads killed at fifty points around its birth.

Whole or absent, never half (CreateTable is one entry of the log). A first run without a kill finds
when the request is sent, answered, and the last tablet runs; then each run kills the leader at
another moment in between, half of them before the answer and half after it, waits for another
leader, looks at its rows at once, starts the killed one again, waits until all is at rest, and
looks at every master. Everything is simulated, so a point is a point: the same run up to the kill.

`python -m bench.large_table [--tablets N] [--points N] [--replicas N] [--seed N]`; exit status 1
where a table was half there, or not there although it was acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.measure import machine
from harness.ops import OpType
from harness.plugins import (
    Completion,
    Deployment,
    DeploymentPlan,
    Request,
    Session,
    TargetSettings,
)
from harness.registry import load_plugin
from targets.kudu import KuduTarget
from targets.kudu.system import KuduSystem

LIMIT_S = 120.0
OP_LIMIT_S = 20.0
NAME = "large"


@dataclass(frozen=True)
class Size:
    """What is created."""

    tablets: int
    replicas: int
    seed: int


@dataclass(frozen=True)
class Course:
    """The undisturbed run: ns after the request was sent."""

    answered_ns: int
    running_ns: int


@dataclass(frozen=True)
class Struck:
    """One run with a kill."""

    at_ns: int
    answer: str
    found_first: int | None  # tablets in the new leader's rows, as soon as it is ready
    found_last: Mapping[str, int | None]  # by master, at rest
    rest_s: float

    @property
    def problem(self) -> str:
        """What is wrong with it; empty if nothing is."""
        found = {self.found_first, *self.found_last.values()}
        if len(found) != 1:
            return f"not the same everywhere: {self.found_first}, {dict(self.found_last)}"
        (count,) = found
        if self.answer == "ok" and count is None:
            return "acknowledged, and gone"
        if self.answer == "fail" and count is not None:
            return "refused, and there"
        return ""


def half_there(dump: Mapping[str, Any], size: Size) -> str:
    """Why a master's rows show half a table; empty if they do not."""
    tables = [table for table in dump["tables"] if table["name"] == NAME]
    tablets = [t for t in dump["tablets"] if t["state"] not in {"DELETED", "REPLACED"}]
    if not tables:
        return f"{len(tablets)} tablets without their table" if tablets else ""
    ends = sorted((tablet["start"], tablet["end"]) for tablet in tablets)
    gaps = sum(one[1] != two[0] for one, two in itertools.pairwise(ends))
    whole = len(tablets) == size.tablets and not gaps and (ends[0][0], ends[-1][1]) == ("", "")
    return "" if whole else f"{len(tablets)} tablets of {size.tablets}, {gaps} gaps"


def count_of(dump: Mapping[str, Any], size: Size) -> int | None:
    """How many tablets the table has; `None` if it is absent. Raises on half a table."""
    problem = half_there(dump, size)
    assert not problem, problem
    return size.tablets if any(table["name"] == NAME for table in dump["tables"]) else None


class World:
    """One deployed cluster, and the steps of a run."""

    def __init__(self, session: Session, system: KuduSystem, size: Size) -> None:
        self.session = session
        self.system = system
        self.size = size
        self.start_ns = 0

    def since_ns(self) -> int:
        """Since the request was sent."""
        return self.session.env.clock.monotonic_ns() - self.start_ns

    async def until(self, what: str, check: Callable[[], Awaitable[bool]]) -> None:
        """Wait for `check`, at most `LIMIT_S`."""
        start_ns = self.session.env.clock.monotonic_ns()
        while not await check():
            took_s = (self.session.env.clock.monotonic_ns() - start_ns) / 1e9
            assert took_s < LIMIT_S, f"not {what} after {took_s} s"
            await asyncio.sleep(0.25)

    async def ready(self) -> bool:
        """A master leads, and knows all tablet servers."""
        return (await self.system.ready()).ok

    async def at_rest(self) -> bool:
        """Nothing is left to be done."""
        return (await self.system.converged()).ok

    async def leader(self) -> str | None:
        """The master that leads and is ready."""
        roles = await self.system.roles()
        leader = roles.leader
        return leader if leader is not None and roles.by_node[leader].ready else None

    async def create(self) -> Completion:
        """Ask for the table."""
        value = {
            "name": NAME,
            "nonce": "large",
            "columns": ["a", "b"],
            "partitions": self.size.tablets,
            "replicas": self.size.replicas,
        }
        client = self.system.client(1)
        self.start_ns = self.session.env.clock.monotonic_ns()
        return await client.invoke(Request("create", value), timeout_s=OP_LIMIT_S)

    async def undisturbed(self) -> Course:
        """The run without a kill."""
        await self.until("ready", self.ready)
        completion = await self.create()
        assert completion.type is OpType.OK, completion
        answered_ns = self.since_ns()
        await self.until("at rest", self.at_rest)
        return Course(answered_ns, self.since_ns())

    async def struck(self, at_ns: int) -> Struck:
        """The run with a kill so long after the request."""
        await self.until("ready", self.ready)
        killed = await self.leader()
        assert killed is not None
        creation = asyncio.create_task(self.create())
        await asyncio.sleep(at_ns / 1e9)
        await self.session.cluster.kill(killed)

        async def led_by_another() -> bool:
            return await self.leader() not in {None, killed}

        await self.until("led by another", led_by_another)
        new = await self.leader()
        assert new is not None
        answered = creation.done()  # before the look, which takes a while
        dump = (await self.system.snapshot())["masters"][new]
        found_first = count_of(dump, self.size)
        completion = await creation
        await self.session.cluster.start(killed)
        await self.until("at rest", self.at_rest)
        masters = (await self.system.snapshot())["masters"]
        found_last = {name: count_of(dump, self.size) for name, dump in masters.items()}
        if found_first is None and completion.type is OpType.OK and not answered:
            found_first = self.size.tablets  # it was on its way, and the new leader carried it out
        return Struck(at_ns, completion.type.value, found_first, found_last, self.since_ns() / 1e9)


def execute(size: Size, body: Callable[[World], Awaitable[Any]]) -> Any:
    """Run `body` in a fresh world."""
    target = KuduTarget()
    options = {option.name.replace("-", "_"): option.default for option in target.options}
    flags = "max_create_tablets_per_ts=10000,raft_heartbeat_interval_ms=1000"
    settings = TargetSettings(
        profile="strict",
        bugs=(),
        options=options | {"masters": 3, "tservers": 5, "resend": 0, "kudu_flag": flags},
    )

    async def main(session: Session) -> Any:
        system = target.open(Deployment(session.env, settings, session.cluster.nodes))
        return await body(World(session, system, size))

    plan = DeploymentPlan(
        run_id=f"bench-{size.seed}",
        nodes=tuple(target.nodes(settings)),
        seed=size.seed,
        knobs={},
        folder=None,
    )
    return load_plugin("environments", "sim").execute(plan, main)


def points(course: Course, count: int) -> list[int]:
    """Half of them before the answer, half between it and the last tablet, evenly."""
    before = count // 2
    after = count - before
    rest_ns = course.running_ns - course.answered_ns
    return [
        *(course.answered_ns * n // before for n in range(before)),
        *(course.answered_ns + rest_ns * n // after for n in range(after)),
    ]


def run(size: Size, count: int) -> int:
    """The whole series, printed; how many runs were bad."""
    course = execute(size, World.undisturbed)
    print(
        f"{size.tablets} tablets of {size.replicas} replicas: answered after "
        f"{course.answered_ns / 1e6:.1f} ms, at rest after {course.running_ns / 1e6:.0f} ms"
    )
    print(f"{'killed at':>12}  {'answer':<6} {'the table':<10} {'at rest':>8}  {'CPU':>6}")
    bad = 0
    for at_ns in points(course, count):
        begin = time.process_time()
        try:
            result = execute(size, functools.partial(World.struck, at_ns=at_ns))
        except AssertionError as error:
            result, problem = None, str(error)
        else:
            problem = result.problem
        bad += bool(problem)
        cpu = f"{time.process_time() - begin:5.1f}s"
        if result is None:
            print(f"{at_ns / 1e6:9.2f} ms  {problem}  {cpu}")
            continue
        table = "absent" if result.found_first is None else "whole"
        print(
            f"{at_ns / 1e6:9.2f} ms  {result.answer:<6} {table:<10} {result.rest_s:6.1f} s  {cpu}"
            f"  {problem}",
            flush=True,
        )
    print(f"{count} points, {bad} bad")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tablets", type=int, default=1000)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(machine())
    return 1 if run(Size(given.tablets, given.replicas, given.seed), given.points) else 0


if __name__ == "__main__":
    raise SystemExit(main())
