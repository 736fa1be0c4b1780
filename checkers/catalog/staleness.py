"""The checker of reads with a bound: no answer is older than its bound, nor that than was allowed.

Two rules on each answer, and both are of that answer alone, so they hold over any history:

* its bound is no more than the read allowed;
* its revision is no less than that of any change or read of the newest state which was answered
  before the read might have been asked for (`_catalog_part`). An answer without a revision is
  exempt from that.

That the answer is the state of that revision is judged with all other answers by
`linearizable-catalog`, where such a read counts as asked for that much earlier.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any

from checkers.catalog.part import bound_ns, calls_before, is_bounded
from checkers.catalog.sentences import sentence
from harness.errors import counted
from harness.ops import CheckResult, History, OpType, Pair, Verdict
from harness.vocabularies import fields_of

SHOWN_MAX = 4
_NS_PER_MS = 1_000_000


class StalenessChecker:
    """Bounds of reads hold."""

    api_version = 1
    name = "staleness"
    doc = "reads that allow for staleness are answered from no older state than they say"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge; linear in the history but for sorting, so `time_limit_s` is not needed."""
        del case, time_limit_s
        answered = [pair for pair in history.pairs if is_bounded(pair) and pair.type is OpType.OK]
        asked = sum(is_bounded(pair) for pair in history.pairs)
        dated = sum(_revision(pair) is not None for pair in answered)
        details: dict[str, Any] = {
            "looked": {"bounds": len(answered), "revisions": dated},
            "exempt": {"revisions": len(answered) - dated},
            "asked": asked,
            "bound_ms_max": max((bound_ns(p) or 0 for p in answered), default=0) / _NS_PER_MS,
        }
        found = list(_violations(history, answered))
        if found:
            text = [told for _, told in found[:SHOWN_MAX]]
            if len(found) > SHOWN_MAX:
                text.append(f"{len(found) - SHOWN_MAX} more answers are not shown.")
            indices = tuple(index for each, _ in found[:SHOWN_MAX] for index in each)
            details["rule"] = "bound"
            reason = f"{counted(len(found), 'answer')} older than allowed, first: {text[0]}"
            return CheckResult(self.name, Verdict.INVALID, reason, tuple(text), indices, details)
        if not answered:
            details["rule"] = "no-answers"
            reason = f"none of {counted(asked, 'read')} with a bound was answered"
            return CheckResult(self.name, Verdict.UNKNOWN, reason, details=details)
        reason = (
            f"{counted(len(answered), 'read')} answered within their bounds, the largest "
            f"{details['bound_ms_max']:.0f} ms; {asked - len(answered)} of {asked} refused"
        )
        return CheckResult(self.name, Verdict.VALID, reason, details=details)


def _violations(history: History, answered: list[Pair]) -> Iterator[tuple[tuple[int, ...], str]]:
    newest = _newest_by_completion(history)
    places = [index for index, *_ in newest]
    before = calls_before(history)
    for pair in answered:
        bound, call = bound_ns(pair), fields_of(pair.invoke)
        if bound is None:
            yield (pair.invoke.index,), f"{sentence(pair)}, but did not say how old that may be."
            continue
        allowed_ms = call.get("max_staleness_ms")
        if isinstance(allowed_ms, int | float) and bound > allowed_ms * _NS_PER_MS:
            told = (
                f"{sentence(pair)}, from a state up to {bound / _NS_PER_MS:.0f} ms old, though "
                f"the read allowed {allowed_ms} ms."
            )
            yield (pair.invoke.index,), told
        revision = _revision(pair)
        place = bisect.bisect_left(places, before[pair.invoke.index]) - 1
        if place < 0 or revision is None:
            continue
        _, known, by = newest[place]
        if revision < known:
            told = (
                f"{sentence(pair)}, at revision {revision} and with a bound of "
                f"{bound / _NS_PER_MS:.0f} ms; but revision {known} had been answered before "
                f"that: {sentence(by)}."
            )
            yield (pair.invoke.index, by.invoke.index), told


def _revision(pair: Pair) -> int | None:
    """Of which state an answer is; `None` where it does not say so."""
    found = fields_of(pair.completion).get("revision")
    return found if isinstance(found, int) and found >= 0 else None


def _newest_by_completion(history: History) -> list[tuple[int, int, Pair]]:
    """(index of a completion, the newest revision answered up to it, by which operation), rising.

    Of reads with a bound nothing follows: their answers are not of the newest state.
    """
    found: list[tuple[int, int, Pair]] = []
    done = [
        (pair.completion.index, revision, pair)
        for pair in history.pairs
        if pair.completion is not None
        and pair.type is OpType.OK
        and not is_bounded(pair)
        and (revision := _revision(pair)) is not None
    ]
    for index, revision, pair in sorted(done, key=lambda entry: entry[:2]):
        if not found or revision > found[-1][1]:
            found.append((index, revision, pair))
    return found
