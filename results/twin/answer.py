"""The answer of `harness twin`, which has the comparisons of all cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from harness.plugins import KnownDifference, TwinSide
from results.statistics.estimates import ALPHA, holm
from results.twin.observed import Observed
from results.twin.onesided import is_one_sided, sided_names
from results.twin.rows import Mark, Row, marked, rows_of

SECTIONS: Final = {
    "request": "Answers to the listed requests",
    "outcome": "Outcomes by kind of operation",
    "answer": "Answers and refusals",
    "message": "Codes of messages",
    "election": "Elections",
    "failover": "Failover: from a fault to the next acknowledged change",
    "recovery": "Recovery: from a heal to the next acknowledged change",
    "outage": "Outages: no answer while clients tried",
    "fault": "Faults",
    "permit": "Anomalies that the profile permits, in runs",
    "verdict": "Verdicts that are not valid, in runs",
    "latency": "Latency of acknowledged operations",
}
"""The sections of a page in their order, by the first part of the names of rows."""


class RunSide(msgspec.Struct, frozen=True, kw_only=True):
    """A run on one of the two targets, for the list of runs."""

    run: str
    seed: int
    verdict: str


class CaseTwin(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of one case on both targets."""

    case: str
    about: str
    runs: tuple[tuple[RunSide, ...], tuple[RunSide, ...]]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def of(self, section: str) -> list[Row]:
        """Return the rows of one section."""
        return [row for row in self.rows if row.section == section]

    def marked(self, mark: Mark) -> list[Row]:
        """Return the rows with this mark."""
        return [row for row in self.rows if row.mark is mark]


class Twin(msgspec.Struct, frozen=True, kw_only=True):
    """The comparisons of all cases. `names` are the two targets."""

    schema_version: int = 1
    names: tuple[str, str]
    cases: tuple[CaseTwin, ...]
    tests: int
    alpha: float = ALPHA

    def rows(self, mark: Mark, *, known: bool | None = None) -> list[tuple[str, Row]]:
        """Return the rows with this mark, each with its case.

        `known` selects rows that a known difference explains (true) or does not explain (false).
        """
        return [
            (case.case, row)
            for case in self.cases
            for row in case.marked(mark)
            if known is None or bool(row.explained_by) is known
        ]

    @property
    def unexplained(self) -> list[tuple[str, Row]]:
        """The rows that differ or are one-sided, without a known reason."""
        return [*self.rows(Mark.DIFFERS, known=False), *self.rows(Mark.ONE_SIDED, known=False)]

    @property
    def compared(self) -> int:
        """The number of rows that could be compared."""
        return sum(row.mark is not Mark.NOT_TESTED for case in self.cases for row in case.rows)


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a comparison: the runs of one case on both targets."""

    case: str
    about: str
    left: tuple[Observed, ...]
    right: tuple[Observed, ...]
    notes: tuple[str, ...] = ()


def compare(
    names: tuple[str, str], materials: Sequence[Material], known: Sequence[KnownDifference] = ()
) -> Twin:
    """Compare the runs of all cases.

    Holm's correction is applied to the tests of all rows, and separately to the tests of names
    that only one target shows.
    """
    tables = [rows_of(each.left, each.right) for each in materials]
    tested = [row.p for rows in tables for row in rows if row.p is not None]
    adjusted = iter(holm(tested))
    sided = sided_names(tables)
    seen = _cases_by_side([(each.case, rows) for each, rows in zip(materials, tables, strict=True)])
    cases = []
    for each, rows in zip(materials, tables, strict=True):
        marks = [marked(row, None if row.p is None else next(adjusted), ALPHA) for row in rows]
        cases.append(
            CaseTwin(
                case=each.case,
                about=each.about,
                runs=(_sides(each.left), _sides(each.right)),
                rows=tuple(_explained(_sided(row, sided, seen), known, each.case) for row in marks),
                notes=each.notes,
            )
        )
    return Twin(names=names, cases=tuple(cases), tests=len(tested))


def _sides(runs: Sequence[Observed]) -> tuple[RunSide, ...]:
    return tuple(RunSide(run=run.run, seed=run.seed, verdict=run.verdict.value) for run in runs)


def _cases_by_side(tables: Sequence[tuple[str, Sequence[Row]]]) -> dict[str, dict[bool, str]]:
    """For each row name and side (true: left), return the first case in which the side shows it."""
    seen: dict[str, dict[bool, str]] = {}
    for case, rows in tables:
        for row in rows:
            for is_left, side in ((True, row.left), (False, row.right)):
                if side.hits:
                    seen.setdefault(row.name, {}).setdefault(is_left, case)
    return seen


def _sided(row: Row, sided: dict[str, float], seen: dict[str, dict[bool, str]]) -> Row:
    """Mark a row that only one side shows by the test over all cases, unless it already differs."""
    if row.mark is Mark.DIFFERS or not is_one_sided(row):
        return row
    p = sided[row.name]
    mark = Mark.ONE_SIDED if p < ALPHA else Mark.RARE
    elsewhere = seen[row.name].get(row.left.hits == 0)
    return msgspec.structs.replace(row, mark=mark, p_adjusted=p, elsewhere=elsewhere or "")


def _explained(row: Row, known: Sequence[KnownDifference], case: str) -> Row:
    if row.mark not in {Mark.DIFFERS, Mark.ONE_SIDED, Mark.RARE}:
        return row
    more = _side_with_more(row)
    for each in known:
        if each.covers(row.name, case=case, more=more):
            return msgspec.structs.replace(row, explained_by=each.name, why=each.why)
    return row


def _side_with_more(row: Row) -> TwinSide | None:
    """Return the side with the larger share; the left side is the one that re-creates."""
    shares = row.left.share, row.right.share
    if shares[0] is None or shares[1] is None or shares[0] == shares[1]:
        return None
    return "re-creation" if shares[0] > shares[1] else "original"
