"""Decides whether a profile's permits (`harness.permits`) explain anomalies of list transactions.

* `stale-read`: a leader that was deposed may answer reads with past states until it learns this.
  Such reads must be serializable with all other transactions. Without them, the history must
  satisfy the checked models.
* `ddl-twice`: a transaction that was sent several times may have taken effect although its last
  answer is a refusal.
* `lost-after-power-cut`: each stretch between two power cuts must satisfy the checked models by
  itself. Elements that were appended before a stretch are left out of its reads.

No permit explains a read of an element that was never appended, a read of an element twice, a read
of a part of a transaction's appends, or a transaction that does not see its own appends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from checkers.foreign.keyed import is_vacuous
from checkers.verdict.permitted import permitted_result
from harness.ops import CheckResult, History, OpType, Pair, Verdict
from harness.permits import (
    DDL_TWICE,
    LOST_AFTER_POWER_CUT,
    STALE_READ,
    Permit,
    lossy_cuts,
    permits_of,
)
from harness.vocabularies.transactions import only_reads

KNOWN: Final = (STALE_READ, DDL_TWICE, LOST_AFTER_POWER_CUT)
NEVER: Final = frozenset({"G1b", "duplicate-elements", "garbage-read", "internal"})
"""Anomalies that no permit explains."""
SERIALIZABLE: Final = ("serializable",)

Judge = Callable[[History, Sequence[str] | None], CheckResult]
"""Judges a history of transactions under some models; `None` means the models of the run."""


def excused(strict: CheckResult, history: History, judge: Judge) -> CheckResult:
    """Return the result `strict` of a run, or `permitted` if permits of its profile explain it.

    The smallest number of permits that explain an invalid result count as used.
    """
    permits = permits_of(history)
    anomalies = strict.details.get("anomalies") or {}
    if strict.verdict is not Verdict.INVALID or not NEVER.isdisjoint(anomalies):
        return strict
    changes = _Deviations(history, permits)
    is_open = False
    for size in range(1, 1 + len(changes.able)):
        for names in itertools.combinations(changes.able, size):
            verdict = _verdict_under(changes, names, judge)
            if verdict is Verdict.VALID:
                counts = {name: changes.able[name] for name in names}
                return permitted_result(strict, permits, counts, strict.operations, strict.details)
            is_open |= verdict is Verdict.UNKNOWN
    if not is_open:
        return strict
    reason = f"{strict.reason}; whether the profile permits that could not be decided"
    return replace(strict, verdict=Verdict.UNKNOWN, reason=reason)


def _verdict_under(changes: _Deviations, names: Sequence[str], judge: Judge) -> Verdict:
    worst = Verdict.VALID
    for history, models in changes.histories(names):
        result = judge(history, models)
        if result.verdict is Verdict.INVALID:
            return Verdict.INVALID
        if result.verdict is Verdict.UNKNOWN and not is_vacuous(result.details):
            worst = Verdict.UNKNOWN
    return worst


class _Deviations:
    """The transactions of a history, and the deviations that its profile's permits may explain."""

    def __init__(self, history: History, permits: Mapping[str, Permit]) -> None:
        self._pairs = [pair for pair in history.pairs if isinstance(pair.invoke.value, list)]
        self._cuts = [op.index for op in lossy_cuts(history, permits)]
        self._stale = _superseded_reads(history, self._pairs)
        self._twice = {
            pair.invoke.index
            for pair in self._pairs
            if pair.type is OpType.FAIL
            and not only_reads(pair.invoke.value)
            and _attempts(pair) > 1
        }
        self._invoked = {
            (str(key), element): pair.invoke.index
            for pair in self._pairs
            for f, key, element in pair.invoke.value
            if f == "append"
        }
        uses = dict(zip(KNOWN, map(len, (self._stale, self._twice, self._cuts)), strict=True))
        self.able = {name: uses[name] for name in KNOWN if name in permits and uses[name]}
        """The permits that may apply. Each has the number of operations to which it may apply."""

    def histories(self, names: Sequence[str]) -> Iterator[tuple[History, Sequence[str] | None]]:
        """Yield the histories that must hold under these permits, each with its models."""
        cuts = self._cuts if LOST_AFTER_POWER_CUT in names else ()
        unsure = self._twice if DDL_TWICE in names else set()
        for begin, end in itertools.pairwise([-math.inf, *cuts, math.inf]):
            part = [pair for pair in self._pairs if begin < pair.invoke.index < end]
            ended = [self._within(pair, begin, end, unsure) for pair in part]
            if STALE_READ in names:
                yield _history(ended), SERIALIZABLE
                ended = [pair for pair in ended if pair.invoke.index not in self._stale]
            yield _history(ended), None

    def _within(self, pair: Pair, begin: float, end: float, unsure: set[int]) -> Pair:
        done = pair.completion
        if done is None or done.index > end:
            return Pair(pair.invoke, None)
        if pair.invoke.index in unsure:
            return Pair(pair.invoke, replace(done, type=OpType.INFO, value=None))
        if done.type is not OpType.OK or begin < 0:
            return pair
        mops = [
            [f, key, self._since(key, value, begin)] if f == "r" else [f, key, value]
            for f, key, value in done.value
        ]
        return Pair(pair.invoke, replace(done, value=mops))

    def _since(self, key: Any, elements: Any, begin: float) -> Any:
        return elements and [
            each for each in elements if self._invoked.get((str(key), each), math.inf) > begin
        ]


def _history(pairs: Sequence[Pair]) -> History:
    ops = [op for pair in pairs for op in (pair.invoke, pair.completion) if op is not None]
    return History(sorted(ops, key=lambda op: op.index), foreign=True)


def _superseded_reads(history: History, pairs: Sequence[Pair]) -> set[int]:
    """Return the reads that a node answered after another node had led or had answered a write."""
    acts = [(op.index, op.value.get("node")) for op in history.leaders()]
    answers = [
        pair.completion
        for pair in pairs
        if pair.type is OpType.OK and not only_reads(pair.invoke.value)
    ]
    acts += [(done.index, done.node) for done in answers if done is not None and done.node]
    holders = sorted(acts, key=lambda act: act[0])
    stale, place = set(), 0
    reads = [pair for pair in pairs if pair.type is OpType.OK and only_reads(pair.invoke.value)]
    for pair in sorted(reads, key=lambda pair: pair.completion.index if pair.completion else 0):
        done = pair.completion
        while done is not None and place < len(holders) and holders[place][0] < done.index:
            place += 1
        if done is not None and place and holders[place - 1][1] != done.node:
            stale.add(pair.invoke.index)
    return stale


def _attempts(pair: Pair) -> int:
    return len(pair.completion.attempts) if pair.completion is not None else 0
