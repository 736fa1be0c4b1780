"""Returns the bug switches of the bundled targets that a soak can find, as rows of an exam."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from harness.case import Case
from results.exam.rows import SWITCH, Row, make_paper

TARGETS: Final = ("kudu", "hive")


def found_switches(only: Collection[str] | None = None) -> list[tuple[Row, Case]]:
    """Return an exam row and its case for each switch in `only` (default: all switches).

    There is no row for a switch that no soak finds. Raises `UsageError` for an unknown name.
    """
    paper = make_paper(
        parts=(SWITCH,),
        targets=TARGETS,
        only=only,
        defects=None,
        seeds=range(1, 101),
        clean_seeds=range(0),
        first=True,
    )
    return [(row, row.case) for row in paper.rows if row.case is not None]
