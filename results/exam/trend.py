"""The history of exams: the file `history.jsonl`, next to `exam.json`, has a JSON line per exam.

The file has one exam per commit. A second exam of the same commit replaces the first.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Final

import msgspec

from harness.errors import InfrastructureError
from harness.support.atomic_file import write_whole
from results.exam.rows import CLEAN, DEFECT, SWITCH
from results.exam.scores import Scoreboard, Tally

EXAMS_MAX: Final = 500
COMMIT_CHARACTERS: Final = 12
UNKNOWN: Final = "unknown"
GIT_TIMEOUT_S: Final = 10.0


class Exam(msgspec.Struct, frozen=True, kw_only=True):
    """One earlier exam. `rates` maps the key of a row to (hits, seeds)."""

    commit: str
    made: str
    switches: Tally
    defects: Tally
    clean: Tally
    cpu_s: float
    rates: dict[str, tuple[int, int]]


def exam_of(board: Scoreboard) -> Exam:
    """Return an exam's entry for `history.jsonl`."""
    return Exam(
        commit=board.commit,
        made=board.made,
        switches=board.tally(SWITCH),
        defects=board.tally(DEFECT),
        clean=board.tally(CLEAN),
        cpu_s=board.cpu_s,
        rates={score.key: (score.hits, score.seeds) for score in board.scores if score.seeds},
    )


def read_history(path: Path) -> list[Exam]:
    """Return all earlier exams, oldest first. Damaged lines are ignored."""
    exams: list[Exam] = []
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return exams
    except OSError as error:
        raise InfrastructureError(f"cannot read {path}: {error.strerror}") from error
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            exams.append(msgspec.json.decode(line, type=Exam))
    return exams


def record(path: Path, board: Scoreboard) -> list[Exam]:
    """Add an exam to the history file; return the newest `EXAMS_MAX` exams, including this one."""
    exams = [exam for exam in read_history(path) if exam.commit != board.commit]
    exams = [*exams, exam_of(board)][-EXAMS_MAX:]
    write_whole(path, b"".join(msgspec.json.encode(exam) + b"\n" for exam in exams))
    return exams


def commit_here() -> str:
    """Return the current folder's git commit, plus `+` if files differ; `unknown` without git."""
    try:
        head = _git("rev-parse", "HEAD")[:COMMIT_CHARACTERS]
        return f"{head}+" if _git("status", "--porcelain", "--untracked-files=no") else head
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT_S
    )
    return done.stdout.strip()
