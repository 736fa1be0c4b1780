"""Shrinks each detection, and adds the shrunk size to the scoreboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from harness.errors import UsageError, counted
from harness.soak.result import SeedResult
from harness.trials.shrink import shrink
from harness.trials.trials import Trials, kinds_of
from results.exam.rows import CLEAN, Row
from results.exam.scores import Scoreboard, Shrunk

CPU_S: Final = 60.0
"""The maximum CPU time for shrinking one defect, in seconds."""
MEMORY: Final = "shrinking.log"


def with_sizes(
    board: Scoreboard,
    rows: Mapping[str, tuple[Row, Mapping[int, SeedResult]]],
    *,
    jobs: int,
    cpu_s_max: float,
    folder: Path,
    on_row: Callable[[str], None],
) -> Iterator[Scoreboard]:
    """Shrink the first detection of every defect; yield the board at first and after each of them.

    `rows` maps the key of each score to its row and results. The trials are remembered in `folder`.
    Once all shrinking together has cost `cpu_s_max` CPU seconds, the remaining rows get no size. A
    board that lacks some sizes is marked `cut`.
    """
    scores = list(board.scores)
    waiting = [n for n, score in enumerate(scores) if score.kind != CLEAN and score.found]
    cpu_s = 0.0
    while True:
        yield msgspec.structs.replace(
            board,
            scores=tuple(scores),
            cpu_s=board.cpu_s + cpu_s,
            cut=board.cut or _cut(len(waiting)),
        )
        if not waiting or cpu_s >= cpu_s_max:
            return
        place = waiting.pop(0)
        score = scores[place]
        on_row(score.name)
        budget_s = min(CPU_S, cpu_s_max - cpu_s)
        row, results = rows[score.key]
        assert score.first_seed is not None
        first = results[score.first_seed]
        size, spent_s = _size(row, first, jobs, budget_s, folder / MEMORY)
        scores[place] = msgspec.structs.replace(score, shrunk=size)
        cpu_s += spent_s


def _cut(waiting: int) -> str:
    if not waiting:
        return ""
    return (
        f"incomplete: {counted(waiting, 'detection')} not shrunk, because of an interrupt or of "
        "the limit --cpu; the same command continues, with a higher --cpu after the limit"
    )


def _size(
    row: Row, first: SeedResult, jobs: int, cpu_s_max: float, memory: Path
) -> tuple[Shrunk | None, float]:
    """Shrink the first detection; return its size (`None` if it did not shrink) and CPU seconds."""
    assert row.case is not None
    case = msgspec.structs.replace(row.case, seed=first.seed)
    # The kind of this detection: most other detections of the row may be of another kind.
    kind = next(kind for kind in kinds_of(first) if row.accepted in {None, kind.checker})
    with Trials(jobs=jobs, cpu_s_max=cpu_s_max, memory=memory, defect=row.defect) as trials:
        try:
            shrunk = shrink(trials, case, kind)
        except UsageError:  # the CPU time ran out before the case failed even once
            return None, trials.cpu_s
    operations = shrunk.result.ops if shrunk.operations is None else shrunk.operations
    return Shrunk(shrunk.faults, operations, shrunk.cpu_s), shrunk.cpu_s
