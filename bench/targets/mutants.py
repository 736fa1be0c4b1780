"""Measure which defects a soak finds, in how many seeds, and at what cost.

        M="python -m bench.targets.mutants"
        $M --seeds 1..30                    # every mutant, in default soaks
        $M --seeds 1..100 --first --bugs    # every switch of the bundled targets
        $M --seeds 1..100 --bugs hive       # every switch of one target, in all seeds
        $M --seeds 1..10 --first --jobs 2   # stop each mutant at the first seed that finds it
        $M --only long-lease --set rate=20 --option burst=0 --json out.json

`tests/mutants` has the mutants. A switch runs with the options and faults of its row in the ledger
(`targets/*/bugs.py`). Behind the number of seeds that find a defect, the table shows their share as
Wilson's 95 % interval. With `--clean` the target without defects runs as well; a verdict other than
`valid` is then a defect of the harness.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.targets.ledgers import LEDGERS, case_of, found_switches
from harness.case import Case
from harness.cli.run.case_options import parse_pair
from harness.cli.soak.options import parse_seeds
from harness.plan.random_case import ANY, DRAWABLE
from harness.soak import SeedJob, run_seed
from results.statistics.estimates import wilson
from tests.mutants import master_defects, raft_defects, tserver_defects
from tests.mutants.plant import MUTANTS, planted

REGISTERED = (raft_defects, master_defects, tserver_defects)
CLEAN = "(none)"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one seed of one mutant."""

    mutant: str
    seed: int
    verdict: str
    checkers: tuple[str, ...]
    reason: str
    cpu_s: float


def run_one(mutant: str | None, case: Case) -> Finding:
    """Run one seed in this process."""
    begin_s = time.process_time()
    job = SeedJob(case=case, store=None, name="mutants", run_prefix="")
    with planted(mutant):
        result = run_seed(job)
    return Finding(
        mutant=mutant or " ".join(case.bugs) or CLEAN,
        seed=case.seed,
        verdict=result.verdict,
        checkers=tuple(c.checker for c in result.checkers if c.verdict == "invalid"),
        reason=result.reason[:200],
        cpu_s=time.process_time() - begin_s,
    )


def run_mutant(mutant: str | None, case: Case, seeds: range, *, first: bool) -> list[Finding]:
    """Run a mutant, or the case's switch, with all seeds, or with `first` until one is invalid."""
    logging.disable(logging.CRITICAL)
    findings = []
    for seed in seeds:
        finding = run_one(mutant, msgspec.structs.replace(case, seed=seed))
        findings.append(finding)
        if first and finding.verdict == "invalid":
            break
    return findings


def row(mutant: str, findings: list[Finding]) -> str:
    """The line of the table about one mutant."""
    invalid = [finding for finding in findings if finding.verdict == "invalid"]
    by = Counter(name for finding in invalid for name in finding.checkers)
    others = Counter(f.verdict for f in findings if f.verdict not in {"invalid", "valid"})
    text = ", ".join(f"{name} {count}" for name, count in by.most_common())
    other = "".join(f", {count} {verdict}" for verdict, count in sorted(others.items()))
    cpu_s = sum(finding.cpu_s for finding in findings) / len(findings)
    first = f"first {invalid[0].seed}" if invalid else "missed"
    count = f"{len(invalid)} of {len(findings)}"
    share = wilson(len(invalid), len(findings))
    rate = f"{share.low:4.0%} to {share.high:4.0%}"
    return f"{mutant:32} {count:10} {rate:13} {first:10} {cpu_s:5.2f} s  {text}{other}"


def work(arguments: argparse.Namespace) -> Iterator[tuple[str, list[Finding]]]:
    """Yield the name and the findings of each mutant as soon as its seeds are done."""
    first, last = parse_seeds(arguments.seeds)
    seeds = range(first, last + 1)
    only = None if arguments.only is None else arguments.only.split(",")
    fields = dict(parse_pair(text, "--set") for text in arguments.set)
    case = Case(
        seed=1,
        given=tuple(name for name in DRAWABLE if name in fields),
        nemeses=tuple(arguments.nemesis.split(",")),
        workload=arguments.workload,
        workload_options=dict(parse_pair(text, "--option") for text in arguments.option),
        target_options=dict(
            parse_pair(text, "--target-option") for text in arguments.target_option
        ),
        **fields,
    )
    chosen: list[tuple[str | None, Case]] = [(None, case)] if arguments.clean else []
    if arguments.bugs:
        switches = [bug for name in arguments.bugs.split(",") for bug in found_switches(name)]
        chosen += [(None, case_of(bug)) for bug in switches if only is None or bug.id in only]
    else:
        chosen += [(name, case) for name in MUTANTS if only is None or name in only]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool:
        runs = {
            pool.submit(run_mutant, name, case, seeds, first=arguments.first): (
                name or " ".join(case.bugs) or CLEAN
            )
            for name, case in chosen
        }
        for done in concurrent.futures.as_completed(runs):
            yield runs[done], done.result()


def main() -> None:
    """Print one line per mutant, and the number of missed mutants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1..30")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", help="run only these mutants or switches, separated by commas")
    parser.add_argument(
        "--bugs", nargs="?", const=",".join(LEDGERS), metavar="TARGETS",
        help="run the switches of all bundled targets, or of these, instead of mutants",
    )  # fmt: skip
    parser.add_argument(
        "--first", action="store_true", help="stop each mutant at the first seed that finds it"
    )
    parser.add_argument("--clean", action="store_true", help="run the target without a defect, too")
    parser.add_argument("--nemesis", default=ANY)
    parser.add_argument("--workload", default="ddl")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--target-option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--json", type=Path, help="write all findings to this file")
    arguments = parser.parse_args()
    all_found: list[Finding] = []
    missed = 0
    for name, findings in work(arguments):
        all_found += findings
        missed += name != CLEAN and all(finding.verdict != "invalid" for finding in findings)
        print(row(name, findings), flush=True)
    print(f"{missed} missed; {sum(finding.cpu_s for finding in all_found):.0f} CPU s")
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.encode(all_found))


if __name__ == "__main__":
    main()
