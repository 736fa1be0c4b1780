"""The command `harness twin`, which runs one case on two targets and shows their differences.

The files of a comparison, below `STORE/.twin/`:

| file              | content                          |
|-------------------|----------------------------------|
| LEFT-RIGHT.html   | the comparison as a page         |
| LEFT-RIGHT.json   | the comparison as JSON           |
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.case import Case
from harness.cli.check.limit import add_check_limit
from harness.cli.output import note, say
from harness.cli.parser import Parser, add_store, check_counts
from harness.cli.run.choose import choose_environment
from harness.errors import (
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_VALID,
    UsageError,
)
from harness.plugins import Environment
from harness.registry import plugin_names
from harness.support.atomic_file import write_whole
from harness.support.interrupts import sigterm_interrupts
from results.twin.answer import Material, Twin, compare
from results.twin.observed import Observed
from results.twin.sides import known_for, names_of, original_of, plan_sides, read_case
from results.twin.sitting import sit
from results.twin.text import text_of

RUNS_DEFAULT: Final = 3
RUNS_MAX: Final = 1000
CASES_MAX: Final = 200
FOLDER: Final = ".twin"
EPILOG: Final = """examples:
  harness twin examples/twin/ddl-kill.json
  harness twin examples/twin/*.json --runs 5
  harness twin case.json --with apache-kudu --env docker
  harness twin case.json --env sim --with other-case.json

After an interrupt, the same command continues: runs of the same case and code are taken from the
store.

exit codes: 0 no difference, or only known ones; 1 a difference that nothing explains; 2 nothing was
compared; 130 interrupted; 254 usage"""


def main(arguments: Sequence[str]) -> int:
    """Run the cases on both targets and write the comparison; return the exit code."""
    parsed = _parse(arguments)
    from results.twin.page import render

    cases = [read_case(path) for path in parsed.cases]
    others = [parsed.other if parsed.other is not None else original_of(case) for _, case in cases]
    environments = (
        choose_environment(parsed.env),
        choose_environment(parsed.with_env or parsed.env),
    )
    _refuse_mixture(cases, others)
    names = names_of(cases[0][1], others[0], (environments[0].name, environments[1].name))
    try:
        with sigterm_interrupts():
            materials = [
                _material(name, case, other, environments, parsed)
                for (name, case), other in zip(cases, others, strict=True)
            ]
    except KeyboardInterrupt:
        note("harness: interrupted; the same command continues")
        return EXIT_INTERRUPTED
    twin = compare(names, materials, known_for(cases[0][1], others[0]))
    stem = re.sub(r"[^\w.-]+", "-", "-".join(names))[:100]
    page, data = (parsed.store / FOLDER / f"{stem}.{kind}" for kind in ("html", "json"))
    encoded = msgspec.json.encode(twin)
    write_whole(page, render(twin).encode())
    write_whole(data, msgspec.json.format(encoded, indent=1))
    if parsed.json:
        say(encoded.decode())
    else:
        say(*text_of(twin, every=parsed.verbose), f"page: {page}")
    return exit_code_of(twin)


def exit_code_of(twin: Twin) -> int:
    """Return the exit code of a comparison. The end of `harness twin --help` explains the codes."""
    if not twin.compared:
        return EXIT_UNKNOWN
    return EXIT_INVALID if twin.unexplained else EXIT_VALID


def _material(
    name: str,
    case: Case,
    other: str | Case,
    environments: tuple[Environment, Environment],
    parsed: argparse.Namespace,
) -> Material:
    sides = plan_sides(name, case, other, seeds=parsed.runs, environments=environments)
    seen: tuple[list[Observed], list[Observed]] = ([], [])
    runs = sit(
        sides,
        environments,
        parsed.store,
        note=(lambda _: None) if parsed.quiet or parsed.json else note,
        time_limit_s=parsed.check_time_limit,
        any_code=parsed.any_code,
    )
    for side, run in runs:
        seen[side].append(run)
    return Material(
        case=name,
        about=_about(case),
        left=tuple(seen[0]),
        right=tuple(seen[1]),
        notes=sides.notes,
    )


def _about(case: Case) -> str:
    nemeses = ", ".join(case.nemeses) if case.nemeses != ("none",) else "no faults"
    listed = f", {len(case.ops)} listed requests" if case.ops is not None else ""
    return f"{case.workload} with {nemeses}, {case.time_limit_s:g} s{listed}"


def _refuse_mixture(cases: Sequence[tuple[str, Case]], others: Sequence[str | Case]) -> None:
    """Raise `UsageError` for cases that cannot share a page: different targets, or equal names."""
    targets = sorted({case.target for _, case in cases})
    if len(targets) > 1 or any(other != others[0] for other in others):
        raise UsageError(
            f"the cases have the targets {', '.join(targets)}; one page compares two targets"
        )
    names = [name for name, _ in cases]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two cases have the name {name!r}; rename one of the files")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness twin",
        description="Run the same cases on two targets, such as a system and its re-creation, and "
        "show\ntheir outcomes, codes, times and verdicts side by side. Differences are tested.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "cases",
        type=Path,
        nargs="+",
        metavar="CASE",
        help="a case file, or the folder of a run; several cases make one page",
    )
    parser.add_argument(
        "--with",
        dest="other",
        metavar="TARGET|FILE",
        help="the other target, or a case file with its target, profile, bugs and options "
        "(default: the target that the case's target re-creates)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=RUNS_DEFAULT,
        metavar="N",
        help="runs of each case on each target, with seeds from the case's seed on "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--env",
        default="process",
        metavar="ENV",
        help="sim, process, docker or auto (default: %(default)s)",
    )
    parser.add_argument(
        "--with-env", metavar="ENV", help="the environment of the other target (default: --env)"
    )
    parser.add_argument(
        "--any-code",
        action="store_true",
        help="also take stored runs that other versions of the code made",
    )
    add_store(parser)
    add_check_limit(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    parser.add_argument("--verbose", "-v", action="store_true", help="print every row")
    parsed = parser.parse_args(list(arguments))
    check_counts(parsed, runs=RUNS_MAX)
    if len(parsed.cases) > CASES_MAX:
        raise UsageError(f"{len(parsed.cases)} cases are given; the limit is {CASES_MAX}")
    if parsed.other is not None and parsed.other not in plugin_names("targets"):
        path = Path(parsed.other)
        if not path.is_file():
            raise UsageError(
                f"--with is {parsed.other!r}; give a case file or one of the targets "
                f"{', '.join(plugin_names('targets'))}"
            )
        parsed.other = read_case(path)[1]
    return parsed
