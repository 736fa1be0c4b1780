"""A lock with leases. Clients acquire it, and then release it or let the lease expire.

Of every four leases, clients release one in time and allow one to expire. They try to release the
other two after the lease has ended, when another client may hold the lock. A client never acquires
a lock that it may hold. The vocabulary is `harness.vocabularies.leases`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from harness.case import Case
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import NS_PER_MS, Op, OpType
from harness.plugins import API_VERSION, Completion, Option, Request, Workload, override
from harness.vocabularies import Call
from harness.vocabularies.leases import Acquire, Release

LEASE_MS_MAX: Final = 60_000
_PLANS: Final = ("release", "release late", "leave", "release late")


@dataclasses.dataclass(frozen=True, slots=True)
class _LeaseOps:
    """An endless generator.

    `held` maps each process whose last acquire succeeded to the end of its lease and to its plan.
    `grants` counts the leases.
    """

    lease_ms: int
    held: Mapping[int | str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    grants: int = 0

    def op(self, ctx: Context) -> Step:
        free = [process for process in ctx.processes if ctx.is_free(process)]
        if not free:
            return Pending(self)
        first = ctx.random.randrange(len(free))
        starts = {}
        for process in [*free[first:], *free[:first]]:
            end_ns, plan = self.held.get(process, (0, "acquire"))
            if plan == "release" or end_ns <= ctx.time_ns:
                return self._emitted(process, plan)
            starts[process] = end_ns
        # Every free client waits for its lease to end, so emit the operation that is due first.
        process = min(starts, key=lambda each: starts[each])
        return self._emitted(process, self.held[process][1], starts[process])

    def _emitted(self, process: int, plan: str, time_ns: int | None = None) -> Step:
        call: Call = Release() if plan.startswith("release") else Acquire(self.lease_ms)
        following = self
        if plan in {"release late", "leave"}:
            following = self._without(process)
        return Emit(Draft(call.f, call.asked(), process, time_ns), following)

    def update(self, ctx: Context, event: Op) -> _LeaseOps:
        del ctx
        if event.type is OpType.OK and event.f == Acquire.f:
            end_ns = event.time + self.lease_ms * NS_PER_MS
            plan = _PLANS[self.grants % len(_PLANS)]
            held = {**self.held, event.process: (end_ns, plan)}
            return dataclasses.replace(self, held=held, grants=self.grants + 1)
        if event.type is OpType.INFO or (event.type is not OpType.INVOKE and event.f == Release.f):
            return self._without(event.process)
        return self

    def _without(self, process: int | str) -> _LeaseOps:
        held = {who: what for who, what in self.held.items() if who != process}
        return dataclasses.replace(self, held=held)


class LeaseWorkload(Workload):
    """Clients that compete for one lock with leases."""

    api_version = API_VERSION
    name = "lease"
    doc = "acquire one lock, release it or let its lease expire: no two clients hold it at once"
    vocabulary = "lease"
    options = (Option("lease-ms", 500, "length of a lease in ms", within=(10, LEASE_MS_MAX)),)
    checkers = ("lease", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        return _LeaseOps(int(case.workload_options["lease_ms"]))

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        del attempt, retry
        lease_ms = int(case.workload_options["lease_ms"])
        return (Request.of(Acquire(lease_ms)), Request.of(Release()))

    def final(self, case: Case) -> Sequence[Request]:
        """Request an acquire and a release; they are judged like all other operations."""
        return self.probe(case, 0, 0)

    @override
    def serves(self, completion: Completion) -> bool:
        """Whether the answer shows that the lock works.

        A refusal also shows this, since another client may still have a lease.
        """
        refused = completion.type is OpType.FAIL and completion.value is not None
        return refused or super().serves(completion)
