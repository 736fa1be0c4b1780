"""Compares numbers of two targets, row by row, and decides whether they differ.

A row **differs** if its test is significant at 5 %, corrected for all tests of the page (Holm). So
of the pages that compare equal targets, at most one in twenty has a wrong mark. The tests:

* For shares of operations, answers and messages: their intervals (`results.statistics.clusters`,
  with blocks of runs as units) do not overlap.
* For durations, and elections per block: the rank-sum test. A harness that polls for the leader
  sees a new leader up to a second late, so the test must hold with and without this delay.
* For faults that hit, permits that were used, and verdicts: Fisher's exact test over faults or
  runs.
* Answers to listed requests do not depend on chance: they differ if the two sides have no answer in
  common.

Rows that occur on only one side have a second test, over all cases (`results.twin.onesided`). If it
is significant, they are **one-sided**, and otherwise **too rare**: chance explains on which side
they are.
"""

from __future__ import annotations

import enum
import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from harness.errors import counted
from harness.ops import Verdict
from harness.run.phases import LEADER_POLL_S
from results.statistics.clusters import Clusters, same_share
from results.statistics.estimates import fisher_exact, quantiles, rank_sum, wilson
from results.twin.observed import (
    ANSWER,
    ELECTION,
    LATENCY,
    MESSAGE,
    NEVER_SENT,
    OUTCOME,
    Observed,
)

TIMES_MAX: Final = 2000
"""The maximum number of times of one kind and side that a test compares, from the first on."""
OK: Final = "ok"


class Mark(enum.StrEnum):
    """The result of a comparison."""

    DIFFERS = "differs"
    ONE_SIDED = "one-sided"
    RARE = "too rare"
    """Only one side shows it, as may happen by chance."""
    SAME = "same"
    """No difference was shown, which does not prove that there is none."""
    NOT_TESTED = "not tested"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a row: `hits` of `of` trials, `quantiles` of `of` durations in ns, or words."""

    hits: int | None = None
    of: int = 0
    blocks: int = 0  # the clusters of the trials: blocks of runs, or the trials themselves
    bursts: int = 0  # stretches of neighbouring blocks with hits
    low: float | None = None
    high: float | None = None
    quantiles: tuple[int, ...] = ()  # minimum, median, 90 % quantile, maximum
    words: tuple[str, ...] = ()

    @property
    def share(self) -> float | None:
        return self.hits / self.of if self.hits is not None and self.of else None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison. Its name begins with its section, as in `message/create/NOT_FOUND`."""

    name: str
    left: Shown
    right: Shown
    p: float | None = None  # the p-value of the row's own test
    # the corrected `p`; for one-sided and rare rows, the corrected p of the test over all cases
    p_adjusted: float | None = None
    mark: Mark = Mark.NOT_TESTED
    explained_by: str = ""  # the name of the known difference that explains the row
    why: str = ""
    samples: tuple[str, str] = ("", "")
    elsewhere: str = ""  # if only one side shows the row: a case in which the other side shows it

    @property
    def section(self) -> str:
        return self.name.partition("/")[0]

    @property
    def label(self) -> str:
        return self.name.partition("/")[2]


def rows_of(left: Sequence[Observed], right: Sequence[Observed]) -> list[Row]:
    """Compare the runs of two targets. `marked` adds the marks."""
    listed = [run.requests for run in (*left, *right)]
    if listed and all(each is not None for each in listed):
        rows = list(_request_rows(left, right))
    else:
        rows = list(_share_rows(left, right))
    return [*rows, *_time_rows(left, right), *_fault_rows(left, right), *_run_rows(left, right)]


# --- shares --------------------------------------------------------------------------------------


def _share_rows(left: Sequence[Observed], right: Sequence[Observed]) -> Iterator[Row]:
    names = {name for run in (*left, *right) for name in run.hits}
    for section in (OUTCOME, ANSWER, MESSAGE):
        for name in sorted(each for each in names if each.startswith(f"{section}/")):
            _, kind, hit = name.split("/", 2)
            if hit == OK and section != OUTCOME:
                continue
            sides = [_clusters(runs, f"{section}/{kind}", name) for runs in (left, right)]
            yield Row(
                name=name,
                left=_shown(sides[0], sides[1], _bursts(left, name)),
                right=_shown(sides[1], sides[0], _bursts(right, name)),
                p=same_share(*sides),
                samples=(_sample(left, name), _sample(right, name)),
            )


def _clusters(runs: Sequence[Observed], base: str, name: str) -> Clusters:
    return Clusters.of(
        [
            (run.hits.get(name, {}).get(block, 0), trials)
            for run in runs
            for block, trials in run.trials.get(base, {}).items()
        ]
    )


def _bursts(runs: Sequence[Observed], name: str) -> int:
    """Count the stretches of neighbouring blocks in which the name occurs."""
    blocks = [{block for block, hits in run.hits.get(name, {}).items() if hits} for run in runs]
    return sum(block - 1 not in each for each in blocks for block in each)


def _shown(side: Clusters, other: Clusters, bursts: int) -> Shown:
    if not side.trials:
        return Shown(hits=0, of=0)
    low, high = side.interval(effect=other.design_effect())
    hits, of = sum(side.hits), sum(side.trials)
    return Shown(hits=hits, of=of, blocks=len(side.trials), bursts=bursts, low=low, high=high)


def _sample(runs: Sequence[Observed], name: str) -> str:
    return next((run.samples[name] for run in runs if name in run.samples), "")


