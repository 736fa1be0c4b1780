"""`harness lake export URI`: runs of a lake become run folders again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from harness.cli.output import note, say
from harness.cli.status_line import StatusLine
from harness.errors import EXIT_UNKNOWN, EXIT_VALID, counted
from results.facts.problems import problem_lines
from results.lake.log.lake import Lake
from results.lake.log.refusals import require_writable
from results.lake.log.storage_errors import troubles
from results.lake.transfer.export import chosen_runs, export

PIPE_INTERVAL_S: Final = 5.0


def add_export(actions: Any) -> None:
    """Add the action to the sub-parsers of `harness lake`."""
    doc = "make run folders of its runs, all or those named"
    parser = actions.add_parser("export", help=doc, description=doc, allow_abbrev=False)
    parser.add_argument("uri", metavar="URI", help="a folder, or s3://BUCKET/PREFIX")
    parser.add_argument("--store", type=Path, required=True, metavar="DIR", help="where to")
    parser.add_argument(
        "--run", action="append", default=[], metavar="KEY", help="of the column `run`; repeatable"
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="LABEL", help="all of a label; repeatable"
    )


def export_runs(parsed: argparse.Namespace) -> int:
    """Write the runs, name the ones that failed, and sum up."""
    lake = Lake.open(parsed.uri)
    snapshot = lake.snapshot()
    with troubles(lake.place.uri):
        rows = chosen_runs(snapshot, runs=parsed.run, labels=parsed.label)
    require_writable(parsed.store, "choose another --store")
    line = StatusLine(None, pipe_interval_s=PIPE_INTERVAL_S)

    def progress(done: int) -> None:
        if line.due_s() is not None:
            line.show(f"{done}/{len(rows)} runs")

    with troubles(lake.place.uri):
        written, problems = export(
            snapshot, lake.place.files, parsed.store, rows, progress=progress
        )
    line.finish()
    for text in problem_lines(problems):
        note(f"harness: {text}")
    there = len(rows) - written - problems.total
    say(f"{counted(written, 'run')} written to {parsed.store}, {there} there already")
    return EXIT_UNKNOWN if problems.total else EXIT_VALID
