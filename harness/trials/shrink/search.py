"""The search of a shrink: finds smaller and smaller cases that fail in the same way.

Smaller variants of the best case are tried with several seeds. The first variant that fails in the
same way becomes the new best case. Variants and seeds have a fixed order, and the first success in
this order counts, even if another worker succeeds earlier. So the result does not depend on the
number of workers, unless the limit of CPU time ends the search.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from harness.case import Case
from harness.errors import UsageError
from harness.ops import History
from harness.plan.planning import Plan, plan_case
from harness.plugins import Environment
from harness.registry import load_plugin
from harness.run.keep import SIM
from harness.run.phases import conduct
from harness.soak.planting import planted
from harness.trials.trials import Kind, Trial, Trials
from harness.verdict.judge import Judgement, judge
from harness.verdict.limits import CHECK_TIME_LIMIT_S

Item = TypeVar("Item")
SEEDS_DEFAULT: Final = 4
LONGER_S: Final = 30.0
"""A run is long if it takes this much more simulated time than the run of the best case."""
RARE_FACTOR: Final = 4
"""If the best case fails with no other seed, large chunks are tried with this many times more
seeds."""
FEW: Final = 8
"""With up to this number of items, each chunk is tried with all seeds."""


class Step(msgspec.Struct, frozen=True):
    """A successful reduction in words, with the number of trials and the CPU time so far."""

    words: str
    runs: int
    cpu_s: float


class Witness(msgspec.Struct, frozen=True):
    """The history and results of one case that was run in this process, and the nodes' logs."""

    plan: Plan
    history: History
    judgement: Judgement
    logs: list[list[str]]


