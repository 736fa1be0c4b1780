"""The history model owned-mutex: a lock that only its holder may release.

In `mutex` (after `knossos.model/mutex`), any process may release the lock. Here only the process
that acquired it may.

**Closed clients.** A system may release the lock of a closed client, but the history does not
record this. So each process that may hold the lock when it is closed gets a release of unknown
outcome. In a run, clients are closed when the phase `heal-core` begins, or after their last
operations.

**The rule `stuck`.** A refused acquire proves nothing while clients compete. It is a violation if
the run's target is at rest and no client can hold the lock: all earlier operations have ended, and
every acquire that may have succeeded is followed by an acknowledged release of its process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from checkers.foreign.model import LinearizabilityCheck
from checkers.foreign.plain_form import outcome_of
from checkers.jepsen.counting_locks import CountingLock
from checkers.jepsen.steps import NEVER
from checkers.linearizability import UNKNOWN, Operation
from checkers.linearizability.models.counting_locks import Release
from harness.case import Case
from harness.ops import CheckResult, History, Op, OpType, Verdict
from harness.vocabularies import locks


class OwnedMutex(CountingLock, version="2"):
    """The history model of a lock that only the process that acquired it may release."""

    name = "owned-mutex"
    doc = "a lock that only its holder releases, free at first; fail: did not happen"
    limit = 1

    def understand(self, history: History) -> LinearizabilityCheck:
        check = super().understand(history)
        return replace(check, parsed=[*check.parsed, *_closings(history)])

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Judge a run, also by the rule `stuck`."""
        result = super().check(history, case, time_limit_s=time_limit_s)
        stuck = _stuck(history)
        if stuck is None or result.verdict is Verdict.INVALID:
            return result
        refused, released = stuck
        text = (
            f"At rest, the acquire by process {refused.process} (op {refused.index}) was refused, "
            "although no client holds the lock: every acquire that may have succeeded was released"
        )
        operations: tuple[int, ...] = (refused.index,)
        if released is not None:
            text += f", last by process {released.process} (op {released.index})"
            operations = (released.index, refused.index)
        details = {**result.details, "rule": "stuck"}
        return CheckResult(self.name, Verdict.INVALID, text, (f"{text}.",), operations, details)


def _closings(history: History) -> Iterator[Operation[Any, Any]]:
    """Yield a release of unknown outcome for each closed client that may still hold the lock."""
    phases = (op.index for op in history.facts("phase") if op.value.get("phase") == "heal-core")
    workload_end = next(phases, None)
    if workload_end is None:
        return
    last: dict[int | str, int] = {}
    holding: dict[int | str, bool] = {}
    for pair in history.pairs:
        process, done = pair.invoke.process, pair.completion
        if done is None:
            last.pop(process, None)
            continue
        last[process] = done.index
        if outcome_of(pair) is OpType.OK:
            holding[process] = pair.invoke.f == locks.Acquire.f
    for process, index in last.items():
        if holding.get(process) and isinstance(process, int):
            call = max(index + 0.5, float(workload_end))
            yield Operation(process, Release(f"process {process}"), call, UNKNOWN, None, index)


def _stuck(history: History) -> tuple[Op, Op | None] | None:
    """Return the first acquire at rest that was refused although no client can hold the lock.

    Also returns the last release before it. Returns `None` if there is no such acquire.
    """
    at_rest = [op.index for op in history.facts("converged") if op.value.get("ok") is True]
    if not at_rest:
        return None
    holders: set[int | str] = set()
    released: Op | None = None
    ended = -1.0
    for pair in history.pairs:
        call, done = pair.invoke, pair.completion
        kind = outcome_of(pair)
        if call.f == locks.Acquire.f:
            refused = kind is OpType.FAIL and done is not None and done.value is not None
            if refused and not holders and max(ended, at_rest[0]) < call.index:
                return call, released
            if kind is not OpType.FAIL:
                holders.add(call.process)
        elif kind is OpType.OK:
            holders.discard(call.process)
            released = call
        ended = max(ended, NEVER if done is None else done.index)
    return None