# --- times ---------------------------------------------------------------------------------------


def _time_rows(left: Sequence[Observed], right: Sequence[Observed]) -> Iterator[Row]:
    names = sorted({name for run in (*left, *right) for name in run.times})
    for name in sorted(names, key=lambda name: name.startswith(LATENCY)):
        sides = [_times(runs, name) for runs in (left, right)]
        p: float | None = None
        # Latencies get no test: they depend on hardware and language, and are not independent.
        if not name.startswith(LATENCY):
            late = [name.startswith(ELECTION) and _asked(runs) for runs in (left, right)]
            p = _time_p(sides, late)
        yield Row(name=name, left=_timed(sides[0]), right=_timed(sides[1]), p=p)
    blocks = [[count for run in runs for count in run.elections] for runs in (left, right)]
    if any(map(any, blocks)):
        yield Row(
            name=f"{ELECTION}/changes of the leader per block",
            left=_per_block(blocks[0]),
            right=_per_block(blocks[1]),
            p=rank_sum(*blocks),
        )


def _per_block(counts: list[int]) -> Shown:
    words = f"{sum(counts)} in {counted(len(counts), 'block')}"
    bursts = sum(map(bool, counts))
    return Shown(
        hits=sum(counts), of=len(counts), blocks=len(counts), bursts=bursts, words=(words,)
    )


def _times(runs: Sequence[Observed], name: str) -> list[int]:
    return [time for run in runs for time in run.times.get(name, ())]


def _asked(runs: Sequence[Observed]) -> bool:
    return any(run.asked for run in runs)


def _time_p(sides: Sequence[list[int]], late: Sequence[bool]) -> float | None:
    """Return the p-value of the rank-sum test; the largest one if leaders were polled.

    A polled leader was seen at once, or up to one poll late. If these two assumptions disagree on
    which side is slower, the result is 1.
    """
    if not all(sides):
        return None
    delays = [(0.0, LEADER_POLL_S * 1e9) if is_late else (0.0,) for is_late in late]
    p_values, slower = [], set()
    for first, second in itertools.product(*delays):
        left = [time - first for time in sides[0][:TIMES_MAX]]
        right = [time - second for time in sides[1][:TIMES_MAX]]
        p_values.append(rank_sum(left, right))
        slower.add(statistics.median(left) > statistics.median(right))
    return max(p_values) if len(slower) == 1 else 1.0


def _timed(times: list[int]) -> Shown:
    if not times:
        return Shown(of=0)
    return Shown(of=len(times), quantiles=(min(times), *quantiles(times, (500, 900, 1000))))


# --- faults, runs and requests -------------------------------------------------------------------


def _fault_rows(left: Sequence[Observed], right: Sequence[Observed]) -> Iterator[Row]:
    for nemesis in sorted({name for run in (*left, *right) for name in run.faults}):
        counts = [
            tuple(map(sum, zip(*(run.faults.get(nemesis, (0, 0)) for run in runs), strict=True)))
            for runs in (left, right)
        ]
        yield _fisher(f"fault/{nemesis}: faults that hit", *counts[0], *counts[1])


def _run_rows(left: Sequence[Observed], right: Sequence[Observed]) -> Iterator[Row]:
    both = (*left, *right)
    for permit in sorted({name for run in both for name in run.permitted}):
        used = [sum(permit in run.permitted for run in runs) for runs in (left, right)]
        yield _fisher(f"permit/{permit}", used[0], len(left), used[1], len(right))
    for checker in sorted({name for run in both for name in run.checkers}):
        verdicts = {run.checkers[checker] for run in both if checker in run.checkers}
        for verdict in sorted(verdicts - {Verdict.VALID}):
            seen = [
                sum(run.checkers.get(checker) is verdict for run in runs) for runs in (left, right)
            ]
            yield _fisher(f"verdict/{checker} {verdict}", seen[0], len(left), seen[1], len(right))


def _fisher(name: str, hits: int, trials: int, other_hits: int, other_trials: int) -> Row:
    sides = []
    for part, whole in ((hits, trials), (other_hits, other_trials)):
        low, high = wilson(part, whole)
        sides.append(Shown(hits=part, of=whole, blocks=whole, bursts=part, low=low, high=high))
    p = fisher_exact(hits, trials, other_hits, other_trials) if trials and other_trials else None
    return Row(name=name, left=sides[0], right=sides[1], p=p)


def _request_rows(left: Sequence[Observed], right: Sequence[Observed]) -> Iterator[Row]:
    columns = [[run.requests or [] for run in runs] for runs in (left, right)]
    for place, (words, _) in enumerate(columns[0][0]):
        answers = [sorted({run[place][1] for run in side} - {NEVER_SENT}) for side in columns]
        common = set(answers[0]) & set(answers[1])
        mark = Mark.SAME if common else Mark.DIFFERS
        yield Row(
            name=f"request/{place} {words}",
            left=Shown(words=tuple(answers[0]), of=len(left)),
            right=Shown(words=tuple(answers[1]), of=len(right)),
            mark=mark if all(answers) else Mark.NOT_TESTED,
        )


def marked(row: Row, p_adjusted: float | None, alpha: float) -> Row:
    """Return a row with its mark, which depends on the corrected p-value."""
    if row.mark is not Mark.NOT_TESTED or p_adjusted is None:
        return row
    mark = Mark.DIFFERS if p_adjusted < alpha else Mark.SAME
    return msgspec.structs.replace(row, mark=mark, p_adjusted=p_adjusted)
