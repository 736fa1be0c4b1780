"""One lock that clients acquire and release. The vocabulary is `harness.vocabularies.locks`.

A client that holds the lock releases it next, and retries a failed release. It never acquires a
lock that it may already hold, because only some locks allow this.

Shortly before the end of the run, clients only release the lock. If all releases succeeded, the
final acquire must succeed too. So the checker finds a lock that stays held after its release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import NS_PER_S, Op, OpType
from harness.plugins import API_VERSION, Completion, Option, Request, Workload, override
from harness.vocabularies import Call
from harness.vocabularies.locks import Acquire, Release

ACQUIRING: Final = 0.9
"""The share of the run in which clients acquire the lock."""


@dataclasses.dataclass(frozen=True, slots=True)
class _LockOps:
    """A generator of acquires and releases of the lock.

    It emits acquires for `acquiring_ns` from the first operation on. Then it emits releases until
    no process holds the lock. `holders` are the processes whose last acquire succeeded.
    """

    acquiring_ns: int
    end_ns: int | None = None
    holders: frozenset[int | str] = frozenset()

    def op(self, ctx: Context) -> Step:
        if self.end_ns is None:
            end_ns = ctx.time_ns + self.acquiring_ns
            return dataclasses.replace(self, end_ns=end_ns).op(ctx)
        if ctx.time_ns >= self.end_ns:
            return self._release(ctx)
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        call: Call = Release() if process in self.holders else Acquire()
        return Emit(Draft(call.f, call.asked(), process), self)

    def _release(self, ctx: Context) -> Step:
        for process in ctx.processes:
            if process in self.holders and ctx.is_free(process):
                return Emit(Draft(Release.f, Release().asked(), process), self)
        return None if ctx.free_mask == ctx.all_mask else Pending(self)

    def update(self, ctx: Context, event: Op) -> _LockOps:
        del ctx
        if event.type is OpType.INFO or (event.type is OpType.OK and event.f == Release.f):
            return dataclasses.replace(self, holders=self.holders - {event.process})
        if event.type is OpType.OK and event.f == Acquire.f:
            return dataclasses.replace(self, holders=self.holders | {event.process})
        return self


class LockWorkload(Workload):
    """Clients that compete for one lock."""

    api_version = API_VERSION
    name = "lock"
    doc = "acquire and release one lock: at most one client holds it"
    vocabulary = "lock"
    options: tuple[Option, ...] = ()
    checkers = ("owned-mutex", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        return _LockOps(int(case.time_limit_s * ACQUIRING * NS_PER_S))

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        del case, attempt, retry
        return (Request.of(Acquire()), Request.of(Release()))

    def final(self, case: Case) -> Sequence[Request]:
        """Request an acquire and a release; they are judged like all other operations."""
        del case
        return (Request.of(Acquire()), Request.of(Release()))

    @override
    def serves(self, completion: Completion) -> bool:
        """Whether the answer shows that the lock works. A refusal also shows this.

        A lock may be refused forever if it is held by a closed client, or by a client whose release
        was lost.
        """
        refused = completion.type is OpType.FAIL and completion.value is not None
        return refused or super().serves(completion)
