"""The command `harness why`, which finds a failure's causes, and when it became inevitable."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.case import Case, load_case
from harness.cli.output import note, say
from harness.cli.parser import Parser, add_place, check_counts
from harness.cli.run.verb import default_name
from harness.cli.status_line import StatusLine
from harness.errors import EXIT_INTERRUPTED, UsageError, counted
from harness.ops import NS_PER_S
from harness.plan.planning import plan_case
from harness.plugins import Environment, Reporter
from harness.registry import load_plugin
from harness.run.keep import SIM, run_and_keep
from harness.store import RunFolder, check_place, load_run, new_run_id
from harness.support.interrupts import sigterm_interrupts
from results.why.answer import Why
from results.why.drawing import write_page
from results.why.search import CAUSES, TIME, Progress, explain, in_words, is_simulated
from results.why.words import text_of

SEEDS_DEFAULT: Final = 30
SEEDS_MAX: Final = 10_000
RESEEDS_DEFAULT: Final = 24
RESEEDS_MAX: Final = 1000
CPU_S_DEFAULT: Final = 1800.0
JOBS_MAX: Final = 512
PIPE_INTERVAL_S: Final = 5.0
BOTH: Final = "both"

EPILOG: Final = """examples:
  harness why store/ddl-partition-leader/latest
  harness why case.json --seeds 100
  harness why store/ddl-partition-leader/latest --part time --reseeds 50

After a kill, an interrupt or the limit of CPU time, the same command continues: results of trials
are remembered next to the run's folder. A shrunk case is explained in a fraction of the time.

exit codes: 0 explained, 130 interrupted; 254 usage, also for a run that is not invalid"""


def main(arguments: Sequence[str]) -> int:
    """Explain the failure of a run; return the exit code."""
    parsed = _parse(arguments)
    environment: Environment = load_plugin("environments", SIM)
    status = StatusLine(None, pipe_interval_s=PIPE_INTERVAL_S)

    def show(progress: Progress) -> None:
        if not (parsed.quiet or parsed.json) and status.due_s() is not None:
            status.show(in_words(progress))

    folder = parsed.run
    begin_s = time.monotonic()
    try:
        with sigterm_interrupts():
            folder = _simulated(parsed, environment)
            why = explain(
                folder,
                environment,
                parts=(CAUSES, TIME) if parsed.part == BOTH else (parsed.part,),
                seeds=parsed.seeds,
                reseeds=parsed.reseeds,
                jobs=parsed.jobs,
                cpu_s_max=parsed.cpu,
                on_progress=show,
            )
    except KeyboardInterrupt:
        status.finish()
        note(f"harness: interrupted; `harness why {folder}` continues with the same options")
        return EXIT_INTERRUPTED
    finally:
        status.finish()
    files = _write(why, folder)
    if parsed.json:
        say(msgspec.json.encode({**msgspec.to_builtins(why), "files": files}).decode())
    else:
        say(*text_of(why))
        workers = counted(parsed.jobs, "worker")
        say(f"{time.monotonic() - begin_s:.0f} s on {workers}")
        say(*(f"{name:8} {path}" for name, path in files.items()))
        moment_ns = why.inevitable.before_ns if why.inevitable.is_turn else None
        if why.inevitable.from_ns is not None and moment_ns is not None:
            moment = f"time={moment_ns / NS_PER_S:.10g}"
            look = shlex.join(["harness", "replay", str(folder), "--until", moment])
            say(f"{'replay':8} {look}")
    return 0


def _write(why: Why, folder: Path) -> dict[str, str]:
    """Write the answer, its drawing, and the run's page, which has a lane with the failure rate."""
    reporter: Reporter = load_plugin("reporters", "page")
    return {
        "answer": str(why.save(folder)),
        "drawing": str(write_page(why, folder)),
        "page": str(reporter.write(folder)),
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness why",
        description="Find the parts of a failing case that its failure needs, and the time "
        "from\nwhich the failure was inevitable. Everything runs in the simulation.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run",
        type=Path,
        metavar="RUN|CASE",
        help="folder of an invalid run, or a case file, which is run and kept first",
    )
    parser.add_argument(
        "--part",
        choices=(BOTH, CAUSES, TIME),
        default=BOTH,
        help="find only the causes, or only the rate along the time (default: %(default)s)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=SEEDS_DEFAULT,
        metavar="N",
        help="seeds for the case and for the case without each part (default: %(default)s)",
    )
    parser.add_argument(
        "--reseeds",
        type=int,
        default=RESEEDS_DEFAULT,
        metavar="N",
        help="runs with different futures at each point of the timeline (default: %(default)s)",
    )
    parser.add_argument(
        "--cpu",
        type=float,
        default=CPU_S_DEFAULT,
        metavar="S",
        help="limit of CPU time in seconds, for all workers together, including trials of "
        "earlier calls "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help=f"worker processes (default: one per core, here {os.cpu_count() or 1})",
    )
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    parsed = parser.parse_args(list(arguments))
    check_counts(parsed, seeds=SEEDS_MAX, reseeds=RESEEDS_MAX, jobs=JOBS_MAX)
    if not 0 < parsed.cpu < 1e9:
        raise UsageError(f"--cpu is {parsed.cpu:g}; it must be more than 0 and below 1e9")
    return parsed


def _simulated(parsed: argparse.Namespace, environment: Environment) -> Path:
    """Return the folder of a simulated run of the case; run the case if it has none."""
    path: Path = parsed.run
    if path.is_dir():
        run = load_run(path)
        if is_simulated(run):
            return path
        case = run.case
    else:
        case = load_case(path)
    return _run(case, parsed, environment)


def _run(case: Case, parsed: argparse.Namespace, environment: Environment) -> Path:
    plan = plan_case(case, environment)
    name = parsed.name or default_name(plan.case)
    check_place(parsed.store, name)
    folder = RunFolder(parsed.store, name, new_run_id(plan.case.seed))
    note(f"running the case once in the simulation, kept in {folder.path}")
    kept = run_and_keep(plan, environment, folder, run_id=folder.run_id)
    kept.require_kept()
    return folder.path
