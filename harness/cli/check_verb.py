"""`harness check RUN...`: judge stored histories again, whole or torn."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.checking import CHECK_TIME_LIMIT_S, EXIT_CODES, Judgement, checkers_of, judge
from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.cli.verdict_text import describe
from harness.ops import Verdict, worst
from harness.store import StoredRun, load_run

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Check every run; the exit code is that of the worst verdict."""
    parsed = _parse(arguments)
    # Every run is read before any is judged: a usage error must execute nothing.
    stored = [load_run(path) for path in parsed.run]
    checkers = [checkers_of(run.case) for run in stored]
    verdicts = []
    for run, chosen in zip(stored, checkers, strict=True):
        judgement = judge(run.history, run.case, chosen, time_limit_s=parsed.check_time_limit)
        verdicts.append(judgement.verdict)
        if parsed.json:
            say(msgspec.json.encode(_report(run, judgement)).decode())
        else:
            say("\n".join(_text(run, judgement)))
    return EXIT_CODES[worst(verdicts)]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness check",
        description="Judge stored runs again. A run that was cut short is read from its op log.",
        epilog="example:\n  harness check store/ddl-partition-leader/latest",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("run", nargs="+", type=Path, metavar="RUN", help="a run's folder")
    parser.add_argument(
        "--check-time-limit",
        type=float,
        default=CHECK_TIME_LIMIT_S,
        metavar="S",
        help="each checker may take this long, in seconds (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line and run")
    return parser.parse_args(list(arguments))


def _report(run: StoredRun, judgement: Judgement) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "run": str(run.folder),
        "verdict": judgement.verdict.value,
        "ops": len(run.history),
        "history_sha256": run.history.digest(),
        "note": run.note,
        "recorded_verdict": None if run.record is None else run.record.verdict.value,
        "checkers": [msgspec.to_builtins(result) for result in judgement.results],
    }


def _text(run: StoredRun, judgement: Judgement) -> list[str]:
    lines = [f"{judgement.verdict.value.upper()}: {run.folder} ({len(run.history)} ops)"]
    if run.note is not None:
        lines.append(f"  note: {run.note}")
    if run.record is not None and run.record.verdict is not judgement.verdict:
        lines.append(
            f"  note: the run itself had said {run.record.verdict.value}; checkers have changed "
            "since, or had another time limit"
        )
        if run.record.verdict is Verdict.INVALID:
            note(f"harness: {run.folder} was invalid before")
    return [*lines, *describe(judgement), ""]
