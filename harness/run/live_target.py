"""A target opened on its deployment, for runs and for the coroutines of tests.

It records events, drives clients with a generator, conducts faults, and inspects the target with
time limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from harness.case import stream
from harness.cluster import Cluster
from harness.errors import TargetError, shown
from harness.faults.door import Door
from harness.generator import GeneratorLike
from harness.permits import fact_of
from harness.plan.planning import TargetPlan, permits_of_target
from harness.plugins import (
    Client,
    Convergence,
    Deployment,
    Nemesis,
    Roles,
    Session,
    System,
    first_roles,
)
from harness.run.bounded_calls import look_at_groups, poll
from harness.run.conductor import FaultConductor
from harness.run.interpreter import interpret
from harness.run.probe import POLL_S
from harness.run.recorder import EventScribe, Recorder
from harness.support.interrupts import blaming

READY_BOUND_S: Final = 60.0


class OpenedTarget:
    """The target of `plan` in this session."""

    def __init__(
        self, plan: TargetPlan, session: Session, recorder: Recorder, nemeses: Mapping[str, Nemesis]
    ) -> None:
        """`nemeses` are all nemeses that faults may name, now or later."""
        self.plan = plan
        self.session = session
        self.env = session.env
        self.recorder = recorder
        nodes = session.cluster.nodes
        self.scribe = EventScribe(recorder, nodes.values())
        # This must come first: only the first subscriber receives events from before the
        # subscription.
        session.cluster.subscribe(self.scribe.on_event)
        if permits := permits_of_target(plan.target, plan.settings):
            recorder.fact("permits", fact_of(plan.settings.profile, permits))
        with blaming(f"the target {plan.case.target!r}: open()"):
            self.system = plan.target.open(Deployment(session.env, plan.settings, nodes))
            if not isinstance(self.system, System):
                raise TypeError(
                    f"it returned {shown(self.system)}, of no subclass of harness.plugins.System"
                )
        self.conductor = FaultConductor(
            cluster=session.cluster,
            env=session.env,
            system=self.system,
            nemeses=nemeses,
            recorder=recorder,
            observe_roles=self.scribe.observe_roles,
            damage=plan.case.damage,
            groups=self._groups,
        )
        self.ledger = self.conductor.ledger
        self.cluster: Cluster = Door(session.cluster, self.ledger)

    def client(self, process: int) -> Client:
        """A client of the target for this process."""
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
            rng=stream(case.seed, "workload"),
            stop=stop,
            processes=processes,
        )

    async def roles(self) -> Roles:
        """The current roles in the main group, as its nodes report them."""
        return first_roles(await self._groups())

    async def _groups(self) -> Mapping[str, Roles]:
        return await look_at_groups(self.system.groups, self.plan.case.target)

    async def become_ready(self, bound_s: float = READY_BOUND_S) -> None:
        """Wait until the target serves; raises `TargetError` with open points and node logs."""
        state = await self.poll(self.system.ready, bound_s=bound_s, every_s=POLL_S)
        if not state.ok:
            logs = []
            for name in list(self.cluster.nodes)[:3]:
                logs.append(f"--- {name}")
                logs.extend(await self.cluster.logs(name, last_lines=5))
            pending = "; ".join(state.pending) or "no reason given"
            raise TargetError(
                f"the target was not ready within {bound_s:g} s: {pending}\n" + "\n".join(logs)
            )
        self.scribe.observe_roles(await self.roles())

    async def poll(
        self,
        looking: Callable[[], Coroutine[Any, Any, Convergence]],
        *,
        bound_s: float,
        every_s: float,
    ) -> Convergence:
        """Inspect the target until it is ready or the bound is over (`bounded_calls.poll`)."""
        now_ns = self.recorder.now_ns
        name = self.plan.case.target
        return await poll(looking, name, now_ns=now_ns, bound_s=bound_s, every_s=every_s)
