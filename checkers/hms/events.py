"""Checks a metastore's notification log, as polls and the final snapshot show it.

| rule   | promise                                                                            |
|--------|------------------------------------------------------------------------------------|
| unique | an id belongs to the same event in every answer                                    |
| gaps   | ids are consecutive, in polls and in a log that was not cleaned                    |
| order  | if a change began after the answer to an earlier change, its event has a higher id |
| times  | events with higher ids have the same or later times                                |
| lost   | an acknowledged change is in the log, unless the cleaner may have removed it       |
| phantom| the log has no change that was refused or that no client requested                 |
| twice  | a change is in the log only once                                                   |
| replay | a replay of the log produces the final tables; if the log was cleaned, the replay  |
|        | also uses the events that readers saw, as far as they are consecutive              |

`checkers.hms.readers` checks which events each reader must have seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from checkers.hms.readers import Poll, check_kept, check_readers
from checkers.hms.reading import sentence
from checkers.verdict.findings import Findings
from harness.errors import HistoryError, counted, listed
from harness.ops import CheckResult, History, Op, OpType, Pair
from harness.permits import permits_of
from harness.plugins import Checker
from harness.vocabularies import fields_of

WITH_NONCE: Final = ("create", "alter", "rename")
NUMBERS_MAX: Final = 10


class _Event(NamedTuple):
    """An event of the notification log, with the fields of `harness.vocabularies.hms.Poll`.

    `before` and `after` are the names of the table before and after the change.
    """

    ident: int
    time_ms: int
    kind: str
    before: str | None
    after: str | None
    nonce_before: str | None
    nonce_after: str | None

    def __str__(self) -> str:
        words = " to ".join(name for name in (self.before, self.after) if name is not None)
        return f"event {self.ident} ({self.kind} {words})"


class _Log(NamedTuple):
    """The notification log at the end of the run. `whole` is true if no event was ever removed."""

    events: tuple[_Event, ...]
    whole: bool
    tables: dict[str, str | None]
    next_event: int
    op: int


class EventsChecker(Checker):
    """Checks that the notification log has every change once, in order, without gaps."""

    api_version = 1
    name = "hms-events"
    doc = "the notification log has every change once, in order, with unique ids and no gaps"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case, time_limit_s
        polls = [p for p in history.pairs if p.invoke.f == "poll" and p.type is OpType.OK]
        log = _final_log(history)
        findings = Findings(self.name, permits_of(history))
        if log is None:
            findings.gap("the database did not show its log at the end of the run", rule="no-log")
            return findings.result("")
        seen: dict[int, tuple[_Event, int]] = {}
        for poll in polls:
            _check_poll(findings, poll)
            _check_unique(findings, seen, _events_of(poll.completion), poll.invoke.index)
        _check_unique(findings, seen, log.events, log.op)
        every = [event for poll in polls for event in _events_of(poll.completion)]
        events = sorted(dict.fromkeys([*every, *log.events]), key=lambda event: event.ident)
        for earlier, later in itertools.pairwise(events):
            text = (
                f"In the log {later} is of {earlier.time_ms - later.time_ms} ms before {earlier}."
            )
            findings.hold("times", later.time_ms >= earlier.time_ms, text)
        changes = _changes(history)
        _check_changes(findings, changes, events, log)
        read = [Poll(poll, _events_of(poll.completion)) for poll in polls]
        there = {event.nonce_after: log.op for event in log.events if event.nonce_after}
        check_readers(findings, read, changes, None if log.whole else there)
        check_kept(findings, read, log.events, next_event=log.next_event, at=log.op)
        if log.whole:
            _check_whole(findings, log)
        else:
            for run in _runs(events):
                _replay(findings, run, log)
        missing = sum(bool(fields_of(poll.completion).get("missing")) for poll in polls)
        return findings.result(
            f"{counted(len(events), 'event')} in order, {counted(len(polls), 'poll')}",
            {"events": len(events), "polls": len(polls), "sent_to_end": missing},
        )


def _events_of(op: Op | None) -> list[_Event]:
    assert op is not None, "the poll was answered"
    return _converted(op, fields_of(op).get("events"))


def _converted(op: Op, given: Any) -> list[_Event]:
    try:
        return msgspec.convert(given, list[_Event])
    except msgspec.ValidationError as error:
        raise HistoryError(
            f"op {op.index} ({op.f}) has events that are not in the form of 'poll': {error}"
        ) from error


def _final_log(history: History) -> _Log | None:
    op = next(iter([*history.facts("snapshot")][::-1]), None)
    rows = fields_of(op).get("rows")
    if op is None or not isinstance(rows, dict):
        return None
    events = tuple(_converted(op, rows["events"]))
    is_whole = rows["next_event"] == 1 or any(event.ident == 1 for event in events)
    return _Log(
        events,
        is_whole,
        {name: nonce for name, _, nonce in rows["tables"]},
        rows["next_event"],
        op.index,
    )


def _check_poll(findings: Findings, poll: Pair) -> None:
    value = fields_of(poll.completion)
    idents = [event.ident for event in _events_of(poll.completion)]
    for earlier, later in itertools.pairwise([value.get("after", 0), *idents]):
        lost = later - earlier - 1
        text = f"{sentence(poll)} and was given event {later} after {earlier}: {lost} lost."
        findings.hold("gaps", later <= earlier + 1, text, (poll.invoke.index,))


def _check_unique(
    findings: Findings, seen: dict[int, tuple[_Event, int]], events: Iterable[_Event], where: int
) -> None:
    for event in events:
        seen_before, first = seen.setdefault(event.ident, (event, where))
        if first == where:
            text = f"Op {where} shows {seen_before} and {event} with the same id."
        else:
            text = f"Op {first} shows {seen_before}, and op {where} shows {event} with the same id."
        findings.hold("unique", seen_before == event, text, (first, where))


def _changes(history: History) -> dict[str, Pair]:
    return {
        str(fields_of(pair.invoke).get("nonce")): pair
        for pair in history.pairs
        if pair.invoke.f in WITH_NONCE
    }


def _check_changes(
    findings: Findings, changes: dict[str, Pair], events: list[_Event], log: _Log
) -> None:
    idents: dict[str, list[int]] = {}
    for event in events:
        if event.nonce_after is not None:
            idents.setdefault(event.nonce_after, []).append(event.ident)
    for nonce, numbers in idents.items():
        change = changes.get(nonce)
        name = f"mark {nonce}" if change is None else f"op {change.invoke.index}"
        several = listed(list(map(str, numbers)), limit=NUMBERS_MAX)
        text = f"The change of {name} is in the log {len(numbers)} times: events {several}."
        blamed = () if change is None else (change.invoke.index,)
        findings.hold("twice", len(numbers) == 1, text, blamed)
        refused = change is None or change.type is OpType.FAIL
        request = "no client requested this change" if change is None else sentence(change)
        findings.hold(
            "phantom", not refused, f"The log has event {numbers[0]} for it, but {request}.", blamed
        )
    for nonce, pair in changes.items():
        if log.whole and pair.type is OpType.OK:
            text = f"{sentence(pair)}, but the log has no event for it."
            findings.hold("lost", nonce in idents, text, (pair.invoke.index,))
    for earlier, later, at in _in_real_time(changes, idents):
        text = (
            f"{sentence(later)}, after this was acknowledged: {sentence(earlier)}; but event "
            f"{at[1]} of the later one comes before event {at[0]} of the earlier one."
        )
        findings.hold("order", at[0] < at[1], text, (earlier.invoke.index, later.invoke.index))


def _in_real_time(
    changes: dict[str, Pair], idents: dict[str, list[int]]
) -> Iterator[tuple[Pair, Pair, tuple[int, int]]]:
    """Yield (earlier change, later change, ids of their events) for each later change.

    Of all changes acknowledged before the later change began, the earlier change is the one with
    the highest event id.
    """
    logged = [(pair, idents[nonce][0]) for nonce, pair in changes.items() if nonce in idents]
    edges = [(pair.invoke.index, False, pair, number) for pair, number in logged]
    edges += [
        (pair.completion.index, True, pair, number)
        for pair, number in logged
        if pair.completion is not None and pair.type is OpType.OK
    ]
    highest: tuple[int, Pair] | None = None
    for _, is_end, pair, number in sorted(edges, key=lambda edge: edge[0]):
        if is_end:
            if highest is None or number > highest[0]:
                highest = number, pair
        elif highest is not None:
            yield highest[1], pair, (highest[0], number)


def _check_whole(findings: Findings, log: _Log) -> None:
    ordered = sorted(log.events, key=lambda event: event.ident)
    for earlier, later in itertools.pairwise(ordered):
        text = f"At the end of the run, the log has {earlier} directly before {later}."
        findings.hold("gaps", later.ident <= earlier.ident + 1, text, (log.op,))
        findings.hold("unique", later.ident != earlier.ident, text, (log.op,))
    _replay(findings, ordered, log)


def _runs(events: list[_Event]) -> list[list[_Event]]:
    runs: list[list[_Event]] = []
    for event in events:
        if not runs or event.ident > runs[-1][-1].ident + 1:
            runs.append([])
        runs[-1].append(event)
    return runs


def _replay(findings: Findings, events: list[_Event], log: _Log) -> None:
    """Check that a replay of `events` produces the final tables.

    If `events` do not start with the first event, the state before them is unknown.
    """
    is_known = log.whole or events[0].ident == 1
    tables: dict[str, str | None] = {}
    touched: dict[str, None] = {}
    for event in events:
        is_legal = True
        if event.before is not None:
            if is_known or event.before in touched:
                is_legal = event.before in tables and tables[event.before] == event.nonce_before
            tables.pop(event.before, None)
            touched[event.before] = None
        if event.after is not None:
            is_legal = is_legal and event.after not in tables
            tables[event.after] = event.nonce_after
            touched[event.after] = None
        text = f"In the log {event} is impossible after the events before it."
        findings.hold("replay", is_legal, text, (log.op,))
    if not log.whole and events[-1].ident != log.next_event - 1:
        return
    there = {name: nonce for name, nonce in log.tables.items() if is_known or name in touched}
    text = f"The log makes {_shown(tables)}, but in the end there is {_shown(there)}."
    findings.hold("replay", tables == there, text, (log.op,))


def _shown(tables: dict[str, str | None]) -> str:
    return ", ".join(f"{name} ({nonce})" for name, nonce in sorted(tables.items())) or "no table"
