"""Checks reads that allow a stale answer up to a bound. The read or its answer states the bound.

* The bound that the answer states is at most the bound that the read allowed.
* The read counts as invoked earlier by the bound (see `calls_before`). The answer's revision is at
  least the revision of every answer before this moment. Answers without a revision are exempt.

The checker `linearizable-catalog` judges whether the answer shows the state of its revision.
"""

from __future__ import annotations

import bisect

from checkers.catalog.history import bound_ns, calls_before, is_bounded
from checkers.catalog.sentences import sentence
from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.ops import NS_PER_MS, CheckResult, History, OpType, Pair
from harness.plugins import Checker
from harness.vocabularies import fields_of


class StalenessChecker(Checker, judges_prefixes=True):
    """Checks that reads with a staleness bound show no older state than the bound allows."""

    api_version = 1
    name = "staleness"
    doc = "stale reads are answered from a state no older than their bounds"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case, time_limit_s
        answered = [pair for pair in history.pairs if is_bounded(pair) and pair.type is OpType.OK]
        asked = sum(is_bounded(pair) for pair in history.pairs)
        dated = sum(_revision(pair) is not None for pair in answered)
        bound_ms_max = max((bound_ns(p) or 0 for p in answered), default=0) / NS_PER_MS
        findings = Findings(self.name)
        findings.look("bounds", len(answered))
        findings.look("revisions", dated)
        findings.exempt("revisions", len(answered) - dated)
        _check(history, answered, findings)
        if not answered:
            reason = f"none of {counted(asked, 'read')} with a bound was answered"
            findings.gap(reason, rule="no-answers")
        reason = (
            f"{counted(len(answered), 'read')} answered within their bounds, the largest "
            f"{bound_ms_max:.0f} ms; {asked - len(answered)} of {asked} refused"
        )
        return findings.result(reason, {"asked": asked, "bound_ms_max": bound_ms_max})


def _check(history: History, answered: list[Pair], findings: Findings) -> None:
    newest = _newest_by_completion(history)
    places = [index for index, *_ in newest]
    before = calls_before(history)
    for pair in answered:
        bound, index = bound_ns(pair), pair.invoke.index
        if bound is None:
            text = f"{sentence(pair)}, but the answer does not state how old it may be."
            findings.violate("bound", text, index)
            continue
        bound_ms = bound / NS_PER_MS
        allowed_ms = fields_of(pair.invoke).get("max_staleness_ms")
        if isinstance(allowed_ms, int | float) and bound_ms > allowed_ms:
            text = (
                f"{sentence(pair)}, from a state up to {bound_ms:.0f} ms old, though the read "
                f"allowed {allowed_ms} ms."
            )
            findings.violate("bound", text, index)
        revision = _revision(pair)
        place = bisect.bisect_left(places, before[index]) - 1
        if place < 0 or revision is None:
            continue
        _, answered_before, by = newest[place]
        if revision < answered_before:
            text = (
                f"{sentence(pair)}, at revision {revision} and with a bound of {bound_ms:.0f} ms; "
                f"but revision {answered_before} had been answered before that: {sentence(by)}."
            )
            findings.violate("bound", text, index, by.invoke.index)


def _revision(pair: Pair) -> int | None:
    revision = fields_of(pair.completion).get("revision")
    return revision if isinstance(revision, int) and revision >= 0 else None


def _newest_by_completion(history: History) -> list[tuple[int, int, Pair]]:
    """Return, in order, the answers that showed a newer revision than all answers before them.

    Each entry is (completion index, revision, operation). Reads with a staleness bound are left
    out, because their answers may show an older state.
    """
    newest: list[tuple[int, int, Pair]] = []
    done = [
        (pair.completion.index, revision, pair)
        for pair in history.pairs
        if pair.completion is not None
        and pair.type is OpType.OK
        and not is_bounded(pair)
        and (revision := _revision(pair)) is not None
    ]
    for index, revision, pair in sorted(done, key=lambda entry: entry[:2]):
        if not newest or revision > newest[-1][1]:
            newest.append((index, revision, pair))
    return newest
