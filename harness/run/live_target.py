"""The target of a run, opened on its deployed nodes; also used by tests that are coroutines.

`OpenedTarget` records events, drives clients with a generator, conducts faults, and inspects the
target with time limits. If the plug-in cannot inspect the target, the run fails without a verdict.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

import msgspec

from harness.case import stream
from harness.cluster import Cluster
from harness.errors import StartError, TargetError, shown
from harness.faults.door import Door
from harness.generator import GeneratorLike
from harness.ops import NS_PER_S
from harness.permits import fact_of
from harness.plan.planning import TargetPlan, permits_of_target
from harness.plugins import (
    Client,
    Convergence,
    Deployment,
    Nemesis,
    NodeRole,
    Roles,
    Session,
    System,
    first_roles,
)
from harness.run.conductor import FaultConductor
from harness.run.interpreter import interpret
from harness.run.probe import POLL_S
from harness.run.recorder import EventScribe, Recorder
from harness.support.interrupts import blaming

T = TypeVar("T")
READY_BOUND_S: Final = 60.0
LOOK_BOUND_S: Final = 60.0
"""The time limit for one inspection of the target by its plug-in."""


class OpenedTarget:
    """The target of a plan, opened in a session, with its recorder and its conductor of faults."""

    def __init__(
        self, plan: TargetPlan, session: Session, recorder: Recorder, nemeses: Mapping[str, Nemesis]
    ) -> None:
        """`nemeses` has the nemeses that faults may name. More can be added to `self.nemeses`."""
        self.plan = plan
        self.nemeses = dict(nemeses)
        self.session = session
        self.env = session.env
        self.recorder = recorder
        nodes = session.cluster.nodes
        self.scribe = EventScribe(recorder, nodes.values())
        # First, because only the first subscriber gets events from before its subscription.
        session.cluster.subscribe(self.scribe.on_event)
        if permits := permits_of_target(plan.target, plan.settings):
            recorder.fact("permits", fact_of(plan.settings.profile, permits))
        with blaming(f"the target {plan.case.system!r}: open()"):
            self.system = plan.target.open(Deployment(session.env, plan.settings, nodes))
            if not isinstance(self.system, System):
                raise TypeError(
                    f"open() returned {shown(self.system)}, which is not a harness.plugins.System; "
                    f"write `class {type(self.system).__name__}(System)`, see `docs/plugins.md`"
                )
        self.conductor = FaultConductor(
            cluster=session.cluster,
            env=session.env,
            system=self.system,
            nemeses=self.nemeses,
            recorder=recorder,
            observe_roles=self.scribe.observe_roles,
            damage=plan.case.damage,
            groups=self._groups,
        )
        self.ledger = self.conductor.ledger
        self.cluster: Cluster = Door(session.cluster, self.ledger)

    def client(self, process: int) -> Client:
        """Return a client of the target for the client process with this number."""
        return self.system.client(process)

    async def drive(
        self, generator: GeneratorLike, *, stop: asyncio.Event, processes: list[int] | None = None
    ) -> None:
        """Let the clients of the case run `generator` (see `interpret`)."""
        case = self.plan.case
        await interpret(
            generator,
            env=self.env,
            open_client=self.client,
            concurrency=case.concurrency,
            recorder=self.recorder,
            op_timeout_s=case.op_timeout_s,
            rng=self.stream("workload"),
            stop=stop,
            processes=processes,
        )

    def stream(self, label: str) -> random.Random:
        return self.session.adopt(label, stream(self.plan.case.seed, label))

    async def roles(self) -> Roles:
        """Return the current roles in the main group, as its nodes report them."""
        return first_roles(await self._groups())

    async def _groups(self) -> Mapping[str, Roles]:
        return await _look_at_groups(self.system.groups, self.plan.case.system)

    async def become_ready(self, bound_s: float = READY_BOUND_S) -> None:
        """Wait until the target is ready.

        After `bound_s`, raises `StartError` with the pending conditions and the last lines of node
        logs.
        """
        state = await self.poll(self.system.ready, bound_s=bound_s, every_s=POLL_S)
        if not state.ok:
            logs = []
            for name in list(self.cluster.nodes)[:3]:
                logs.append(f"--- {name}")
                logs.extend(await self.cluster.logs(name, last_lines=5))
            pending = "; ".join(state.pending) or "no reason given"
            raise StartError(f"the target was not ready within {bound_s:g} s: {pending}", log=logs)
        self.scribe.observe_roles(await self.roles())

    async def poll(
        self,
        looking: Callable[[], Coroutine[Any, Any, Convergence]],
        *,
        bound_s: float,
        every_s: float,
    ) -> Convergence:
        """Repeat the inspection `looking` until its result is good or `bound_s` has passed.

        See the function `poll`.
        """
        now_ns = self.recorder.now_ns
        name = self.plan.case.system
        return await poll(looking, name, now_ns=now_ns, bound_s=bound_s, every_s=every_s)


async def look(looking: Callable[[], Coroutine[Any, Any, T]], target: str) -> T:
    """Return the result of `looking`, an inspection of the target by its plug-in.

    Raises `TargetError` if the inspection fails or takes too long.
    """
    what = _called(looking, target)
    try:
        async with asyncio.timeout(LOOK_BOUND_S):
            with blaming(what):
                return await looking()
    except TimeoutError as error:
        raise TargetError(
            f"{what} did not answer within {LOOK_BOUND_S:g} s; the plug-in must put a time limit "
            "on every call"
        ) from error


async def _look_at_groups(
    looking: Callable[[], Coroutine[Any, Any, Mapping[str, Roles]]], target: str
) -> Mapping[str, Roles]:
    """Return the replica groups that the target's plug-in reports.

    Raises `TargetError` if the report is malformed.
    """
    groups = await look(looking, target)
    if not isinstance(groups, Mapping):
        raise TargetError(
            f"{_called(looking, target)} returned {shown(groups)}; it must map names of groups to "
            "Roles"
        )
    for name, roles in groups.items():
        if not isinstance(name, str) or not _are_roles(roles):
            raise TargetError(
                f"{_called(looking, target)} returned {shown(roles)} for the group {shown(name)}; "
                "it must be Roles of NodeRoles; names must be texts and terms whole numbers"
            )
    return groups


def _are_roles(roles: object) -> bool:
    return (
        isinstance(roles, Roles)
        and isinstance(roles.by_node, Mapping)
        and isinstance(roles.candidates, tuple | list)
        and all(isinstance(name, str) for name in (*roles.by_node, *roles.candidates))
        and all(
            isinstance(each, NodeRole) and isinstance(each.role, str) and type(each.term) is int
            for each in roles.by_node.values()
        )
    )


def _called(looking: Callable[[], object], target: str) -> str:
    return f"the target {target!r}: {getattr(looking, '__name__', 'a look')}()"


def _check_convergence(state: object, what: str) -> None:
    """Raise `TargetError` unless the value is a `Convergence` with fields of the right types."""
    if not isinstance(state, Convergence):
        raise TargetError(f"{what} returned {shown(state)}, not a Convergence")
    if not isinstance(state.ok, bool):
        raise TargetError(f"{what} returned ok={shown(state.ok)}; it must be true or false")
    lines = state.pending
    if not isinstance(lines, tuple | list) or not all(isinstance(line, str) for line in lines):
        raise TargetError(f"{what} returned pending={shown(lines)}; it must be a tuple of texts")
    try:
        msgspec.json.encode(state.at)
    except Exception as error:
        raise TargetError(
            f"{what} returned at={shown(state.at)}, which is not plain JSON: {error}"
        ) from error


async def poll(
    looking: Callable[[], Coroutine[Any, Any, Convergence]],
    target: str,
    *,
    now_ns: Callable[[], int],
    bound_s: float,
    every_s: float,
) -> Convergence:
    """Repeat the inspection `looking` until its result is good; returns the last result.

    The last inspection is the first that begins after `bound_s`. Its result may be good although it
    is too late, so the caller must compare the elapsed time with the bound.
    """
    deadline_ns = now_ns() + int(bound_s * NS_PER_S)
    while True:
        late = now_ns() >= deadline_ns
        state = await look(looking, target)
        _check_convergence(state, _called(looking, target))
        if state.ok or late:
            return state
        await asyncio.sleep(every_s)