class Search:
    """The best case so far, and methods to find a smaller one.

    `best` always fails with `kind`. `on_step` is called after each reduction, and `on_trial` after
    each trial.
    """

    def __init__(
        self,
        trials: Trials,
        best: Trial,
        kind: Kind,
        *,
        seeds: int,
        on_step: Callable[[Step, Case], None],
        on_trial: Callable[[], None],
    ) -> None:
        self.best = best
        self.kind = kind
        self.steps: list[Step] = []
        self.environment: Environment = load_plugin("environments", SIM)
        self._trials = trials
        self._seeds = seeds
        self._on_step = on_step
        self._on_trial = on_trial
        self._witness: Witness | None = None

    @property
    def case(self) -> Case:
        return self.best.case

    @property
    def exhausted(self) -> bool:
        """Whether the limit of CPU time ended the search."""
        return self._trials.exhausted

    def try_one(self, candidate: Case | None, words: str, *, seeds: int | None = None) -> bool:
        """Try one candidate. If it fails in the same way with a seed, it becomes the best case."""
        return candidate is not None and self.first([candidate], words, seeds=seeds) is not None

    def first_quickly(
        self, candidates: Iterable[Case], words: str, *, seeds: int | None = None
    ) -> int | None:
        """Try all candidates with only the best case's seed. If none fails, try them as `first`
        does.

        If the failure hardly depends on the seed, candidates that never fail then cost few trials.
        """
        listed = list(candidates)
        return self._in_rounds(lambda: listed, words, (1, self._seeds if seeds is None else seeds))

    def _in_rounds(
        self, candidates: Callable[[], Iterable[Case]], words: str, rounds: Iterable[int]
    ) -> int | None:
        """Try all candidates as `first` does, once for each number of seeds in `rounds`."""
        places = (self.first(candidates(), words, seeds=each) for each in dict.fromkeys(rounds))
        return next((place for place in places if place is not None), None)

    def first(
        self, candidates: Iterable[Case], words: str, *, seeds: int | None = None
    ) -> int | None:
        """Try candidates in order until one fails in the same way (`kind`); returns its position.

        Each candidate is tried with the seed of the best case and the following seeds. Candidates
        that cannot be planned are skipped. A run that lasts much longer than the best one, such as
        a run that never settles, makes later trials expensive, so it counts only if no other trial
        fails.
        """
        positions: list[int] = []
        failed: list[tuple[int, Trial]] = []
        long: list[tuple[int, Trial]] = []
        begin = self.case
        longest_s = self.best.result.simulated_s + LONGER_S

        def cases() -> Iterator[Case]:
            for position, candidate in enumerate(candidates):
                if failed:
                    return
                planned = self._planned(candidate)
                if planned is None or planned == begin:
                    continue
                for number in range(self._seeds if seeds is None else seeds):
                    if failed:
                        return
                    positions.append(position)
                    yield msgspec.structs.replace(planned, seed=(begin.seed + number) % 2**63)

        # Trials in progress are completed rather than killed: a new worker costs more than a trial.
        with contextlib.closing(self._trials.in_order(cases())) as results:
            for number, trial in enumerate(results):
                if not failed and self.kind in trial.kinds:
                    kept = failed if trial.result.simulated_s <= longest_s else long
                    kept.append((positions[number], trial))
                self._on_trial()
        for position, trial in failed or long[:1]:
            self.accept(trial, words)
            return position
        return None

    def accept(self, trial: Trial, words: str) -> None:
        """Make the case of a trial, which failed in the same way, the best case."""
        self.best = trial
        step = Step(words, self._trials.runs, self._trials.cpu_s)
        self.steps.append(step)
        self._on_step(step, trial.case)

    def drop(
        self,
        items: Sequence[Item],
        made: Callable[[Sequence[Item]], Case],
        words: str,
        *,
        chunk_max: int | None = None,
    ) -> None:
        """Drop as many items as possible, first in large chunks of at most `chunk_max` items.

        `made` returns the case with the given items. This is delta debugging (Zeller and
        Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) without its tests of
        subsets, because a chunk of half the items is the complement of the other half.

        If the best case fails with all seeds, a first pass tries only one seed per chunk. If it
        fails with no other seed, large chunks are tried with more seeds, because there are few.
        """
        failing = self._failing_seeds() if len(items) > FEW else 1
        most = RARE_FACTOR * self._seeds if failing == 0 else self._seeds
        for seeds in (1, most) if failing == self._seeds - 1 else (most,):
            items = self._drop(items, made, words, chunk_max or len(items), seeds)

    def _drop(
        self,
        items: Sequence[Item],
        made: Callable[[Sequence[Item]], Case],
        words: str,
        chunk_max: int,
        seeds: int,
    ) -> Sequence[Item]:
        """Drop items until the failure needs each of the rest; returns the rest."""
        size = max(1, min(len(items) // 2, chunk_max))
        while items and not self.exhausted:
            at = 0
            dropped = False
            while at < len(items):
                place = self._first_chunk(items, at, size, made, words, seeds)
                if place is None:
                    break
                at += place * size
                items, dropped = [*items[:at], *items[at + size :]], True
            if size == 1 and not dropped:
                break
            size = max(1, size // 2)
        return items

    def _first_chunk(
        self,
        items: Sequence[Item],
        at: int,
        size: int,
        made: Callable[[Sequence[Item]], Case],
        words: str,
        seeds: int,
    ) -> int | None:
        """Drop the first chunk from `at` on that the failure does not need; return its place."""
        begins = range(at, len(items), size)
        usual = min(seeds, self._seeds)
        return self._in_rounds(
            lambda: (made([*items[:begin], *items[begin + size :]]) for begin in begins),
            words,
            (1, usual, min(seeds, max(usual, 2 * seeds // len(begins)))),
        )

    def _failing_seeds(self) -> int:
        """Return with how many other seeds the best case also fails."""
        seeds = range(self.case.seed + 1, self.case.seed + self._seeds)
        cases = (msgspec.structs.replace(self.case, seed=seed % 2**63) for seed in seeds)
        with contextlib.closing(self._trials.in_order(cases)) as results:
            return sum(self.kind in trial.kinds for trial in results)

    def witness(self) -> Witness:
        """Run the best case in this process, to see its history. The run costs CPU time, too.

        Raises `KeyboardInterrupt` if the user interrupted the run.
        """
        if self._witness is None or self._witness.plan.case != self.case:
            self._witness = self._see()
        return self._witness

    def _see(self) -> Witness:
        begin_s = time.process_time()
        with planted(self._trials.defect):
            witness = seen(self.case, self.environment)
        self._trials.spend(time.process_time() - begin_s)
        return witness

    def _planned(self, candidate: Case) -> Case | None:
        try:
            return plan_case(candidate, self.environment).case
        except UsageError:
            return None


def seen(case: Case, environment: Environment) -> Witness:
    """Run a case in this process and judge it. Raises `KeyboardInterrupt` on an interrupt."""
    plan = plan_case(case, environment)
    with tempfile.TemporaryDirectory(prefix="harness-shrink-") as folder:
        below = Path(folder)
        outcome = conduct(plan, environment, run_id="shrink", folder=None, logs_below=below)
        files = sorted((below / "logs").glob("*.log"))
        logs = [file.read_text(encoding="utf-8").splitlines() for file in files]
    if outcome.stop_asked:
        raise KeyboardInterrupt
    results = judge(outcome.history, plan.case, plan.checkers, time_limit_s=CHECK_TIME_LIMIT_S)
    return Witness(plan, outcome.history, results, logs)
