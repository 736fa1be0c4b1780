"""The command `harness exam`, which measures how well the harness finds known defects.

The files of an exam, below `STORE/.exam/`:

| file           | content                                                          |
|----------------|------------------------------------------------------------------|
| exam.json      | the scoreboard                                                   |
| exam.html      | the scoreboard as a page, with the trend over commits            |
| history.jsonl  | all exams of this store, by commit                               |
| results.log    | the result of each seed, so that an exam continues where it ended |
| shrinking.log  | the trials of `--shrink`                                         |
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.cli.output import note, say
from harness.cli.status_line import StatusLine
from harness.errors import (
    EXIT_CRASH,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_VALID,
    InfrastructureError,
    counted,
)
from harness.registry import plugin_names
from harness.soak.result import SeedResult
from harness.support.atomic_file import refuse_folder, write_whole
from harness.support.interrupts import sigterm_interrupts
from harness.trials.memory import Memory
from results.exam.baseline import Comparison, compare
from results.exam.bugs_page import bugs_page
from results.exam.options import FOLDER, parse_exam
from results.exam.progress import PIPE_INTERVAL_S, ExamProgress
from results.exam.rows import Paper, Row, make_paper
from results.exam.scores import Scoreboard, read_scoreboard, scoreboard, write_json
from results.exam.sitting import Sitting
from results.exam.text import text_of
from results.exam.trend import commit_here, record

PATH: Final = "PYTHONPATH"


def main(arguments: Sequence[str]) -> int:
    """Run all seeds that have no result yet, and write the scoreboard; return the exit code."""
    parsed = parse_exam(arguments)
    refuse_folder("--bugs-page", parsed.bugs_page)
    if parsed.bugs_page is not None:
        return _write_bugs_page(parsed)
    from results.exam.page import render  # fails before any work if Jinja2 is missing

    before = None if parsed.baseline is None else read_scoreboard(parsed.baseline, "--baseline")
    folder: Path = parsed.store / FOLDER
    paper = _paper(parsed)
    if parsed.fresh:
        _forget(folder / "results.log")
    sitting = Sitting(paper.rows, Memory(folder / "results.log"), cpu_s_max=parsed.cpu)
    try:
        with sigterm_interrupts():  # CI systems send SIGTERM before they kill a job
            _sit(sitting, parsed)
            for board in _boards(paper, sitting, parsed):
                comparison = None if before is None else compare(board, before)
                write_json(board, folder / "exam.json")
                exams = record(folder / "history.jsonl", board)
                page = render(board, comparison, exams)
                write_whole(folder / "exam.html", page.encode())
    except KeyboardInterrupt:
        note(
            f"harness: interrupted after {counted(sitting.runs, 'run')}; the same command continues"
        )
        return EXIT_INTERRUPTED
    if parsed.json:
        say(msgspec.json.encode(board).decode())
    else:
        say(*text_of(board, comparison), f"page: {folder / 'exam.html'}")
    return exit_code_of(board, comparison)


def exit_code_of(board: Scoreboard, comparison: Comparison | None) -> int:
    """Return the exit code of an exam. The end of `harness exam --help` explains the codes."""
    if board.blamed or (comparison is not None and comparison.changes):
        return EXIT_INVALID
    if board.crashes:
        return EXIT_CRASH
    return EXIT_UNKNOWN if board.cut else EXIT_VALID


def _paper(parsed: argparse.Namespace) -> Paper:
    if parsed.defects is not None:
        _make_importable()
    return make_paper(
        parts=parsed.kinds,
        targets=parsed.targets,
        only=parsed.only_names,
        defects=parsed.defects,
        seeds=parsed.seed_range,
        clean_seeds=parsed.clean_range,
        first=parsed.first,
    )


def _make_importable() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    places = os.environ.get(PATH, "").split(os.pathsep)
    if here not in places:
        os.environ[PATH] = os.pathsep.join([*filter(None, places), here])


def _forget(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InfrastructureError(
            f"--fresh cannot remove {path}: {error.strerror}; choose another --store"
        ) from error


def _sit(sitting: Sitting, parsed: argparse.Namespace) -> None:
    progress = None if parsed.quiet or parsed.json else ExamProgress(sitting.rows)

    def on_result(row: Row, result: SeedResult) -> None:
        if progress is not None:
            progress.take(row, result, tried=len(sitting.results(row)))

    take: Callable[[Row, SeedResult], None] = on_result
    try:
        if parsed.spark_master is not None:
            sitting.run_on_spark(parsed.spark_master, on_result=take)
        else:
            sitting.run(jobs=parsed.jobs, on_result=take)
    finally:
        if progress is not None:
            progress.finish()


def _boards(paper: Paper, sitting: Sitting, parsed: argparse.Namespace) -> Iterator[Scoreboard]:
    """Yield the scoreboard. If sizes are wanted, yield it again after each shrunk detection."""
    board = scoreboard(
        [(row, sitting.results(row)) for row in paper.rows],
        commit=commit_here(),
        cut=_cut(sitting, parsed.cpu),
        refused=paper.refused,
    )
    if not parsed.shrink:
        yield board
        return
    from results.exam.shrinking import with_sizes

    status = StatusLine(None, pipe_interval_s=PIPE_INTERVAL_S)
    quiet = parsed.quiet or parsed.json

    def show(name: str) -> None:
        if not quiet and status.due_s() is not None:
            status.show(f"exam: shrinking {name}")

    try:
        yield from with_sizes(
            board,
            {row.key: (row, sitting.results(row)) for row in sitting.rows},
            jobs=parsed.jobs,
            cpu_s_max=parsed.cpu - sitting.cpu_s,
            folder=parsed.store / FOLDER,
            on_row=show,
        )
    finally:
        status.finish()


def _cut(sitting: Sitting, cpu_s_max: float) -> str:
    left = sum(sitting.left(row) for row in sitting.rows)
    if not left:
        return ""
    return (
        f"incomplete: the limit of {cpu_s_max:g} CPU s was reached with up to "
        f"{counted(left, 'seed')} left; raise --cpu, and the same command continues"
    )


def _write_bugs_page(parsed: argparse.Namespace) -> int:
    page = bugs_page(parsed.targets or plugin_names("targets"))
    write_whole(parsed.bugs_page, page.encode())
    return EXIT_VALID
