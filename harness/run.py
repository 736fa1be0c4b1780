"""One run, as phases, in any environment.

setup -> warm-up -> chaos (the workload under faults) -> heal a quorum core, which must come to
life within a bound -> heal all -> converge -> final reads and snapshot -> seal. The phases after
chaos follow TigerBeetle's simulator (`src/vopr.zig`): safety first, then liveness on a core.

`conduct` is the whole of it. The history is checked by `harness.checking`, after the cluster is
gone: a failing teardown can never destroy a verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import msgspec

from harness.case import NS_PER_S, stream
from harness.cluster import Capability, Link, NodeState
from harness.errors import TargetError
from harness.faults import LEASE_GRACE_S, FaultConductor
from harness.generator import LOG, phases, sleep, stagger, time_limit, timed_ops
from harness.guarded import closed, completed, look, poll
from harness.interpreter import interpret
from harness.ops import History, Op, OpType
from harness.planning import Plan
from harness.plugins import (
    Client,
    Completion,
    Convergence,
    DeploymentPlan,
    Environment,
    Request,
    Session,
)
from harness.recorder import EventScribe, Recorder
from harness.store.folder import RunFolder

__all__ = ["Outcome", "conduct"]

T = TypeVar("T")

READY_BOUND_S: Final = 60.0
WARM_UP_S: Final = 2.0
LIVE_BOUND_S: Final = 60.0
"""Liveness: with a quorum whole again, every kind of operation succeeds within this. Three of
Kudu's longest election timeouts (`leader_failure_exp_backoff_max_delta_ms` = 20 s)."""
CONVERGE_BOUND_S: Final = 90.0
FINAL_BOUND_S: Final = 120.0
"""All final reads together; what is still unread then is said in the history."""
PATIENCE_S_MIN: Final = 2.0
"""The driver's own operations wait at least this long, however impatient the workload's clients
are: the promise under test is that the target serves, not that it does so within a millisecond."""
POLL_S: Final = 0.25
FINAL_TRIES_MAX: Final = 40


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run left: its history, and whether it was cut short by the user."""

    history: History
    interrupted: bool
    wall_ns: int
    trace_digest: str | None


def conduct(
    plan: Plan,
    environment: Environment,
    *,
    run_id: str,
    folder: RunFolder | None,
    link_proxy: str | None = None,
    listener: Callable[[Op], None] | None = None,
) -> Outcome:
    """Deploy, run all phases, tear down, and return the history (sealed in `folder`, if given).

    Raises `InfrastructureError` or `TargetError` when there is nothing to judge: the nodes did not
    come up, or a fault did not take. The op log then stays in the folder.
    """
    deployment = DeploymentPlan(
        run_id=run_id,
        nodes=plan.nodes,
        seed=plan.case.seed,
        knobs=plan.case.knobs,
        folder=None if folder is None else folder.path,
        link_proxy=link_proxy,
    )
    log = None if folder is None else folder.open_log()

    async def main(session: Session) -> Outcome:
        recorder = Recorder(session.env.clock, log)
        if listener is not None:
            recorder.listen(listener)
        run = _Run(plan, session, recorder)
        interrupted = await run.phases()
        digest = getattr(session, "trace_digest", None)
        return Outcome(
            history=recorder.history(),
            interrupted=interrupted,
            wall_ns=recorder.now_ns(),
            trace_digest=digest() if callable(digest) else None,
        )

    try:
        outcome = environment.execute(deployment, main)
    finally:
        if log is not None:
            log.close()
    if folder is not None:
        folder.seal(outcome.history)
    return outcome


class _Run:
    """The state the phases share."""

    def __init__(self, plan: Plan, session: Session, recorder: Recorder) -> None:
        self.plan = plan
        self.case = plan.case
        self.session = session
        self.cluster = session.cluster
        self.env = session.env
        self.recorder = recorder
        self._scribe = EventScribe(recorder, session.cluster.nodes.values())
        self.conductor = FaultConductor(
            cluster=session.cluster,
            env=session.env,
            target=plan.target,
            settings=plan.settings,
            nemeses=plan.nemeses,
            recorder=recorder,
            observe_roles=self._scribe.meet,
        )
        self._next_process: int | None = None
        self._core_cut: str | None = None
        self._driver: tuple[int, Client] | None = None
        self._patience_s = max(self.case.op_timeout_s, PATIENCE_S_MIN)
        session.cluster.subscribe(self._scribe.take)

    async def phases(self) -> bool:
        """All phases in order; whether the user cut them short."""
        self._phase("setup")
        await self._become_ready()
        await self._workload_under_faults()
        if self.session.interrupted.is_set():
            self.recorder.fact("interrupted", {"phase": "chaos"})
        self._phase("heal-core")
        await self._heal_core()
        self._phase("heal-all")
        await self._heal_all()
        self._phase("converge")
        await self._converge()
        self._phase("final")
        await self._final_reads()
        return self.session.interrupted.is_set()

    def _phase(self, name: str) -> None:
        self.recorder.fact("phase", {"phase": name})

    # --- setup and chaos ---------------------------------------------------------------------

    async def _become_ready(self) -> None:
        state = await self._poll(
            lambda: self.plan.target.ready(self.env, self.plan.settings), READY_BOUND_S
        )
        if not state.ok:
            logs = []
            for name in list(self.cluster.nodes)[:3]:
                logs.append(f"--- {name}")
                logs.extend(await self.cluster.logs(name, last_lines=5))
            pending = "; ".join(state.pending) or "no reason given"
            raise TargetError(
                f"the target was not ready within {READY_BOUND_S:g} s: {pending}\n"
                + "\n".join(logs)
            )
        roles = await look(self.plan.target.roles(self.env, self.plan.settings), self.case.target)
        self._scribe.meet(roles)

    async def _workload_under_faults(self) -> None:
        self._phase("warm-up")
        faults = self.env.spawn(self._faults(), name="faults")
        if self.case.ops is not None:
            generator = phases(sleep(WARM_UP_S), timed_ops(self.case.ops))
        else:
            generator = stagger(1 / self.case.rate, self.plan.workload.generator(self.case))
        await interpret(
            time_limit(WARM_UP_S + self.case.time_limit_s, generator),
            env=self.env,
            open_client=self._client,
            concurrency=self.case.concurrency,
            recorder=self.recorder,
            op_timeout_s=self.case.op_timeout_s,
            rng=stream(self.case.seed, "workload"),
            stop=self.session.interrupted,
        )
        self.conductor.end()
        await faults

    async def _faults(self) -> None:
        await asyncio.sleep(WARM_UP_S)
        self._phase("chaos")
        await self.conductor.run(self.case.faults or ())

    def _client(self, process: int) -> Client:
        return self.plan.target.client(self.env, self.plan.settings, process)

    # --- healing -----------------------------------------------------------------------------

    async def _heal_core(self) -> None:
        """Make a quorum whole, cut the rest off from it, and demand that it serves.

        The rest stays as broken as it is. It is cut off because a node that may or may not reach
        the core is no promise of anybody's: a leader among the rest could keep the core's followers
        without reaching what it needs to serve.
        """
        core = list(
            self.plan.target.quorum_core(self.plan.settings, stream(self.case.seed, "core"))
        )
        rest = [name for name in self.cluster.nodes if name not in core]
        if rest and Capability.PARTITION in self.cluster.capabilities:
            self._core_cut = await self.cluster.cut(
                Link.between(core, rest), lease_s=LIVE_BOUND_S + LEASE_GRACE_S
            )
        for name in core:
            await self.cluster.resume(name)
        await self.cluster.heal_among(core)
        for name in core:
            if self.cluster.state(name) is NodeState.DOWN:
                await self.cluster.start(name)
        begin_ns = self.recorder.now_ns()
        missing = await self._probe(begin_ns + int(LIVE_BOUND_S * NS_PER_S))
        self.recorder.fact(
            "live",
            {
                "core": core,
                "ok": not missing,
                "took_s": (self.recorder.now_ns() - begin_ns) / NS_PER_S,
                "bound_s": LIVE_BOUND_S,
                "missing": missing,
            },
        )

    async def _probe(self, deadline_ns: int) -> list[str]:
        """Kinds of operation that did not succeed before the deadline, of all in the probe.

        A request that definitely did nothing is tried again; one with an unknown outcome starts
        the probe anew, on other names.
        """
        kinds = [request.f for request in self.plan.workload.probe(self.case, 0, 0)]
        missing = set(range(len(kinds)))
        attempt = 0
        while missing and self.recorder.now_ns() < deadline_ns:
            for position in range(len(kinds)):
                if await self._probe_one(attempt, position, deadline_ns) is None:
                    break
                missing.discard(position)
            attempt += 1
        return list(dict.fromkeys(kinds[position] for position in sorted(missing)))

    async def _probe_one(self, attempt: int, position: int, deadline_ns: int) -> Request | None:
        """Try one request of the probe until it succeeds, or gives up with `None`."""
        retry = 0
        while True:
            request = self.plan.workload.probe(self.case, attempt, retry)[position]
            completion = await self._invoke(request)
            if completion.type is OpType.OK:
                return request
            if completion.type is OpType.INFO or self.recorder.now_ns() >= deadline_ns:
                return None
            retry += 1
            await asyncio.sleep(POLL_S)

    async def _invoke(self, request: Request) -> Completion:
        """One operation by the driver's own process, recorded like any other."""
        if self._driver is None:
            self._driver = self._new_driver()
        process, client = self._driver
        self.recorder.record(process, OpType.INVOKE, request.f, request.value)
        completion = await completed(client, request, self._patience_s)
        self.recorder.record(
            process,
            completion.type,
            request.f,
            completion.value,
            error=completion.error,
            node=completion.node,
            attempts=[
                msgspec.structs.replace(
                    attempt,
                    start=attempt.start - self.recorder.start_ns,
                    end=attempt.end - self.recorder.start_ns,
                )
                for attempt in completion.attempts
            ],
        )
        if completion.type is OpType.INFO:
            await self._retire_driver()
        return completion

    async def _retire_driver(self) -> None:
        """Close the driver's client, for a bounded time; how it ends can change no outcome."""
        if self._driver is None:
            return
        (_, client), self._driver = self._driver, None
        error = await closed(client)
        if error is not None:
            self.recorder.fact(LOG, {"message": f"a client did not close: {error!r}"})

    def _new_driver(self) -> tuple[int, Client]:
        """A client under a process number that nobody used: the workload's clients are done."""
        if self._next_process is None:
            used = [op.process for op in self.recorder.history() if isinstance(op.process, int)]
            self._next_process = max(used, default=-1) + 1
        process = self._next_process
        self._next_process += 1
        return process, self._client(process)

    async def _heal_all(self) -> None:
        if self._core_cut is not None:
            await self.cluster.heal(self._core_cut)
        await self.conductor.heal_active()
        await self.cluster.heal_all()
        for name in self.cluster.nodes:
            if self.cluster.state(name) is NodeState.DOWN:
                await self.cluster.start(name)

    async def _converge(self) -> None:
        begin_ns = self.recorder.now_ns()
        state = await self._poll(
            lambda: self.plan.target.converged(self.env, self.plan.settings), CONVERGE_BOUND_S
        )
        self.recorder.fact(
            "converged",
            {
                "ok": state.ok,
                "took_s": (self.recorder.now_ns() - begin_ns) / NS_PER_S,
                "bound_s": CONVERGE_BOUND_S,
                "pending": list(state.pending),
            },
        )

    async def _poll(
        self, looking: Callable[[], Coroutine[Any, Any, Convergence]], bound_s: float
    ) -> Convergence:
        return await poll(
            looking, self.case.target, now_ns=self.recorder.now_ns, bound_s=bound_s, every_s=POLL_S
        )

    async def _final_reads(self) -> None:
        deadline_ns = self.recorder.now_ns() + int(FINAL_BOUND_S * NS_PER_S)
        requests = self.plan.workload.final(self.case)
        unread = [request for request in requests if not await self._read(request, deadline_ns)]
        if unread:
            self.recorder.fact(
                "unread", {"count": len(unread), "of": len(requests), "bound_s": FINAL_BOUND_S}
            )
        snapshot = await look(
            self.plan.target.snapshot(self.env, self.plan.settings), self.case.target
        )
        self.recorder.fact("snapshot", snapshot)
        await self._retire_driver()

    async def _read(self, request: Request, deadline_ns: int) -> bool:
        """Whether one final read succeeded, tried until it does or a bound is hit."""
        for _ in range(FINAL_TRIES_MAX):
            if self.recorder.now_ns() >= deadline_ns:
                return False
            if (await self._invoke(request)).type is OpType.OK:
                return True
            await asyncio.sleep(POLL_S)
        return False
