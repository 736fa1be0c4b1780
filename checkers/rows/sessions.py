"""Checks that each client reads its own writes, and that its timestamps rise.

A session is one process. With each request, the process sends its *own timestamp*: the highest
timestamp that it has received in answers. The rules are:

* **read-your-writes**: the timestamp of a scan in the mode `read-your-writes` is at least its
  process's own timestamp. The scan shows each of the process's own writes, or a later write.
* **own-time**: the same holds for the timestamp of a scan in the mode `snapshot` whose request
  named no timestamp.
* **asked-time**: a scan in one of these two modes has the same timestamp in all its tablets. If its
  request named a timestamp, it is this timestamp.
* **causality**: a later write of the process has a higher timestamp, on any tablet.

After an operation that ended as `info`, the process continues as a new client, which knows no
timestamp.
"""

from __future__ import annotations

from typing import Any

from checkers.rows.model import Row
from checkers.rows.permits import RowFindings
from checkers.rows.problem import Writers, floors
from checkers.rows.reading import Look, Part, RowsHistory, Written, rows_history
from checkers.rows.words import cells_words, looked, place_words, wrote
from harness.ops import CheckResult, History
from harness.plugins import Checker

_MISSED = {"read-your-writes": "read-your-writes", "snapshot": "own-time"}


def _end(item: Part | Look) -> int:
    assert item.pair.completion is not None, "a known part was answered"
    return item.pair.completion.index


def _causality(read: RowsHistory, findings: RowFindings) -> None:
    floor = floors(read)
    for part in read.parts:
        if part.timestamp is None:
            continue
        findings.look("causality")
        answered = floor[part.pair.invoke.index]
        if part.timestamp <= answered:
            findings.violate(
                "causality",
                f"{wrote(read, part)}, though the process had been answered timestamp {answered} "
                "before it asked: scans in between see effects without their causes.",
                part.pair.invoke.index,
            )


def _asked_time(read: RowsHistory, findings: RowFindings) -> None:
    first: dict[int, Look] = {}
    for look in read.looks:
        if look.mode not in _MISSED:
            continue
        if look.timestamp is None:
            findings.exempt("asked-time")
            continue
        findings.look("asked-time")
        at = look.pair.invoke.index
        other = first.setdefault(at, look)
        wanted = other.timestamp if look.asked_at is None else look.asked_at
        if look.timestamp != wanted:
            why = "" if look.asked_at is None else ", which it named"
            findings.violate(
                "asked-time",
                f"{looked(read, look)}, in tablet {look.tablet}, not at {wanted}{why}.",
                at,
            )


class _Session:
    def __init__(self) -> None:
        self.timestamp = 0
        self.wrote: dict[tuple[str, str], tuple[Part, Written]] = {}

    def learn(self, item: Part | Look) -> None:
        self.timestamp = max(self.timestamp, item.timestamp or 0)
        if isinstance(item, Part) and item.timestamp is not None:
            for row in item.rows:
                if row.result == "ok":
                    self.wrote[item.table, row.key] = (item, row)


def _looks(read: RowsHistory, findings: RowFindings) -> None:
    writers = Writers(read)
    deleters: dict[tuple[str, str], list[Part]] = {}
    for part in read.parts:
        for row in part.rows:
            if row.step.kind == "delete" and row.result in {"ok", None}:
                deleters.setdefault((part.table, row.key), []).append(part)
    events: list[tuple[int, int, Part | Look]] = []
    items: list[Part | Look] = [*read.parts, *read.looks]
    for item in items:
        if isinstance(item, Look) or item.is_known:
            events.append((_end(item), 1, item))
        if isinstance(item, Look):
            events.append((item.pair.invoke.index, 0, item))
    sessions: dict[Any, _Session] = {}
    for _, is_answer, item in sorted(events, key=lambda event: event[:2]):
        session = sessions.setdefault(item.pair.invoke.process, _Session())
        if is_answer:
            session.learn(item)
        elif isinstance(item, Look):
            _look(read, item, session, writers, deleters, findings)


def _look(
    read: RowsHistory,
    look: Look,
    session: _Session,
    writers: Writers,
    deleters: dict[tuple[str, str], list[Part]],
    findings: RowFindings,
) -> None:
    rule = _MISSED.get(look.mode)
    if rule is None or look.asked_at is not None:
        return
    if look.timestamp is not None:
        findings.look(rule)
        if look.timestamp < session.timestamp:
            findings.violate(
                rule,
                f"{looked(read, look)}, though the process had been answered timestamp "
                f"{session.timestamp} before it asked.",
                look.pair.invoke.index,
            )
    if look.mode != "read-your-writes":
        return
    for key, row in read.seen_by(look):
        last = session.wrote.get((look.table, key))
        if last is None:
            continue
        findings.look(rule)
        if _is_older(look.table, key, row, last, writers, deleters):
            seen = "it absent" if row is None else f"it with {cells_words(row)}"
            place = place_words(read.name_of(look.table), key)
            findings.violate(
                rule,
                f"{looked(read, look)} and found {place} {seen}, which is older than its own "
                f"write: {wrote(read, last[0])}.",
                look.pair.invoke.index,
                last[0].pair.invoke.index,
            )


def _is_older(
    table: str,
    key: str,
    row: Row,
    own: tuple[Part, Written],
    writers: Writers,
    deleters: dict[tuple[str, str], list[Part]],
) -> bool:
    part, written = own
    if row is None:
        return written.step.kind != "delete" and not any(
            _may_be_later(other, part) or other is part for other in deleters.get((table, key), ())
        )
    cells = dict(row)
    if written.step.kind == "delete":
        # After a delete, the row exists only if each of its cells was written later.
        return any(
            not any(
                _may_be_later(other, part) or other is part
                for other, _ in writers.of((table, key, column), value)
            )
            for column, value in cells.items()
        )
    for column, value in written.step.cells:
        if column not in cells or cells[column] == value:
            continue
        writers_of = writers.of((table, key, column), cells[column])
        if writers_of and not any(
            _may_be_later(other, part) or other is part for other, _ in writers_of
        ):
            return True
    return False


def _may_be_later(other: Part, part: Part) -> bool:
    assert part.timestamp is not None, "sessions keep only writes with a timestamp"
    return other.timestamp is None or other.timestamp > part.timestamp


class ReadYourWrites(Checker, judges_prefixes=True):
    """Checks that each process reads its own writes, and that its timestamps rise."""

    api_version = 1
    name = "read-your-writes"
    doc = "clients see their own writes if they ask for that, and their timestamps rise"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case, time_limit_s
        read = rows_history(history)
        findings = RowFindings(self.name, history)
        _causality(read, findings)
        _asked_time(read, findings)
        _looks(read, findings)
        return findings.conclude()
