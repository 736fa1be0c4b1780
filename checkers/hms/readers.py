"""Checks which events each reader of the notification log must see in its polls.

| rule   | promise                                                                            |
|--------|------------------------------------------------------------------------------------|
| once   | a reader continues at its position: no event is repeated, and ids rise             |
| missed | a reader that started before a change sees the change in the first poll after the  |
|        | acknowledgement, unless that poll was full or the cleaner had removed the event    |
| anew   | a reader is sent to the end of the log only if the cleaner has removed events      |
| kept   | an event that was read is in the final log, unless the cleaner may have removed it |

After the cleaner has removed events, a reader gets empty polls until the next event, as in Hive. So
an empty poll of a cleaned log breaks the rule `missed` only if a later poll or the final log shows
the event.

The cleaner removes events that are older than a limit. So an event in the final log shows that no
later event with the same or a later time was ever removed.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from checkers.hms.reading import sentence
from checkers.verdict.findings import Findings
from harness.ops import OpType, Pair
from harness.vocabularies import fields_of
from harness.vocabularies.hms import POLL_MAX


class Seen(Protocol):
    """An event in a poll or in the final log."""

    @property
    def ident(self) -> int: ...

    @property
    def time_ms(self) -> int:
        """The time of the event in ms, by the clock of the metastore that wrote the event."""
        ...

    @property
    def nonce_after(self) -> str | None: ...


class Poll(NamedTuple):
    """An answered poll and its events."""

    pair: Pair
    events: Sequence[Seen]


class _Stretch(NamedTuple):
    """Consecutive polls of one reader, up to a move of its position to the end of the log.

    `since` is the index of the op that set the reader's position.
    """

    since: int
    polls: list[Poll]


def check_readers(
    findings: Findings,
    polls: Sequence[Poll],
    changes: Mapping[str, Pair],
    in_the_end: Mapping[str, int] | None,
) -> None:
    """Check the rules `once` and `missed`.

    `changes` maps nonces to changes. `in_the_end` maps each nonce in the final log to the op that
    showed the log. It is `None` if the log was not cleaned.
    """
    shown_at: dict[str, int] = {}
    for poll in polls:
        for event in poll.events:
            if event.nonce_after is not None:
                index = poll.pair.invoke.index
                shown_at[event.nonce_after] = max(index, shown_at.get(event.nonce_after, -1))
    shown_at |= in_the_end or {}
    acknowledged = [
        (nonce, pair, pair.completion.index)
        for nonce, pair in changes.items()
        if pair.completion is not None and pair.type is OpType.OK
    ]
    acknowledged.sort(key=lambda change: change[2])
    for stretch in _stretches(findings, polls):
        place: dict[str, int] = {}
        for number, poll in enumerate(stretch.polls):
            for event in poll.events:
                if event.nonce_after is not None:
                    place.setdefault(event.nonce_after, number)
        # for each poll: the first poll from here on that was not full, so it returned all events
        whole: list[int | None] = [None] * len(stretch.polls)
        upcoming: int | None = None
        for number in reversed(range(len(stretch.polls))):
            if len(stretch.polls[number].events) < POLL_MAX:
                upcoming = number
            whole[number] = upcoming
        last = max((n for n, poll in enumerate(stretch.polls) if poll.events), default=-1)
        first = 0
        for nonce, change, done in acknowledged:
            while first < len(whole) and stretch.polls[first].pair.invoke.index < done:
                first += 1
            due = whole[first] if first < len(whole) else None
            if due is None:
                break
            if change.invoke.index < stretch.since:
                continue
            asked = stretch.polls[due].pair
            text = f"{sentence(change)}, but its event was not in the answer to {sentence(asked)}."
            assert asked.completion is not None, "the poll was answered"
            seen = place.get(nonce, due + 1) <= due
            cleaned = (
                in_the_end is not None
                and last < due
                and shown_at.get(nonce, -1) < asked.completion.index
            )
            findings.hold(
                "missed", seen or cleaned, text, (change.invoke.index, asked.invoke.index)
            )


def _stretches(findings: Findings, polls: Sequence[Poll]) -> Iterator[_Stretch]:
    """Yield the polls of each reader, split at its moves to the end of the log.

    Also checks the rule `once`.
    """
    ordered = sorted(polls, key=lambda poll: (_process(poll), poll.pair.invoke.index))
    for _, group in itertools.groupby(ordered, key=_process):
        current: _Stretch | None = None
        position: object = None
        for poll in group:
            done = poll.pair.completion
            assert done is not None, "the poll was answered"
            fields = fields_of(done)
            after = fields.get("after")
            text = f"{sentence(poll.pair)} after event {after}, but its position was {position}."
            blamed = (poll.pair.invoke.index,)
            findings.hold("once", position in (None, after), text, blamed)
            idents = [event.ident for event in poll.events]
            for earlier, later in itertools.pairwise(
                [after if isinstance(after, int) else 0, *idents]
            ):
                text = f"{sentence(poll.pair)} and was given event {later} after {earlier}."
                findings.hold("once", later > earlier, text, blamed)
            if fields.get("missing"):
                if current is not None:
                    yield current
                current, position = _Stretch(done.index, []), fields.get("to")
                continue
            current = current or _Stretch(done.index, [])
            current.polls.append(poll)
            position = idents[-1] if idents else after
        if current is not None:
            yield current


def _process(poll: Poll) -> int:
    process = poll.pair.invoke.process
    assert isinstance(process, int), "only clients invoke operations"
    return process


def check_kept(
    findings: Findings, polls: Sequence[Poll], log: Sequence[Seen], *, next_event: int, at: int
) -> None:
    """Check the rules `anew` and `kept` against the log in the snapshot of op `at`."""
    there = {event.ident for event in log}
    ordered = sorted(log, key=lambda event: event.ident)
    idents = [event.ident for event in ordered]
    earliest_ms = [*itertools.accumulate((event.time_ms for event in ordered), min)]
    for poll in polls:
        done = poll.pair.completion
        assert done is not None, "the poll was answered"
        if done.index > at:
            continue
        blamed = (poll.pair.invoke.index, at)
        missing = fields_of(done).get("missing")
        if isinstance(missing, int) and not isinstance(missing, bool):
            text = (
                f"{sentence(poll.pair)} and was answered that event {missing} is gone, but the "
                "final log has this event."
            )
            findings.hold("anew", missing not in there, text, blamed)
        for event in poll.events:
            before = bisect.bisect_left(idents, event.ident)
            outlived = before > 0 and earliest_ms[before - 1] <= event.time_ms
            removable = event.ident < next_event and not outlived
            text = f"{sentence(poll.pair)} and was given {event}, which is not in the log."
            findings.hold("kept", event.ident in there or removable, text, blamed)
