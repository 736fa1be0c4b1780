"""Checks that each row is in one tablet of one table, and that scans show only requested rows.

| rule       | violation                                                                     |
|------------|-------------------------------------------------------------------------------|
| not-asked  | a scan shows a row outside its bounds                                         |
| two-places | a row is in two tablets, or a name leads to two tables, although no operation |
|            | deleted or renamed the first table                                            |
| no-table   | an answer says that an existing table is missing, although no operation       |
|            | deleted or renamed it                                                         |

The rule `no-table` is not judged if the profile lets leaders answer from the past
(`harness.permits`).
"""

from __future__ import annotations

from collections.abc import Iterator

from checkers.rows.permits import RowFindings
from checkers.rows.problem import end_of
from checkers.rows.reading import Look, Part, RowsHistory
from checkers.rows.words import looked, place_words, wrote
from harness.ops import History, OpType, Pair
from harness.permits import STALE_READ
from harness.vocabularies import fields_of, is_ok
from harness.vocabularies.ddl import Create, Delete, Rename
from harness.vocabularies.rows import ROW_CALLS

_ROWS = frozenset(call.f for call in ROW_CALLS)


def check_places(history: History, read: RowsHistory, findings: RowFindings) -> None:
    """Check the rules not-asked, two-places and no-table of this module."""
    items: list[Part | Look] = [*(part for part in read.parts if part.is_known), *read.looks]
    items.sort(key=lambda item: end_of(item.pair))
    moved = _moved(history)
    _two_places(read, items, findings)
    _tables(read, items, moved, findings)
    if STALE_READ not in findings.permits:
        _no_table(history, items, moved, findings)


def _moved(history: History) -> frozenset[str]:
    return frozenset(
        str(fields_of(pair.invoke).get("name"))
        for pair in history.pairs
        if pair.invoke.f in {Delete.f, Rename.f} and pair.type is not OpType.FAIL
    )


def _two_places(read: RowsHistory, items: list[Part | Look], findings: RowFindings) -> None:
    """Check the rule not-asked, and the rule two-places for rows in two tablets."""
    first: dict[tuple[str, str], Part | Look] = {}
    for item in items:
        for key in _held(item):
            if isinstance(item, Look):
                findings.look("not-asked")
                if not item.covers(key):
                    what = f"{_place(read, item, key)}, which is outside its bounds"
                    text = f"{looked(read, item)} and was shown {what}."
                    findings.violate("not-asked", text, item.pair.invoke.index)
            if item.tablet is None:
                continue
            findings.look("two-places")
            other = first.setdefault((item.table, key), item)
            if other.tablet != item.tablet:
                findings.violate(
                    "two-places",
                    f"{_told(read, other)}, in tablet {other.tablet}; {_told(read, item)}, in "
                    f"tablet {item.tablet}: {_place(read, item, key)} is in both.",
                    other.pair.invoke.index,
                    item.pair.invoke.index,
                )


def _held(item: Part | Look) -> Iterator[str]:
    if isinstance(item, Look):
        yield from item.rows
    else:
        yield from dict.fromkeys(row.key for row in item.rows if row.result == "ok")


def _place(read: RowsHistory, item: Part | Look, key: str) -> str:
    return place_words(read.name_of(item.table), key)


def _told(read: RowsHistory, item: Part | Look) -> str:
    return wrote(read, item) if isinstance(item, Part) else looked(read, item)


def _tables(
    read: RowsHistory, items: list[Part | Look], moved: frozenset[str], findings: RowFindings
) -> None:
    """Check the rule two-places for names that lead to two tables."""
    first: dict[str, Part | Look] = {}
    for item in items:
        name = item.pair.invoke.value["table"]
        other = first.setdefault(name, item)
        if other.table != item.table and name not in moved:
            findings.violate(
                "two-places",
                f"{_told(read, other)}, in the table with the id {other.table}; "
                f"{_told(read, item)}, in that with the id {item.table}, although no operation "
                "deleted or renamed the first table.",
                other.pair.invoke.index,
                item.pair.invoke.index,
            )


def _no_table(
    history: History, items: list[Part | Look], moved: frozenset[str], findings: RowFindings
) -> None:
    there: dict[str, Pair] = {}
    made = [pair for pair in history.pairs if pair.invoke.f == Create.f and is_ok(pair)]
    for pair in sorted([*made, *(item.pair for item in items)], key=end_of):
        call = fields_of(pair.invoke)
        there.setdefault(str(call.get("name", call.get("table"))), pair)
    for pair in history.pairs:
        name = str(fields_of(pair.invoke).get("table"))
        if pair.invoke.f not in _ROWS or fields_of(pair.completion).get("result") != "not-found":
            continue
        proof = there.get(name)
        if proof is None or name in moved or end_of(proof) > pair.invoke.index:
            continue
        findings.look("no-table")
        findings.violate(
            "no-table",
            f"Process {pair.invoke.process} was answered by op {pair.invoke.index} that there is "
            "no "
            f"table {name!r}, which op {proof.invoke.index} had shown to be there; no operation "
            "deleted or renamed it.",
            proof.invoke.index,
            pair.invoke.index,
        )
