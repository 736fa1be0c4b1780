"""`harness lake export URI`: runs of a lake become run folders again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.cli.status_line import StatusLine
from harness.errors import EXIT_UNKNOWN, EXIT_VALID, counted
from results.lake.export import chosen_runs, export
from results.lake.lake import Lake
from results.lake.schema import SCHEMA_VERSION, schemas
from results.store_scan import problem_lines

__all__ = ["main"]

PIPE_INTERVAL_S: Final = 5.0

EPILOG: Final = """examples:
  harness lake export s3://team/lake --store again --label v2
  harness lake export /srv/lake --store again --run 'ddl-any/soak-1f2e3d4c-seed-7@0123456789ab'"""


def main(arguments: Sequence[str]) -> int:
    """Do what the first word says."""
    parser = Parser(prog="harness lake", description="Work with a lake.", epilog=EPILOG)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    exporting = verbs.add_parser("export", help="make run folders of its runs")
    exporting.add_argument("lake", metavar="URI", help="a folder, or s3://BUCKET/PREFIX")
    exporting.add_argument("--store", type=Path, required=True, metavar="DIR", help="where to")
    exporting.add_argument(
        "--run", action="append", default=[], metavar="KEY", help="of the column `run`; repeatable"
    )
    exporting.add_argument(
        "--label", action="append", default=[], metavar="LABEL", help="all of a label; repeatable"
    )
    parsed = parser.parse_args(list(arguments))
    snapshot_of = Lake.open(parsed.lake, schemas=schemas(), version=SCHEMA_VERSION)
    snapshot = snapshot_of.snapshot()
    rows = chosen_runs(snapshot, runs=parsed.run, labels=parsed.label)
    line = StatusLine(None, pipe_interval_s=PIPE_INTERVAL_S)

    def progress(done: int) -> None:
        if line.due_s() is not None:
            line.show(f"{done}/{len(rows)} runs")

    written, problems = export(
        snapshot, snapshot_of.place.files, parsed.store, rows, progress=progress
    )
    line.finish()
    for text in problem_lines(problems):
        note(f"harness: {text}")
    there = len(rows) - written - problems.total
    say(f"{counted(written, 'run')} written to {parsed.store}, {there} there already")
    return EXIT_UNKNOWN if problems.total else EXIT_VALID
