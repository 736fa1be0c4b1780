"""`LiveCluster`, the argument of a test's coroutine: operations, traffic, roles, and the cluster.

Operations are recorded as in a run. `process` is the test's own number for a client. Each number
maps to a process in the history. After an `info` it maps to a new process, since a process whose
operation may still take effect must never be used again. The processes of `traffic`, which runs the
workload's own generator, have lower numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from harness.errors import TargetError, UsageError
from harness.generator import stagger
from harness.ops import NS_PER_S, OpType
from harness.plan.planning import Plan
from harness.plugins import Client, Completion, Convergence, Environment, Nemesis, Request, Session
from harness.run.live_target import OpenedTarget
from harness.run.probe import close_quietly, invoke_safely
from harness.run.recorder import Recorder

PROCESS_FIRST: Final = 1_000_000_000
POLL_S: Final = 0.1


class LiveCluster(OpenedTarget):
    """A deployment while the test's coroutine runs. `asyncio.sleep` uses the environment's time.

    `cluster` is the interface for nemeses: nodes, and faults as data (see
    `harness.cluster.Cluster`). `env` is the interface for clients: clock, network, randomness (see
    `harness.env`).
    """

    plan: Plan

    def __init__(
        self,
        plan: Plan,
        session: Session,
        recorder: Recorder,
        environment: Environment,
        clocks: frozenset[str],
    ) -> None:
        """Wrap a deployment. `clocks` are the foreign programs that support clock faults."""
        self.nemeses: dict[str, Nemesis] = {}
        super().__init__(plan, session, recorder, self.nemeses)
        self.environment = environment
        self.clocks = clocks
        self._clients: dict[int, tuple[int, Client]] = {}
        self._busy: set[int] = set()
        self._next_process = PROCESS_FIRST
        self._traffic_processes: list[int] | None = None
        self._in_traffic = False

    # --- operations ----------------------------------------------------------------------------

    async def invoke(
        self, f: str, value: object = None, *, process: int = 0, timeout_s: float | None = None
    ) -> Completion:
        """Do and record one operation in the workload's vocabulary; returns failures, too.

        A `process` does one operation at a time. `timeout_s` is by default `Case.op_timeout_s`.
        """
        if process in self._busy:
            raise UsageError(
                f"process {process} does {f!r} while its last operation is still open; a process "
                "does one operation at a time: pass another `process=`"
            )
        bound_s = self.plan.case.op_timeout_s if timeout_s is None else timeout_s
        request = Request(f, {} if value is None else value)
        number, client = self._client_of(process)
        self._busy.add(process)
        self.recorder.record(number, OpType.INVOKE, request.f, request.value)
        completion = Completion(OpType.INFO, request.value, error="cancelled by the test")
        try:
            completion = await invoke_safely(client, request, bound_s)
        finally:
            self._busy.discard(process)
            self.recorder.complete(number, request.f, completion)
            if completion.type is OpType.INFO:
                await close_quietly(self._clients.pop(process)[1])
        return completion

    @contextlib.asynccontextmanager
    async def traffic(self) -> AsyncIterator[None]:
        """Run the workload in the background. The end of the block waits for open operations."""
        if self._in_traffic:
            raise UsageError("traffic() is already running; run one such block at a time")
        self._in_traffic = True
        case = self.plan.case
        if self._traffic_processes is None:
            self._traffic_processes = list(range(case.concurrency))
        stop = asyncio.Event()
        task = self.env.spawn(
            self.drive(
                stagger(1 / case.rate, self.plan.workload.generator(case)),
                stop=stop,
                processes=self._traffic_processes,
            ),
            name="traffic",
        )
        try:
            yield
        finally:
            stop.set()
            await task
            self._in_traffic = False

    def _client_of(self, process: int) -> tuple[int, Client]:
        if process not in self._clients:
            self._clients[process] = (self._next_process, self.client(self._next_process))
            self._next_process += 1
        return self._clients[process]

    # --- looking and waiting -------------------------------------------------------------------

    async def wait_leader(self, *, other_than: str | None = None, bound_s: float = 60.0) -> str:
        """Wait until a leader serves; returns its node. Raises `TargetError` after `bound_s`."""
        deadline_ns = self.recorder.now_ns() + int(bound_s * NS_PER_S)
        while True:
            roles = await self.roles()
            leader = roles.leader
            if leader is not None and leader != other_than and roles.by_node[leader].ready:
                return leader
            if self.recorder.now_ns() >= deadline_ns:
                but = "" if other_than is None else f" other than {other_than}"
                raise TargetError(f"no leader{but} served within {bound_s:g} s; roles: {roles}")
            await asyncio.sleep(POLL_S)

    async def wait_ready(self, bound_s: float = 60.0) -> None:
        """Wait until the target serves; raises `TargetError` with the reason."""
        await self._wait(self.system.ready, bound_s, "ready")
        self.scribe.observe_roles(await self.roles())

    async def wait_converged(self, bound_s: float = 90.0) -> None:
        """Wait until the target has settled; raises `TargetError` with the reason."""
        await self._wait(self.system.converged, bound_s, "converged")

    async def _wait(
        self, looking: Callable[[], Coroutine[Any, Any, Convergence]], bound_s: float, what: str
    ) -> None:
        state = await self.poll(looking, bound_s=bound_s, every_s=POLL_S)
        if not state.ok:
            pending = "; ".join(state.pending) or "no reason given"
            raise TargetError(f"the target was not {what} within {bound_s:g} s: {pending}")

    async def close(self) -> None:
        """Heal all faults and close all clients, at the end of the run."""
        await self.ledger.heal_active()
        for _, client in self._clients.values():
            await close_quietly(client)
        self._clients.clear()
