"""Conducts one run, phase by phase, in any environment.

setup -> warm-up -> chaos (the workload under faults) -> heal a quorum core, which must serve within
a time limit -> heal all -> converge -> final reads and snapshot -> seal. The phases after chaos
follow TigerBeetle's simulator (`src/vopr.zig`): safety first, then liveness on a core.

`conduct` runs all phases. `harness.verdict.judge` checks the history after the teardown of the
cluster: a failing teardown can never destroy a verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.cluster import Capability, Link, Usage
from harness.errors import InfrastructureError, TargetError, listed, shown
from harness.generator import phases, sleep, stagger, time_limit, timed_ops
from harness.nodes.deployment import start_bound_s, start_down
from harness.nodes.faults import Cut
from harness.ops import NS_PER_S, History, Op
from harness.plan.deploying import deployment_of
from harness.plan.planning import Plan
from harness.plan.reach import refuse_unable
from harness.plugins import Client, Convergence, Environment, Request, Session
from harness.run.conductor import LEASE_GRACE_S
from harness.run.heartbeat import Heartbeat
from harness.run.live_target import OpenedTarget, look
from harness.run.operations import restore
from harness.run.probe import POLL_S, Driver, probe
from harness.run.recorder import Observer, Recorder, observe
from harness.store.folder import RunFolder
from harness.support.interrupts import PLUGIN_FAILURES, UserInterrupt, blaming

NODES_SHOWN_MAX: Final = 20
WARM_UP_S: Final = 2.0
LIVE_BOUND_S: Final = 60.0
"""The liveness limit: after a quorum is healed, every kind of operation must succeed within this
time. It is three times Kudu's longest election timeout (`leader_failure_exp_backoff_max_delta_ms`:
20 s). In a slow simulated world, this limit and the next are longer (`Session.patience`)."""
CONVERGE_BOUND_S: Final = 90.0
FINAL_BOUND_S: Final = 120.0
"""The time limit for all final reads together. The history counts the reads that are missing."""
FINALS_MAX: Final = 5
"""The maximum number of times that all final reads are done, if the target changes meanwhile."""
USAGE_POLL_S: Final = 10.0
"""How often the resource use of nodes is measured."""
LEADER_POLL_S: Final = 1.0
"""How often the leader is asked for, if no node reports that it leads."""
PATIENCE_S_MIN: Final = 2.0
"""The minimum timeout of the harness's own operations, even if the workload's clients wait less:
the promise under test is that the target serves, not how fast."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run: its history, and whether the user ended it early.

    An interrupt ends only the workload. An interrupt after the workload does not change the run or
    its verdict, but the user still wants to stop: a caller with more runs checks `stop_asked`.
    """

    history: History
    interrupted: bool
    stop_asked: bool
    wall_ns: int
    trace_digest: str | None
    frozen: str | None = None  # the name of the cluster that a violation froze


def conduct(
    plan: Plan,
    environment: Environment,
    *,
    run_id: str,
    folder: RunFolder | None,
    label: str | None = None,
    logs_below: Path | None = None,
    link_proxy: str | None = None,
    listener: Callable[[Op], None] | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Deploy, run all phases, tear down, and return the history (sealed in `folder`, if given).

    If `folder` is `None`, the logs of nodes go into the folder `logs_below`, if it is given.

    Raises `InfrastructureError` or `TargetError` if there is nothing to judge: the nodes did not
    start, or a fault did not take effect. The op log then stays in the folder.
    """
    logs = logs_below if folder is None else folder.path
    deployment = deployment_of(plan, run_id=run_id, folder=logs, link_proxy=link_proxy)
    log = None if folder is None else folder.open_log()

    async def main(session: Session) -> Outcome:
        recorder = Recorder(session.env.clock, log)
        if listener is not None:
            recorder.listen(listener)
        if observer is not None:
            observe(observer, recorder, session.cluster)
        interrupted = await Run(plan, session, recorder).phases()
        return Outcome(
            history=recorder.history(),
            interrupted=interrupted,
            stop_asked=session.interrupted.is_set(),
            wall_ns=recorder.now_ns(),
            trace_digest=session.trace_digest(),
        )

    try:
        outcome = environment.execute(deployment, main)
    finally:
        if log is not None:
            log.close()
    if folder is not None:
        folder.seal(outcome.history, label=label)
    return outcome


