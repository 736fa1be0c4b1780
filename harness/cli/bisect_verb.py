"""`harness bisect`: finds a repository's first bad commit by running one simulated case."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.bisect.repository import Mark, Repository
from harness.bisect.search import Found, Tested, bisect
from harness.case import load_case
from harness.cli.output import say
from harness.cli.parser import Parser, check_counts
from harness.cli.status_line import StatusLine
from harness.errors import EXIT_UNKNOWN, EXIT_VALID, UsageError, counted
from harness.support.interrupts import sigterm_interrupts
from harness.support.workers import default_jobs

SEEDS_DEFAULT: Final = 5
SEEDS_MAX: Final = 1000
JOBS_MAX: Final = 256
_SEED_END: Final = 2**63
EPILOG = """examples:
  harness bisect v1.4 main --case failing.json
  harness bisect HEAD~64 HEAD --case store/ddl-kill-leader/latest/case.json --seeds 20
  harness bisect v1.4 main --case case.json --repo ~/my-target \\
    --setup 'python3 -m venv .venv && .venv/bin/pip install -e . catalog-harness'

exit codes: 0 the first bad commit is found, 2 skipped commits hide it, 254 usage, 255 crash"""


def main(arguments: Sequence[str]) -> int:
    """Find the first bad commit; returns 0 if it is found, and 2 if skipped commits hide it."""
    parsed = _parse(arguments)
    check_counts(parsed, seeds=SEEDS_MAX, jobs=JOBS_MAX)
    case = load_case(parsed.case)
    if case.seed + parsed.seeds > _SEED_END:
        raise UsageError(
            f"the case has the seed {case.seed}, and --seeds is {parsed.seeds}; all seeds must be "
            "below 2**63"
        )
    repository = Repository(parsed.repo)
    good = repository.commit(parsed.good, "GOOD")
    bad = repository.commit(parsed.bad, "BAD")
    status = StatusLine(None, pipe_interval_s=0.0)
    try:
        with sigterm_interrupts():
            answer = bisect(
                repository,
                good,
                bad,
                case,
                seeds=range(case.seed, case.seed + parsed.seeds),
                jobs=parsed.jobs,
                setup=parsed.setup,
                on_step=status.show,
                on_tested=lambda each: status.line(_line(each)),
            )
    finally:
        status.finish()
    if parsed.json:
        say(msgspec.json.encode(_report(answer)).decode())
    else:
        say(*_text(answer))
    return EXIT_VALID if answer.first_bad is not None else EXIT_UNKNOWN


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness bisect",
        description="Find the first commit of a git repository at which a case fails in the same "
        "way as at BAD. The code of each tested commit runs the case in the simulation.",
        epilog=EPILOG,
    )
    parser.add_argument("good", metavar="GOOD", help="a commit at which the case does not fail")
    parser.add_argument("bad", metavar="BAD", help="a later commit at which the case fails")
    parser.add_argument("--case", type=Path, required=True, metavar="FILE", help="the case to run")
    parser.add_argument(
        "--repo",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="the repository (default: that of the current folder)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=SEEDS_DEFAULT,
        metavar="N",
        help="number of seeds per commit, starting with the case's own: the seed that fails may "
        "differ between commits (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=default_jobs(),
        metavar="N",
        help="number of seeds that run at a time (default: one per core)",
    )
    parser.add_argument(
        "--setup",
        metavar="COMMAND",
        help="a shell command that is run in each work tree first; if it makes .venv/bin/python, "
        "that interpreter runs the case",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no text")
    return parser.parse_args(list(arguments))


def _line(tested: Tested) -> str:
    note = {
        Mark.BAD: f" (seed {tested.seed})",
        Mark.SKIP: f": {tested.why}",
        Mark.GOOD: "",
    }[tested.result]
    word = {Mark.SKIP: "skipped"}.get(tested.result, tested.result.value)
    return f"{tested.commit.short} {word}{note}  {tested.commit.subject}"


def _report(found: Found) -> dict[str, object]:
    first = found.first_bad
    return {
        "schema_version": 1,
        "first_bad": first,
        "candidates": found.candidates,
        "why": found.why,
        "checker": found.kind.checker,
        "rule": found.kind.rule,
        "seed": found.seed,
        "tested": found.tested,
        "command": None if first is None else f"git show --stat {first.hash}",
    }


def _text(found: Found) -> list[str]:
    tests = counted(len(found.tested) - 2, "commit")
    skipped = sum(each.result is Mark.SKIP for each in found.tested)
    lines = [f"fails by     {found.kind}", f"tested       {tests}, after GOOD and BAD"]
    if skipped:
        lines.append(f"skipped      {counted(skipped, 'commit')}, which cannot be judged")
    first = found.first_bad
    if first is None:
        candidates = [f"  {each.short}  {each.subject}" for each in found.candidates]
        one_of = "; the first bad commit is one of" if candidates else ""
        return [*lines, f"not found: {found.why}{one_of}", *candidates]
    seed = next(each.seed for each in found.tested if each.commit.hash == first.hash)
    return [
        *lines,
        f"date         {first.date}",
        f"failing seed {seed}",
        f"look         git show --stat {first.short}",
        "",
        f"the first bad commit is {first.short}: {first.subject}",
    ]
