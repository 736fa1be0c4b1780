"""Compares the kinds of `harness soak --search` on defects that are hard to find.

        S="python -m bench.targets.searching"
        $S --cpu 1800 --jobs 1 --json out.json           # run
        $S --table out.json                              # print the tables again

A campaign is one attempt to find one defect by one kind of search. Each campaign begins with
another seed, and ends at the first proven failure or after `--cap` CPU seconds. Rounds, with a
campaign for each defect and search, repeat until `--cpu` CPU seconds are used. A campaign that
finds nothing counts with its CPU time, so ratios to such a search are only lower bounds.

The first table shows, for each defect, the median CPU seconds and seeds to the first detection. The
second compares the CPU time with that of a swarm with the same seeds: the geometric mean of the
ratios over defects, with a 95 % bootstrap interval over defects and campaigns.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import logging
import math
import multiprocessing
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, get_args

import msgspec

from bench.targets.switches import found_switches
from harness.case import Case
from harness.environments.sim.environment import SimEnvironment
from harness.plan.planning import plan_case
from harness.plan.random_case import ANY, undrawn
from harness.search.guide import GUIDED, SWARM, Guide, Proposal, Search, generations
from harness.soak import SeedJob, run_seed
from tests.mutants import master_defects, raft_defects, tserver_defects
from tests.mutants.plant import MUTANTS, planted

REGISTERED = (raft_defects, master_defects, tserver_defects)
SEARCHES: Final[tuple[Search, ...]] = get_args(Search)
SEEDS_APART: Final = 10_000
RESAMPLES: Final = 2000
HARD: Final = (
    # Mutants that default soaks find late, or not at all within 30 seeds of 60 s each.
    *("any-log-wins", "column-ids-reused", "list-in-two-steps", "locate-leaves-out-a-tablet"),
    *("long-lease", "old-terms-by-counting", "recovery-drops-last", "refusals-unconfirmed"),
    *("term-not-saved", "vote-not-saved", "wal-never-syncs", "leader-counts-before-durable"),
    *("marks-cleared-when-sent", "stale-install"),
    # Bug switches, which are searched for without the options and faults in their ledger rows.
    *("KUDU-495-SPLIT", "KUDU-1374", "LEADER-FLAP-ABA", "ORDER-DELETE", "KUDU-1358", "NO-LEASE"),
)


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """One search for one defect, and the seeds and CPU seconds until it succeeded or gave up."""

    defect: str
    search: Search
    number: int
    found: bool
    seeds: int
    cpu_s: float
    checkers: tuple[str, ...] = ()


def campaign(defect: str, search: Search, number: int, limit_s: float, cap_s: float) -> Campaign:
    """Search for a mutant or a bug switch in this process."""
    logging.disable(logging.CRITICAL)
    is_mutant = defect in MUTANTS
    first = 1 + number * SEEDS_APART
    asked = Case(
        seed=first,
        nemeses=(ANY,),
        time_limit_s=limit_s,
        bugs=() if is_mutant else (defect,),
    )
    environment = SimEnvironment()
    base = msgspec.structs.replace(undrawn(plan_case(asked, environment).case), faults=None)
    guide = Guide(base, environment, search)
    begin_s = time.process_time()
    seeds = 0
    with planted(defect) if is_mutant else contextlib.nullcontext():
        for wave in generations(first, first + SEEDS_APART - 1):
            proposals: dict[int, Proposal] = guide.generation(wave) if search == GUIDED else {}
            for seed in wave:
                case = proposals[seed].case if search == GUIDED else guide.case_of(seed)
                job = SeedJob(
                    case=case, number=seed, observe=search == GUIDED,
                    store=None, name="search", run_prefix="",
                )  # fmt: skip
                result = run_seed(job)
                seeds += 1
                found = result.verdict == "invalid"
                if result.reached is not None:
                    guide.learn(seed, proposals[seed], result.reached, failed=result.failed)
                cpu_s = time.process_time() - begin_s
                if found or cpu_s >= cap_s:
                    return Campaign(
                        defect=defect, search=search, number=number, found=found, seeds=seeds,
                        cpu_s=cpu_s,
                        checkers=tuple(c.checker for c in result.checkers
                                       if c.verdict == "invalid"),
                    )  # fmt: skip
    raise AssertionError("a campaign ran out of seeds before its CPU time was used")


def campaigns(arguments: argparse.Namespace) -> Iterator[Campaign]:
    """Run campaigns, round by round, until the CPU time is used."""
    defects = HARD if arguments.only is None else tuple(arguments.only.split(","))
    switches = {row.name for row, _ in found_switches()}
    unknown = sorted(set(defects) - MUTANTS.keys() - switches)
    if unknown:
        raise SystemExit(f"no mutant or switch {unknown[0]!r}")
    spent_s = 0.0
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool:
        for number in range(arguments.first_round, arguments.rounds):
            runs = [
                pool.submit(campaign, defect, search, number, arguments.limit, arguments.cap)
                for defect in defects
                for search in SEARCHES
                if search in arguments.searches.split(",")
            ]
            for run in concurrent.futures.as_completed(runs):
                done = run.result()
                spent_s += done.cpu_s
                yield done
                if spent_s >= arguments.cpu:
                    for other in runs:
                        other.cancel()
                    return


def table(found: Sequence[Campaign]) -> Iterator[str]:
    """Yield the lines of both tables."""
    by: dict[str, dict[Search, list[Campaign]]] = {}
    for one in found:
        by.setdefault(one.defect, {name: [] for name in SEARCHES})[one.search].append(one)
    heads = "".join(f"{name + ' CPU s':>16}{'seeds':>7}{'found':>7}" for name in SEARCHES)
    yield f"{'defect':32}{heads}"
    for defect, rows in sorted(by.items()):
        cells = ""
        for name in SEARCHES:
            row = rows[name]
            cpu = statistics.median(one.cpu_s for one in row) if row else math.nan
            seeds = statistics.median([float(one.seeds) for one in row]) if row else math.nan
            hits = f"{sum(one.found for one in row)}/{len(row)}"
            cells += f"{cpu:16.1f}{seeds:7.0f}{hits:>7}"
        yield f"{defect:32}{cells}"
    for name in SEARCHES:
        rows_of = [row for rows in by.values() for row in rows[name]]
        cpu_s = sum(one.cpu_s for one in rows_of)
        hits = sum(one.found for one in rows_of)
        yield f"{name:8} {hits} of {len(rows_of)} campaigns found the defect, {cpu_s:.0f} CPU s"
    for name in SEARCHES:
        paired = [pair for rows in by.values() if (pair := pairs(rows, name))]
        if name != SWARM and paired:
            mean, low, high = ratio(paired)
            yield (
                f"CPU time of {name} over {SWARM}: {mean:.2f} (95 % interval {low:.2f} to "
                f"{high:.2f}, {sum(map(len, paired))} pairs, {len(paired)} defects)"
            )


def pairs(rows: dict[Search, list[Campaign]], name: Search) -> list[float]:
    """Return the logarithm of the ratio of CPU times for each campaign that a swarm also ran."""
    swarm = {one.number: one for one in rows[SWARM]}
    return [
        math.log(one.cpu_s / swarm[one.number].cpu_s) for one in rows[name] if one.number in swarm
    ]


def ratio(defects: Sequence[list[float]]) -> tuple[float, float, float]:
    """Return the geometric mean of ratios of CPU times over defects, and its bootstrap interval."""

    def mean(sample: Sequence[list[float]]) -> float:
        return math.exp(statistics.fmean(map(statistics.fmean, sample)))

    rng = random.Random(1)
    drawn = sorted(
        mean([rng.choices(logs, k=len(logs)) for logs in rng.choices(defects, k=len(defects))])
        for _ in range(RESAMPLES)
    )
    low, high = drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES) - 1]
    return mean(defects), low, high


def main() -> None:
    """Run campaigns or read them from a file, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", type=float, default=1800, help="CPU seconds in all")
    parser.add_argument("--cap", type=float, default=25, help="CPU seconds per campaign")
    parser.add_argument("--limit", type=float, default=10, help="time limit of a run, in s")
    parser.add_argument("--rounds", type=int, default=1000, help="the number of the last round")
    parser.add_argument("--first-round", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--searches", default=",".join(SEARCHES), help="run only these searches")
    parser.add_argument("--only", help="run only these defects, separated by commas")
    parser.add_argument("--json", type=Path, help="append the campaigns to this file, one per line")
    parser.add_argument("--table", type=Path, help="print the tables of this file")
    arguments = parser.parse_args()
    found: list[Campaign] = []
    if arguments.table is not None:
        lines = arguments.table.read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=Campaign) for line in lines]
    else:
        for one in campaigns(arguments):
            found.append(one)
            print(msgspec.json.encode(one).decode(), flush=True)
            if arguments.json is not None:
                with arguments.json.open("ab") as file:
                    file.write(msgspec.json.encode(one) + b"\n")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
