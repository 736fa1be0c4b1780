"""Checks that the search for causes (`harness why`) names the faults that a bug is known to need.

        C="python -m bench.targets.causes"
        $C --jobs 2                       # every switch whose row has a fault
        $C --only NO-LEASE,HMS-ORPHAN     # these switches
        $C --cpu 900 --memory trials      # within 900 s of CPU time; the same command continues

A ledger (`targets/*/bugs.py`) has a row per bug switch, with the faults that the bug needs. The
case of a switch comes from its row, with the first seed at which the row's checker fails. If no
fault has a fixed time, short runs with early faults are tried first. If fewer than half of some
other seeds also fail, up to two further failing seeds are considered. The case is cut right after
the failure, if it then still fails. It is tried without any faults, and without the faults of each
nemesis that the row names. The table shows how many seeds fail each time. The last column is

* `named` if the faults in the row are necessary: each of them or, if they can replace each other,
  all of them together;
* `rarer` if the failure also occurs without them, but significantly less often;
* `open` if no run failed without them, but the difference is not significant: the case itself fails
  too rarely for so few seeds;
* `none needed` if the case fails before any fault begins;
* `missed` otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.targets.switches import found_switches
from harness.case import Case
from harness.environments.sim import SimEnvironment
from harness.ops import NS_PER_S, History
from harness.plan.planning import plan_case
from harness.run.phases import WARM_UP_S
from harness.soak.result import SeedJob
from harness.soak.seed import run_seed
from harness.store import load_run
from harness.trials.trials import Kind, Trials, kinds_of
from results.exam.rows import Row
from results.run.page.summary import read_results
from results.why.answer import NECESSARY, RAISES, Cause
from results.why.causes import Rates, find_causes, with_seeds
from results.why.search import failure_of
from results.why.variants import Variant, variants_of

SEEDS_MAX: Final = 20
SUBJECTS_MAX: Final = 3
SCREENED: Final = range(1000, 1004)
"""Seeds for choosing between failing cases. The table uses other seeds, so its rates are fair."""
SHORT: Final = {"time_limit_s": 12.0, "interval_s": 4.0, "duration_s": 3.0}
"""A short run, which costs a fifth of a run of a minute."""
LONG_S: Final = 20.0
"""Only runs at least this long are shortened."""
AT: Final = " at "
SHORT_SEEDS_MAX: Final = 8
AFTER_S: Final = 1.0
"""How long a cut case goes on after its failure, in seconds."""
LIVENESS: Final = "liveness"
NONE_NEEDED: Final = "none needed"
FAULTY: Final = ("--nemesis", "--fault")


class Subject(NamedTuple):
    """A failing case of a switch, and its failure."""

    case: Case
    kind: Kind
    history: History


def subject_of(row: Row, case_of_row: Case, trials: Trials) -> Subject | None:
    """Return a failing case of a switch, if possible one that often fails with other seeds, too."""
    best: Subject | None = None
    most = 0
    for subject in itertools.islice(_failing(row, case_of_row), SUBJECTS_MAX):
        screened = with_seeds(subject.case, SCREENED)
        failed = sum(subject.kind in trial.kinds for trial in trials.in_order(screened))
        if best is None or failed > most:
            best, most = subject, failed
        if 2 * most >= len(SCREENED):
            break
    return best


def _failing(row: Row, case_of_row: Case) -> Iterator[Subject]:
    environment = SimEnvironment()
    for asked in _asked(case_of_row):
        case = plan_case(asked, environment).case
        with tempfile.TemporaryDirectory() as store:
            job = SeedJob(case=case, store=store, name="causes", run_prefix="")
            result = run_seed(job)
            kinds = [kind for kind in kinds_of(result) if kind.checker == row.expected]
            if not kinds or (folder := result.folder(Path(store), "causes")) is None:
                continue
            run, results = load_run(folder), read_results(folder)
            wanted = [each for each in results.checkers if each.checker == kinds[0].checker]
            shown_ns = failure_of(
                run, msgspec.structs.replace(results, checkers=tuple(wanted))
            ).shown_ns
        yield Subject(_cut(case, kinds[0], shown_ns), kinds[0], run.history)


def _asked(case: Case) -> Iterator[Case]:
    """Yield the cases to search for a failure: short cases first, unless a fault has a set time."""
    if case.time_limit_s >= LONG_S and not any(AT in nemesis for nemesis in case.nemeses):
        for seed in range(1, SHORT_SEEDS_MAX + 1):
            yield msgspec.structs.replace(case, seed=seed, **SHORT)
    for seed in range(case.seed, case.seed + SEEDS_MAX):
        yield msgspec.structs.replace(case, seed=seed)


def _cut(case: Case, kind: Kind, shown_ns: int) -> Case:
    limit_s = round(shown_ns / NS_PER_S - WARM_UP_S + AFTER_S, 3)
    if kind.checker == LIVENESS or not 0 < limit_s < case.time_limit_s:
        return case
    faults = tuple(fault for fault in case.faults or () if fault.at_ns < limit_s * NS_PER_S)
    cut = msgspec.structs.replace(case, time_limit_s=limit_s, faults=faults)
    result = run_seed(SeedJob(case=cut, store=None, name="causes", run_prefix=""))
    return cut if kind in kinds_of(result) else case


def parts_of(subject: Subject) -> list[Variant]:
    """Return the case without any faults, and without the faults of each nemesis."""
    faults = subject.case.faults or ()
    alone = {
        fault.id for fault in faults if sum(each.nemesis == fault.nemesis for each in faults) == 1
    }
    return [
        variant
        for variant in variants_of(subject.case, subject.history, SimEnvironment())
        if variant.kind in {"all-faults", "faults"}
        or (variant.kind == "fault" and variant.name in alone)
    ]


def judged(causes: tuple[Cause, ...]) -> str:
    """Return the word for a row: `named`, `rarer`, `open` or `missed`."""
    together = [cause for cause in causes if cause.kind == "all-faults"] or list(causes)
    if together and all(cause.verdict == NECESSARY for cause in together):
        return "named"
    if together and all(cause.verdict in {NECESSARY, RAISES} for cause in together):
        return "rarer"
    return "missed" if any(cause.without.failed for cause in together) else "open"


def lines_of(row: Row, subject: Subject, rates: Rates, cpu_s: float) -> Iterator[str]:
    """Yield the lines of the table for one switch."""
    verdict = judged(rates.causes)
    base = f"{rates.base.failed} of {rates.base.runs}"
    words = row.options
    named = words[min(words.find(f) for f in FAULTY if f in words) :]
    yield (
        f"{row.name:20} {verdict:7} {str(subject.kind)[:44]:44} case {base:9} "
        f"{subject.case.time_limit_s:5.1f} s {cpu_s:5.0f} CPU s"
    )
    yield f"    the row names: {named[:110]}"
    for cause in rates.causes:
        count = f"{cause.without.failed} of {cause.without.runs}"
        yield f"    without {cause.words[:66]:66} {count:9} {cause.verdict}"


def main() -> None:
    """Print the table, and the number of `named` rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="check only these switches, separated by commas")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cpu", type=float, default=3600.0, help="limit of CPU time in seconds")
    parser.add_argument("--memory", type=Path, help="file that remembers all trials")
    arguments = parser.parse_args()
    only = None if arguments.only is None else arguments.only.split(",")
    verdicts: Counter[str] = Counter()
    passed_over = []
    with Trials(jobs=arguments.jobs, cpu_s_max=arguments.cpu, memory=arguments.memory) as trials:
        for row, case in found_switches(only):
            faulty = any(word in row.options for word in FAULTY)
            if not faulty or "--nemesis none" in row.options or trials.exhausted:
                continue
            before_s = trials.cpu_s
            subject = subject_of(row, case, trials)
            if subject is None:
                passed_over.append(row.name)
                continue
            if not subject.case.faults:
                verdicts[NONE_NEEDED] += 1
                print(f"{row.name:20} {NONE_NEEDED}: {subject.kind}, before any fault", flush=True)
                continue
            rates = find_causes(
                subject.case,
                subject.case,
                parts_of(subject),
                subject.kind,
                trials,
                seeds=arguments.seeds,
                on_trial=lambda: None,
            )
            verdicts[judged(rates.causes)] += 1
            print(*lines_of(row, subject, rates, trials.cpu_s - before_s), sep="\n", flush=True)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        text = f"{counts} of {verdicts.total()}; {trials.runs} runs, {trials.cpu_s:.0f} CPU s"
    if passed_over:
        text += f"; without a failing seed among {SEEDS_MAX}: {', '.join(passed_over)}"
    print(text)


if __name__ == "__main__":
    main()
