"""The actions of `harness lake` (compact, vacuum, check, export), which print their outcomes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from harness.cli.output import note, say
from harness.cli.status_line import StatusLine
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, counted
from results.facts.problems import problem_lines
from results.judging.result_lake import ResultLake, check_results
from results.lake.log.files import MAIN, RESULTS
from results.lake.log.lake import Lake
from results.lake.log.location import Place
from results.lake.log.refusals import require_writable
from results.lake.log.storage_errors import troubles
from results.lake.transfer.export import chosen_runs, export
from results.lake.upkeep.compaction import compact
from results.lake.upkeep.soundness import Finding, check
from results.lake.upkeep.vacuum import vacuum

MB: Final = 1_000_000
SHOWN_MAX: Final = 20
PIPE_INTERVAL_S: Final = 5.0
_RESULTS: Final = "results of reports ({}):"


def act(parsed: argparse.Namespace) -> int:
    """Do the parsed action on a lake and, except for an export, on the result lake inside it."""
    lake = Lake.open(parsed.uri)
    if parsed.action == "export":
        return _export(lake, parsed)
    place = Place(f"{lake.place.uri}/{RESULTS}", lake.place.options)
    if parsed.action == "check":
        return _check(lake, place)
    work = {"compact": _compact, "vacuum": _vacuum}[parsed.action]
    code = work(lake, parsed)
    results = ResultLake.beside(lake.place.uri, lake.place.options)
    if results is not None:
        say(_RESULTS.format(place.uri))
        code = max(code, work(results, parsed))
    return code


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


def _check(lake: Lake, place: Place) -> int:
    damaged = _say_sound(check(lake), lake)
    results, findings = check_results(lake, place)
    if results is not None or findings:
        say(_RESULTS.format(place.uri))
        damaged = _say_sound(findings, results) or damaged
    return EXIT_INVALID if damaged else EXIT_VALID


def _say_sound(found: Sequence[Finding], lake: Lake | None) -> bool:
    """Print the findings about a lake or its result lake; return whether any of them is damage."""
    for finding in found[:SHOWN_MAX]:
        say(f"{'damaged ' if finding.damaged else 'left over'}  {finding.table}: {finding.text}")
    if len(found) > SHOWN_MAX:
        say(f"and {len(found) - SHOWN_MAX} more")
    damaged = any(finding.damaged for finding in found)
    rows = 0 if lake is None else sum(file.rows for file in lake.files(MAIN))
    what = "row" if isinstance(lake, ResultLake | None) else "run"
    say(f"{'damaged' if damaged else 'sound'}  {counted(rows, what)}")
    return damaged


def _export(lake: Lake, parsed: argparse.Namespace) -> int:
    snapshot = lake.snapshot()
    with troubles(lake.place.uri):
        rows = chosen_runs(snapshot, runs=parsed.run, labels=parsed.label)
    require_writable(parsed.store, "choose another --store")
    line = StatusLine(None, pipe_interval_s=PIPE_INTERVAL_S)

    def progress(done: int) -> None:
        if line.due_s() is not None:
            line.show(f"{done}/{counted(len(rows), 'run')}")

    with troubles(lake.place.uri):
        written, problems = export(
            snapshot, lake.place.files, parsed.store, rows, progress=progress
        )
    line.finish()
    for text in problem_lines(problems):
        note(f"harness: {text}")
    there = len(rows) - written - problems.total
    say(f"{counted(written, 'run')} written to {parsed.store}, {there} already there")
    return EXIT_UNKNOWN if problems.total else EXIT_VALID
