"""`harness lake compact|vacuum|check|export URI`: the upkeep of a lake, and its runs as folders.

Its own endpoint and credentials come from the environment (`AWS_ENDPOINT_URL`,
`AWS_ACCESS_KEY_ID`, ...), as for every program that speaks to such a store.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from harness.cli.output import note, say
from harness.cli.parser import Parser
from harness.errors import EXIT_INVALID, EXIT_VALID, counted
from results.judging.result_lake import RESULTS, ResultLake, check_results
from results.lake.log.files import MAIN
from results.lake.log.lake import Lake
from results.lake.log.location import Place
from results.lake.transfer.export_verb import add_export, export_runs
from results.lake.upkeep.compaction import compact
from results.lake.upkeep.soundness import Finding, check
from results.lake.upkeep.vacuum import GRACE_HOURS, vacuum

MB: Final = 1_000_000
SHOWN_MAX: Final = 20
_BESIDE: Final = "what reports found ({}):"

EPILOG: Final = """examples:
  harness lake compact s3://histories/lake
  harness lake vacuum lake --grace-hours 48
  harness lake check lake
  harness lake export s3://histories/lake --store again --label v2

exit codes of check: 0 sound, 1 damaged; of export: 0 all are there, 2 some could not be written;
254 usage, 255 where the store does not answer"""


def main(arguments: Sequence[str]) -> int:
    """Do one thing to a lake and say what came of it."""
    parsed = _parse(arguments)
    if parsed.action == "export":
        return export_runs(parsed)
    lake = Lake.open(parsed.uri)
    beside = Place(f"{lake.place.uri}/{RESULTS}", lake.place.options)
    if parsed.action == "check":
        return _check(lake, beside)
    actions = {"compact": _compact, "vacuum": _vacuum}
    code = actions[parsed.action](lake, parsed)
    results = ResultLake.beside(lake.place.uri, lake.place.options)
    if results is not None:
        say(_BESIDE.format(beside.uri))
        code = max(code, actions[parsed.action](results, parsed))
    return code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="harness lake",
        description="Look after a lake; writers and readers may go on meanwhile.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    words = {
        "compact": "merge small files; every run stays in one",
        "vacuum": "remove what dead writers left and what a compaction replaced",
        "check": "see that every file is there and every run is whole and once",
    }
    for name, doc in words.items():
        action = actions.add_parser(name, help=doc, description=doc, allow_abbrev=False)
        action.add_argument("uri", metavar="URI", help="a folder, or s3://BUCKET/PREFIX")
        if name == "vacuum":
            action.add_argument(
                "--grace-hours",
                type=int,
                default=GRACE_HOURS,
                metavar="N",
                help="keep files younger than this; readers of older versions need them "
                "(default: %(default)s)",
            )
            action.add_argument("--dry-run", action="store_true", help="only say what would go")
    add_export(actions)
    return parser.parse_args(list(arguments))


def _compact(lake: Lake, _: argparse.Namespace) -> int:
    for done in compact(lake, progress=note):
        more = f", {counted(done.abandoned, 'merge')} abandoned" if done.abandoned else ""
        say(
            f"{done.table:12} {counted(done.files_before, 'file')} "
            f"({done.bytes_before / MB:.1f} MB) -> {counted(done.files_after, 'file')} "
            f"({done.bytes_after / MB:.1f} MB){more}"
        )
    return EXIT_VALID


def _vacuum(lake: Lake, parsed: argparse.Namespace) -> int:
    done = vacuum(lake, grace_hours=parsed.grace_hours, dry_run=parsed.dry_run)
    would = "would be " if parsed.dry_run else ""
    say(f"{would}fenced   {counted(len(done.fenced), 'batch', 'batches')} of dead writers")
    say(f"{would}removed  {counted(len(done.removed), 'file')} from the tables")
    say(f"{would}deleted  {counted(len(done.deleted), 'file')}")
    return EXIT_VALID


def _check(lake: Lake, beside: Place) -> int:
    damaged = _say_sound(check(lake), lake)
    results, findings = check_results(lake, beside)
    if results is not None or findings:
        say(_BESIDE.format(beside.uri))
        damaged = _say_sound(findings, results) or damaged
    return EXIT_INVALID if damaged else EXIT_VALID


def _say_sound(found: Sequence[Finding], lake: Lake | None) -> bool:
    """Print the findings about a lake or its results; returns whether there is damage."""
    for finding in found[:SHOWN_MAX]:
        say(f"{'damaged ' if finding.damaged else 'left over'}  {finding.table}: {finding.text}")
    if len(found) > SHOWN_MAX:
        say(f"and {len(found) - SHOWN_MAX} more")
    damaged = any(finding.damaged for finding in found)
    rows = 0 if lake is None else sum(file.rows for file in lake.files(MAIN))
    what = "row" if isinstance(lake, ResultLake | None) else "run"
    say(f"{'damaged' if damaged else 'sound'}  {counted(rows, what)}")
    return damaged
