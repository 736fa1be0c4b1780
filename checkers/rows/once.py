"""Checks that a write takes effect exactly once, and that a request has only one answer.

Each rule takes one pass over the history, and is sound no matter how lost operations ended:

| rule           | violation                                                                 |
|----------------|---------------------------------------------------------------------------|
| phantom        | a cell holds a value that was never written to it                         |
| refused        | a row holds the value of a refused write ("already-present",              |
|                | "not-found"): perhaps only a copy of the request was refused              |
| too-early      | a row held a value before any client requested to write this value        |
| answered-twice | a copy of a request, with the same id, got a different answer             |
| took-twice     | an overwritten or deleted value came back at a later timestamp, although  |
|                | only one write ever wrote it                                              |
| one-timestamp  | two writes to one tablet have the same timestamp, or a scan shows a row   |
|                | twice                                                                     |

The checker also applies the rules of `places`.
"""

from __future__ import annotations

from typing import Any, Final

from checkers.rows.permits import RowFindings
from checkers.rows.places import check_places
from checkers.rows.problem import Cell, Writers, cells_of
from checkers.rows.reading import Look, Part, RowsHistory, rows_history
from checkers.rows.words import looked, place_words, wrote
from checkers.verdict.sentences import seconds
from harness.ops import CheckResult, History
from harness.plugins import Checker

_REFUSALS: Final = frozenset({"already-present", "not-found"})


def _place(read: RowsHistory, cell: Cell) -> str:
    return place_words(read.name_of(cell[0]), cell[1])


def _provenance(read: RowsHistory, writers: Writers, findings: RowFindings) -> None:
    """Check the rules phantom, refused and too-early for every cell that a read or scan shows."""
    for look in read.looks:
        assert look.pair.completion is not None, "looks are answers"
        seen_at = look.pair.completion.index
        for cell, value in cells_of(look.table, look.rows):
            writers_of = writers.of(cell, value)
            what = f"{looked(read, look)} and found {cell[2]} = {value!r} in {_place(read, cell)}"
            at = look.pair.invoke.index
            findings.look("phantom")
            if not writers_of:
                findings.violate("phantom", f"{what}, but that was never written there.", at)
                continue
            effective = [(part, row) for part, row in writers_of if row.result not in _REFUSALS]
            findings.look("refused")
            if not effective:
                part, row = writers_of[0]
                findings.violate(
                    "refused",
                    f"{what}, but {wrote(read, part)} was answered {row.result!r} for that row: "
                    "so the request must have taken effect, and then have been judged again.",
                    at,
                    part.pair.invoke.index,
                )
                continue
            findings.look("too-early")
            if all(part.pair.invoke.index > seen_at for part, _ in effective):
                part = effective[0][0]
                findings.violate(
                    "too-early",
                    f"{what}, but this write was only requested later, at "
                    f"{seconds(part.pair.invoke.time)} s: {wrote(read, part)}.",
                    at,
                    part.pair.invoke.index,
                )


def _answers(read: RowsHistory, findings: RowFindings) -> None:
    """Check the rule answered-twice, and the rule one-timestamp for writes to one tablet."""
    stamped: dict[tuple[str, str, int], Part] = {}
    for part in read.parts:
        first = (part.timestamp, part.results)
        for further in part.again:
            findings.look("answered-twice")
            if part.is_known and further != first:
                if findings.cuts.during(part.pair):
                    # the power cut may have undone the first effect
                    findings.take_back(part.pair.invoke.index)
                    continue
                findings.violate(
                    "answered-twice",
                    f"{wrote(read, part)} was sent again with the same request id and answered "
                    f"{', '.join(further[1])} at timestamp {further[0]}, where the first answer "
                    f"was {', '.join(first[1])} at {first[0]}.",
                    part.pair.invoke.index,
                )
        if part.timestamp is None or part.tablet is None:
            continue
        findings.look("one-timestamp")
        other = stamped.setdefault((part.table, part.tablet, part.timestamp), part)
        if other is not part and other.pair is not part.pair:
            findings.violate(
                "one-timestamp",
                f"{wrote(read, other)}, and {wrote(read, part)}: two writes to one tablet took "
                "effect at the same moment.",
                other.pair.invoke.index,
                part.pair.invoke.index,
            )


def _shown_twice(read: RowsHistory, findings: RowFindings) -> None:
    seen: dict[tuple[int, str], Look] = {}
    for look in read.looks:
        if look.pair.invoke.f != "scan":
            continue
        at = look.pair.invoke.index
        again = [key for key in look.rows if (at, key) in seen]
        seen.update({(at, key): look for key in look.rows})
        for key in (*look.twice, *again):
            name = read.name_of(look.table)
            findings.violate(
                "one-timestamp",
                f"{looked(read, look)} and found {place_words(name, key)} twice.",
                at,
            )


def _came_back(read: RowsHistory, writers: Writers, findings: RowFindings) -> None:
    """Check the rule took-twice: a cell never regains a value that only one write wrote to it.

    The answers of reads and scans are compared in the order of timestamps.
    """
    looks = sorted(
        (look for look in read.looks if look.timestamp is not None),
        key=lambda look: (look.timestamp or 0, look.pair.invoke.index),
    )
    now: dict[Cell, tuple[Any, Look]] = {}
    gone: dict[tuple[Cell, Any], tuple[Look, Look]] = {}
    columns: dict[tuple[str, str], set[str]] = {}
    for look in looks:
        for key, row in read.seen_by(look):
            cells = dict(row or ())
            stamped = columns.setdefault((look.table, key), set())
            stamped.update(cells)
            for column in sorted(stamped):
                cell, value = (look.table, key, column), cells.get(column)
                before = now.get(cell)
                now[cell] = (value, look)
                if before is None or before[0] == value:
                    continue
                if before[0] is not None:
                    gone.setdefault((cell, before[0]), (before[1], look))
                if value is None or (cell, value) not in gone:
                    continue
                findings.look("took-twice")
                _tell_return(read, writers, findings, cell, value, (*gone[cell, value], look))
        findings.look("took-twice", len(look.rows))


def _tell_return(
    read: RowsHistory,
    writers: Writers,
    findings: RowFindings,
    cell: Cell,
    value: Any,
    looks: tuple[Look, Look, Look],
) -> None:
    last, missing, back = looks
    if not (last.timestamp or 0) < (missing.timestamp or 0) < (back.timestamp or 0):
        return
    effective = [writer for writer in writers.of(cell, value) if writer[1].result not in _REFUSALS]
    if len(effective) != 1:
        return
    part = effective[0][0]
    findings.violate(
        "took-twice",
        f"{_place(read, cell)[:1].upper()}{_place(read, cell)[1:]} held {cell[2]} = {value!r} at "
        f"timestamp {last.timestamp}, no longer at {missing.timestamp}, and again at "
        f"{back.timestamp}: {looked(read, back)}. One write only ever wrote it: "
        f"{wrote(read, part)}.",
        *(look.pair.invoke.index for look in looks),
        part.pair.invoke.index,
    )


class ExactlyOnce(Checker):
    """Checks that every write of a row takes effect once, even if its request was sent again."""

    api_version = 1
    name = "rows-exactly-once"
    doc = "rows are written once and only on request, and a resent request gets its first answer"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case, time_limit_s
        read = rows_history(history)
        findings, writers = RowFindings(self.name, history), Writers(read)
        _provenance(read, writers, findings)
        _answers(read, findings)
        _shown_twice(read, findings)
        _came_back(read, writers, findings)
        check_places(history, read, findings)
        return findings.conclude()
