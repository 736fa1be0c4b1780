"""The runs that a report or an ingest could not read or judge, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

PROBLEMS_MAX: Final = 1_000
TEXT_CHARS_MAX: Final = 2_000
SEED_WITHOUT_RUN: Final = "seed"
"""The `Problem.kind` for a seed of a soak that crashed or could not store its run."""
RUNNING: Final = "running"
"""The `Problem.kind` for a run that a live process still writes."""
NO_LOSS: Final = frozenset({"record", "unfinished", RUNNING})
"""Kinds of problems that lose no run: this report or a later report judges the run anyway."""


class Problem(msgspec.Struct, frozen=True, order=True):
    """A run (`NAME/RUN`) or path that the harness could not read or judge, and the reason."""

    run: str
    # "case", "record", "history", "unfinished", "checker", "facts", "lost", "seed", "refused", ...
    kind: str
    text: str


class Problems:
    """A bounded list of problems. It keeps the first `PROBLEMS_MAX`, and counts all of them."""

    def __init__(self) -> None:
        self._kept: dict[Problem, None] = {}
        self.total = 0

    def add(self, problem: Problem) -> None:
        """Add a problem. If the list is full, only count it. A duplicate counts once."""
        text = problem.text
        if len(text) > TEXT_CHARS_MAX:
            text = f"{text[:TEXT_CHARS_MAX]}... ({len(text)} characters)"
        problem = msgspec.structs.replace(problem, text=text)
        if problem in self._kept:
            return
        self.total += 1
        if len(self._kept) < PROBLEMS_MAX:
            self._kept[problem] = None

    @property
    def kept(self) -> tuple[Problem, ...]:
        return tuple(sorted(self._kept))


def problem_lines(problems: Problems) -> Iterator[str]:
    """Yield one line per kept problem, then a line with the number of problems left out."""
    for problem in problems.kept:
        yield f"{problem.run}: {problem.text}"
    if problems.total > len(problems.kept):
        yield f"and {problems.total - len(problems.kept)} problems more"
