"""The command `harness ingest STORE --lake URI`, which appends the runs of a store to a lake."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.cli.status_line import StatusLine
from harness.errors import EXIT_UNKNOWN, EXIT_VALID, UsageError, counted
from results.facts.problems import problem_lines
from results.lake.log.lake import Lake
from results.lake.log.location import Place
from results.lake.transfer.folders import writer_to
from results.lake.transfer.ingest import Ingested, ingest

PIPE_INTERVAL_S: Final = 5.0

EPILOG: Final = """examples:
  harness ingest store --lake /srv/lake
  harness ingest store --lake s3://team/lake

exit codes: 0 all finished runs are in the lake, 2 some could not be read; 254 usage"""


def main(arguments: Sequence[str]) -> int:
    """Ingest a store's runs into a lake, print the problems, and print a summary."""
    parser = Parser(
        prog="harness ingest",
        description="Append the finished runs of a store to a lake, unless it already has them.\n"
        "The command may be stopped at any moment, and continues when started again.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "store", type=Path, metavar="STORE", help="--store of `harness run` or `soak`"
    )
    parser.add_argument(
        "--lake", required=True, metavar="URI", help="a folder, or s3://BUCKET/PREFIX"
    )
    parser.add_argument(
        "--unfinished",
        action="store_true",
        help="also append runs that were cut short, and runs whose run.json describes another "
        "history",
    )
    parsed = parser.parse_args(list(arguments))
    place = Place(parsed.lake)
    if place.local and parsed.store.resolve() in Path(place.uri).resolve().parents:
        raise UsageError(
            f"--lake {parsed.lake!r} is in the store {str(parsed.store)!r}, in which all folders "
            "are runs; keep lake and store apart"
        )
    lake = Lake.open(parsed.lake, create=True)
    status = Status()
    ingested, problems = ingest(
        parsed.store, lake, writer_to(lake), unfinished=parsed.unfinished, progress=status
    )
    status.finish()
    for line in problem_lines(problems):
        note(f"harness: {line}")
    say(_summary(ingested, problems.total))
    return EXIT_UNKNOWN if problems.total else EXIT_VALID


def _summary(found: Ingested, failed: int) -> str:
    parts = [f"{counted(found.appended, 'run')} appended", f"{found.present} known"]
    if found.unfinished:
        parts.append(f"{found.unfinished} not finished (--unfinished appends them, too)")
    if failed:
        parts.append(f"{failed} left out, see above")
    return ", ".join(parts)


class Status:
    """A progress line for an ingest, shown now and then."""

    def __init__(self) -> None:
        self._line = StatusLine(None, pipe_interval_s=PIPE_INTERVAL_S)
        self._begin_s = time.monotonic()

    def __call__(self, found: Ingested) -> None:
        if self._line.due_s() is not None:
            rate = found.looked / max(time.monotonic() - self._begin_s, 1e-9)
            self._line.show(
                f"{found.looked}/{counted(found.total, 'run')}, {rate:.0f} a second; "
                f"{found.present} known, {found.appended} appended"
            )

    def finish(self) -> None:
        self._line.finish()
