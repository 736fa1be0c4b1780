"""The command line of `harness exam`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cli.parser import Parser, add_store, check_counts
from harness.cli.soak.options import JOBS_MAX, parse_seeds
from harness.errors import UsageError, unknown_name
from harness.support.workers import default_jobs
from results.exam.rows import CLEAN, DEFECT, PARTS, SWITCH

SEEDS: Final = "1..100"
CPU_S: Final = 14_400.0
FOLDER: Final = ".exam"
EPILOG: Final = """examples:
  harness exam --first
  harness exam --defects tests.mutants --first --seeds 1..30
  harness exam --part switches --target hive --seeds 1..100 --jobs 2
  harness exam --only KUDU-765,NO-LEASE --seeds 1..20
  harness exam --part clean --clean 1..50 --cpu 1500
  harness exam --first --baseline exam.json
  harness exam --first --shrink
  harness exam --spark-master 'local[4]' --first

After a kill or an interrupt, the same command continues where it stopped.

exit codes, the first that applies: 130 interrupted; 1 a clean profile is blamed, or a rate left the
interval of the baseline; 255 the harness crashed at a clean profile; 2 --cpu was not enough for
all seeds, or for --shrink; 0 otherwise; 254 usage"""


def parse_exam(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options; raises `UsageError` for invalid values and combinations."""
    parser = Parser(
        prog="harness exam",
        usage="harness exam [OPTION ...]",
        description="Look for every known defect with the soaks that should find it, and run\n"
        "clean profiles, which must have no violation. Write exam.json, exam.html and "
        "history.jsonl.",
        epilog=EPILOG,
    )
    _add_rows(parser)
    _add_work(parser)
    add_store(parser)
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="compare with this exam.json; a significant change of a rate fails the exam",
    )
    parser.add_argument("--json", action="store_true", help="print exam.json to stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--bugs-page",
        type=Path,
        metavar="FILE",
        help="only write the list of switches that soaks find, as Markdown; run nothing",
    )
    parsed = parser.parse_args(list(arguments))
    _check(parsed)
    return parsed


def _add_rows(parser: Parser) -> None:
    parser.add_argument(
        "--part",
        metavar="A,B",
        help=f"parts of the exam, of {', '.join(PARTS)} (default: all)",
    )
    parser.add_argument(
        "--target",
        metavar="A,B",
        help="targets (default: all installed ones that can be simulated)",
    )
    parser.add_argument(
        "--only", metavar="A,B", help="only these switches, planted defects or clean profiles"
    )
    parser.add_argument(
        "--defects",
        metavar="MODULE",
        help="a module of planted defects, importable from the current folder, such as "
        "tests.mutants",
    )


def _add_work(parser: Parser) -> None:
    parser.add_argument(
        "--seeds",
        default=SEEDS,
        metavar="A..B",
        help="seeds of each switch and planted defect (default: %(default)s)",
    )
    parser.add_argument(
        "--clean",
        metavar="A..B",
        help="seeds of each clean profile (default: the seeds of --seeds)",
    )
    parser.add_argument(
        "--first",
        action="store_true",
        help="stop trying a defect after the first seed that finds it",
    )
    parser.add_argument(
        "--cpu",
        type=float,
        default=CPU_S,
        metavar="S",
        help="limit of CPU seconds for all runs together; it shortens all rows alike (default: "
        "%(default)g)",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="worker processes (default: one per core)"
    )
    parser.add_argument(
        "--spark-master",
        metavar="URL",
        help="run the seeds on Spark: local[N], spark://host:port or sc://host:port",
    )
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="shrink the first detection of each defect, within 60 CPU s each and --cpu in all",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="discard the results of earlier exams in this store"
    )


def _check(parsed: argparse.Namespace) -> None:
    parsed.parts = _names(parsed.part, "--part") or tuple(PARTS)
    for name in parsed.parts:
        if name not in PARTS:
            raise unknown_name("part of an exam", name, PARTS)
    if "defects" in parsed.parts and parsed.part is not None and parsed.defects is None:
        raise UsageError(
            "--part names defects, but no module has them; give one: --defects tests.mutants"
        )
    parsed.kinds = tuple(PARTS[name] for name in parsed.parts)
    assert set(parsed.kinds) <= {SWITCH, DEFECT, CLEAN}
    parsed.targets = _names(parsed.target, "--target") or None
    parsed.only_names = _names(parsed.only, "--only") or None
    parsed.seed_range = _range(parsed.seeds)
    parsed.clean_range = parsed.seed_range if parsed.clean is None else _range(parsed.clean)
    if not (parsed.cpu > 0 and math.isfinite(parsed.cpu)):
        raise UsageError(f"--cpu is {parsed.cpu:g}; it must be a number of seconds above 0")
    if parsed.spark_master is not None and parsed.jobs is not None:
        raise UsageError(
            "--jobs is for workers on this machine; with --spark-master the cluster decides, "
            "e.g. --spark-master local[2]"
        )
    if parsed.jobs is None:
        parsed.jobs = default_jobs()
    check_counts(parsed, jobs=JOBS_MAX)


def _range(text: str) -> range:
    first, last = parse_seeds(text)
    return range(first, last + 1)


def _names(text: str | None, flag: str) -> tuple[str, ...]:
    if text is None:
        return ()
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag} is {text!r}; separate names with commas, e.g. a,b")
    return tuple(dict.fromkeys(names))
