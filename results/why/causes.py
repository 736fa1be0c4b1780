"""Measures the failure rate of a case without each of its parts, and concludes which parts matter.

A part is *necessary* if no run failed without it, and the difference from the whole case is
significant (Fisher's exact test over seeds, corrected by Holm's method, at 5 %). If runs without
the part did fail, but significantly less or more often, the part makes the failure more or less
frequent. A difference that is not significant proves nothing: of two parts that can replace each
other, neither shows a difference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from harness.case import Case
from harness.ops import Verdict
from harness.soak.result import CRASH
from harness.trials.trials import Kind, Trial, Trials
from results.statistics.estimates import ALPHA, fisher_exact, holm
from results.why.answer import (
    IMPOSSIBLE,
    LOWERS,
    NECESSARY,
    NO_DIFFERENCE,
    NOT_TRIED,
    RAISES,
    UNKNOWN,
    VERDICTS,
    Cause,
    Count,
)
from results.why.variants import Variant

FIRST_MIN: Final = 10
"""The minimum number of seeds of a variant, unless the search has fewer."""
FUTILE_P: Final = 0.5
"""A variant with a higher p-value than this after the first seeds gets no more seeds."""
SEEDS_NAMED_STEP: Final = 10
SEEDS_NAMED_MAX: Final = 1000
_SEEDS: Final = 2**63


class Rates(NamedTuple):
    """The counts of the case and of the case with recorded operations, and all causes."""

    base: Count
    recorded: Count | None
    causes: tuple[Cause, ...]


def counted_in(count: Count, trial: Trial, kind: Kind) -> Count:
    """Return `count` with one more trial. `kind` is the failure that is counted."""
    if trial.result.verdict == CRASH:
        return msgspec.structs.replace(count, crashed=count.crashed + 1)
    failed = kind in trial.kinds
    undecided = any(
        each.checker == kind.checker and each.verdict == Verdict.UNKNOWN.value
        for each in trial.result.checkers
    )
    if undecided and not failed:
        return msgspec.structs.replace(count, unknown=count.unknown + 1)
    return msgspec.structs.replace(
        count,
        runs=count.runs + 1,
        failed=count.failed + failed,
        failed_otherwise=count.failed_otherwise + (bool(trial.kinds) and not failed),
    )


def with_seeds(case: Case, numbers: range) -> Iterator[Case]:
    """Yield the case with other seeds, but with the same planned faults and explicit operations."""
    for number in numbers:
        yield msgspec.structs.replace(case, seed=(case.seed + 1 + number) % _SEEDS)


def _may_differ(count: Count, base: Count) -> bool:
    """Whether more seeds could show a difference between a variant and its base."""
    return fisher_exact(count.failed, count.runs, base.failed, base.runs) < FUTILE_P


def can_show_necessary(base: Count, seeds: int) -> bool:
    """Whether `seeds` runs without a failure would differ significantly from the base.

    Also true if there are so few seeds that no base would be enough: then users only want the
    rates.
    """
    if fisher_exact(0, seeds, seeds, seeds) >= ALPHA:
        return True
    return fisher_exact(0, seeds, base.failed, base.runs) < ALPHA


def seeds_to_show(base: Count) -> int | None:
    """Return how many seeds suffice at the base's rate; `None` if more than `SEEDS_NAMED_MAX`."""
    for seeds in range(SEEDS_NAMED_STEP, SEEDS_NAMED_MAX + 1, SEEDS_NAMED_STEP):
        if fisher_exact(0, seeds, round(base.rate * seeds), seeds) < ALPHA:
            return seeds
    return None


def find_causes(
    case: Case,
    recorded: Case,
    variants: Sequence[Variant],
    kind: Kind,
    trials: Trials,
    *,
    seeds: int,
    on_trial: Callable[[], None],
) -> Rates:
    """Try the case and each variant with up to `seeds` seeds, while `trials` allows it.

    A variant gets no more seeds if its first seeds show no sign of a difference. It gets no seeds
    at all if the case fails so rarely that no part could be shown to be necessary. `recorded` is
    the case with the recorded operations of the run. Variants without some operations are compared
    with it. `on_trial` is called after each trial.
    """
    possible = [variant for variant in variants if variant.case is not None]
    bases = [case, *([recorded] if any(variant.recorded for variant in possible) else [])]
    cases = [*bases, *(variant.case for variant in possible if variant.case is not None)]
    counts = [Count() for _ in cases]
    first = min(seeds, max(FIRST_MIN, -(-seeds // 3)))

    def run(todo: Sequence[tuple[int, range]]) -> None:
        places = [place for place, numbers in todo for _ in numbers]
        tried = trials.in_order(
            each for place, numbers in todo for each in with_seeds(cases[place], numbers)
        )
        with contextlib.closing(tried):
            for place, trial in zip(places, tried, strict=False):
                counts[place] = counted_in(counts[place], trial, kind)
                on_trial()

    run([(place, range(seeds)) for place in range(len(bases))])
    tried_places = [
        (len(bases) + place, int(variant.recorded))
        for place, variant in enumerate(possible)
        if can_show_necessary(counts[int(variant.recorded)], seeds)
    ]
    run([(place, range(first)) for place, _ in tried_places])
    open_still = [place for place, base in tried_places if _may_differ(counts[place], counts[base])]
    run([(place, range(first, seeds)) for place in open_still])
    base, *rest = counts
    of_recorded = rest.pop(0) if len(bases) > 1 else None
    tried_counts = {
        (variant.kind, variant.name): count
        for variant, count in zip(possible, rest, strict=True)
        if count != Count()
    }
    return Rates(base, of_recorded, _judged(variants, tried_counts, base, of_recorded or base))


def _judged(
    variants: Sequence[Variant],
    counts: Mapping[tuple[str, str], Count],
    base: Count,
    recorded: Count,
) -> tuple[Cause, ...]:
    tried = [variant for variant in variants if (variant.kind, variant.name) in counts]
    pairs = [
        (counts[variant.kind, variant.name], recorded if variant.recorded else base)
        for variant in tried
    ]
    adjusted = holm(
        [fisher_exact(count.failed, count.runs, of.failed, of.runs) for count, of in pairs]
    )
    causes = [
        _cause(
            variant,
            verdict=verdict_of(count, of, p),
            without=count,
            low=count.interval.low,
            high=count.interval.high,
            p=p,
        )
        for variant, (count, of), p in zip(tried, pairs, adjusted, strict=True)
    ]
    causes += [
        _cause(variant, verdict=IMPOSSIBLE if variant.case is None else NOT_TRIED)
        for variant in variants
        if (variant.kind, variant.name) not in counts
    ]
    return tuple(sorted(causes, key=_place))


def _cause(variant: Variant, **findings: Any) -> Cause:
    return Cause(
        kind=variant.kind,
        name=variant.name,
        words=variant.words,
        recorded=variant.recorded,
        why_not=variant.why_not,
        **findings,
    )


def _place(cause: Cause) -> tuple[int, float]:
    return VERDICTS.index(cause.verdict), cause.without.rate


def verdict_of(without: Count, base: Count, p: float) -> str:
    """Return the verdict on a part, from the counts without it and of the base, and the p-value."""
    if not without.runs:
        return UNKNOWN
    if p >= ALPHA:
        return NO_DIFFERENCE
    if not without.failed:
        return NECESSARY
    return RAISES if without.rate < base.rate else LOWERS