class Run(OpenedTarget):
    """The opened target of one run, and the state that the phases of the run share."""

    plan: Plan

    def __init__(self, plan: Plan, session: Session, recorder: Recorder) -> None:
        """Open the target; raises `UsageError` if this session cannot do the plan's faults."""
        cluster = session.cluster  # this session may support less than its environment usually does
        refuse_unable(plan.nemeses, cluster.environment, cluster.capabilities)
        super().__init__(plan, session, recorder, plan.nemeses)
        self.case = plan.case
        self.phase = ""
        self.faults: asyncio.Task[None] | None = None
        """the task that injects the planned faults; it ends after `conductor.end()`"""
        patience_s = max(self.case.op_timeout_s, PATIENCE_S_MIN)
        self._driver = Driver(
            recorder, self._own_client, patience_s=patience_s, workload=self.plan.workload
        )
        self._heartbeat = Heartbeat(recorder)
        self._core_cut: str | None = None
        self._cut_short = False

    async def phases(self, *, ends: Callable[[], bool] = lambda: False) -> bool:
        """Run all phases in order; returns whether the user ended the workload early.

        After the workload, no phase begins once `ends()` is true.
        """
        self._heartbeat.start()
        self._watches: list[asyncio.Task[None]] = []
        try:
            await self._phases(ends)
        finally:
            self._heartbeat.stop()
            for watch in self._watches:
                watch.cancel()
        return self._cut_short

    async def _phases(self, ends: Callable[[], bool]) -> None:
        self._phase("setup")
        if any(spec.entry is None for spec in self.cluster.nodes.values()):
            self.recorder.fact("clock", {"wall_ns": self.env.clock.wall_ns()})
        await self.become_ready()
        if not self.scribe.announced:
            self._watches.append(self.env.spawn(self._watch_leaders(), name="leaders"))
        measuring = self.env.spawn(self._watch_usage(), name="usage")
        self._watches.append(measuring)
        await self._workload_under_faults()
        if self._cut_short:
            self.recorder.fact("interrupted", {"phase": "chaos"})
        for name, phase in (("heal-core", self._heal_core), ("heal-all", self._heal_all)):
            if ends():
                return
            self._phase(name)
            await phase()
        if ends():
            return
        self._phase("converge")
        settled = await self._converge()
        if ends():
            return
        self._phase("final")
        await self._final(settled, measuring)

    def _phase(self, name: str) -> None:
        self.phase = name
        self.recorder.fact("phase", {"phase": name})

    # --- setup and chaos ---------------------------------------------------------------------

    async def _watch_leaders(self) -> None:
        """Record the leader at regular intervals; a failed inspection is ignored."""
        while True:
            await asyncio.sleep(LEADER_POLL_S)
            try:
                roles = await self.roles()
            except UserInterrupt:
                raise
            except PLUGIN_FAILURES:
                continue
            self.scribe.observe_roles(roles)

    async def _workload_under_faults(self) -> None:
        self._phase("warm-up")
        self.faults = self.env.spawn(self._inject_faults(), name="faults")
        if self.case.ops is not None:
            start_ns = self.recorder.now_ns() + int(WARM_UP_S * NS_PER_S)
            generator = phases(sleep(WARM_UP_S), timed_ops(self.case.ops, start_ns=start_ns))
        else:
            with blaming(f"the workload {self.case.workload!r}: generator()"):
                generator = stagger(1 / self.case.rate, self.plan.workload.generator(self.case))
        limited = time_limit(WARM_UP_S + self.case.time_limit_s, generator)
        await self.drive(limited, stop=self.session.interrupted)
        self._cut_short = self.session.interrupted.is_set()
        self.conductor.end()
        await self.faults

    async def _inject_faults(self) -> None:
        await asyncio.sleep(WARM_UP_S)
        self._phase("chaos")
        await self.conductor.run(self.case.faults or ())

    def _own_client(self, process: int) -> Client:
        with blaming(f"the target {self.case.system!r}: client()"):
            return self.client(process)

    # --- healing -----------------------------------------------------------------------------

    async def _heal_core(self) -> None:
        """Heal a quorum, cut the other nodes off from it, and check that the quorum serves.

        The other nodes stay broken. They are cut off because a leader among them, with unreliable
        links to the core, could keep the core's followers without being able to serve clients.
        """
        live_bound_s = LIVE_BOUND_S * (patience := self.session.patience)
        await self.roles()  # the members may have changed since the roles were last read
        core = self._core()
        rest = [name for name in self.cluster.nodes if name not in core]
        if core and rest and Capability.PARTITION in self.cluster.capabilities:
            links = tuple(Link.between(core, rest))
            lease_s = start_bound_s(self.cluster.nodes, core) + live_bound_s + LEASE_GRACE_S
            self._core_cut = await self.cluster.inject(Cut(), links, lease_s=lease_s)
        await self.ledger.relieve(core)
        await start_down(self.cluster, core)
        begin_ns = self.recorder.now_ns()
        probed = await probe(
            self._driver,
            self._probe_requests,
            now_ns=self.recorder.now_ns,
            deadline_ns=begin_ns + int(live_bound_s * NS_PER_S),
            late_tries_max=len(self.cluster.nodes),
        )
        self.recorder.fact(
            "live",
            {
                "core": core,
                "rest": rest,
                "ok": not probed.missing,
                "took_s": (self.recorder.now_ns() - begin_ns) / NS_PER_S,
                "bound_s": live_bound_s,
                "missing": probed.missing,
                "asked": probed.asked,
                "asked_late": probed.asked_late,
                **({} if patience == 1 else {"patience": patience}),
                # In both of these cases the checker `liveness` gives no verdict on the probe.
                **({} if probed.kinds else {"kinds": []}),
                **({} if probed.breach is None else {"breach": probed.breach}),
            },
        )

    def _core(self) -> list[str]:
        """Return the nodes that must serve while all other nodes are cut off.

        Raises `TargetError` if the target names an unknown node.
        """
        what = f"the target {self.case.system!r}: core()"
        with blaming(what):
            names = self.system.core(self.stream("core"))
            if isinstance(names, str):
                raise TypeError(f"{shown(names)} is one text; core() must return a list of names")
            core = list(names)
        nodes = self.cluster.nodes
        unknown = [name for name in core if not isinstance(name, str) or name not in nodes]
        if unknown:
            nodes_listed = listed(list(self.cluster.nodes), limit=NODES_SHOWN_MAX)
            raise TargetError(
                f"{what} names {shown(unknown[0])}, which is not a node; the nodes are "
                f"{nodes_listed}"
            )
        return core

    def _probe_requests(self, attempt: int, retry: int) -> Sequence[Request]:
        with blaming(f"the workload {self.case.workload!r}: probe()"):
            return _requests(self.plan.workload.probe(self.case, attempt, retry))

    async def _heal_all(self) -> None:
        if self._core_cut is not None:
            await self.ledger.heal(self._core_cut)
        await self.ledger.heal_all()
        await start_down(self.cluster, self.cluster.nodes)
        await restore(self.cluster, self.system)

    async def _converge(self) -> Convergence:
        begin_ns, bound_s = self.recorder.now_ns(), CONVERGE_BOUND_S * self.session.patience
        state = await self.poll(self.system.converged, bound_s=bound_s, every_s=POLL_S)
        self.recorder.fact(
            "converged",
            {
                "ok": state.ok,
                "took_s": (self.recorder.now_ns() - begin_ns) / NS_PER_S,
                "bound_s": bound_s,
                "pending": list(state.pending),
                **({} if state.at is None else {"at": state.at}),
            },
        )
        return state

    async def _final(self, settled: Convergence, measuring: asyncio.Task[None]) -> None:
        """Do all final reads, and dump the settled state of every node.

        If the state changed meanwhile, both are repeated. A delayed request, for which no client
        waits any more, may still arrive during the reads; the target then has to settle again.
        """
        for _ in range(FINALS_MAX):
            await self._final_reads()
            snapshot = await look(self.system.snapshot, self.case.system)
            self._require_json(snapshot)
            if not settled.ok or _is_of(snapshot, settled):
                break
            settled = await self._converge()
        self.scribe.summarize()
        measuring.cancel()
        await self._measure(at_rest=True)
        self.recorder.fact("snapshot", snapshot)
        await self._driver.close()

    def _require_json(self, snapshot: object) -> None:
        """Raise `TargetError` for a snapshot that a history cannot contain. `None` is allowed."""
        what = f"the target {self.case.system!r}: snapshot()"
        if snapshot is not None and not isinstance(snapshot, Mapping):
            raise TargetError(f"{what} returned {shown(snapshot)}, which is not a dict")
        try:
            msgspec.json.encode(snapshot)
        except Exception as error:
            raise TargetError(f"{what} returned a value that is not plain JSON: {error}") from error

    async def _watch_usage(self) -> None:
        while True:
            await asyncio.sleep(USAGE_POLL_S)
            await self._measure()

    async def _measure(self, *, at_rest: bool = False) -> None:
        """Record each node's resource use, as far as it can be measured.

        With `at_rest`, also record the op `memory`.
        """
        usages: dict[str, Usage] = {}
        for name in self.cluster.nodes:
            try:
                usages[name] = await self.cluster.usage(name)
            except InfrastructureError as error:
                usages[name] = Usage()
                # Only the last measurement records a failure, because earlier ones are repeated.
                if at_rest:
                    self.recorder.fact("infrastructure", {"node": name, "what": str(error)})
        measured = {
            what: {name: getattr(each, what) for name, each in usages.items()}
            for what in Usage._fields
            if any(getattr(each, what) is not None for each in usages.values())
        }
        if measured:
            self.recorder.fact("usage", measured)
        if at_rest and "memory_bytes" in measured:
            self.recorder.fact("memory", {"bytes": measured["memory_bytes"]})

    async def _final_reads(self) -> None:
        deadline_ns = self.recorder.now_ns() + int(FINAL_BOUND_S * NS_PER_S)
        with blaming(f"the workload {self.case.workload!r}: final()"):
            requests = _requests(self.plan.workload.final(self.case))
        unread = [
            request for request in requests if not await self._driver.read(request, deadline_ns)
        ]
        if unread:
            self.recorder.fact(
                "unread", {"count": len(unread), "of": len(requests), "bound_s": FINAL_BOUND_S}
            )


def _requests(planned: Iterable[Request]) -> list[Request]:
    requests = list(planned)
    for request in requests:
        if not isinstance(request, Request):
            raise TypeError(f"{shown(request)} is not a Request")
    return requests


def _is_of(snapshot: object, settled: Convergence) -> bool:
    """Whether `snapshot` shows the state `settled`: nothing is pending, and `at` is equal."""
    fields = snapshot if isinstance(snapshot, Mapping) else {}
    return not fields.get("pending") and fields.get("at") == settled.at
