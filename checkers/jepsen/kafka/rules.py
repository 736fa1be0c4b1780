"""The rules about single messages, and about the messages of one process in their order."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from checkers.jepsen.kafka.logs import Logs, Name
from checkers.jepsen.kafka.reading import CHANGES, LogOp, Message, Place, messages
from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.ops import OpType

EMPTY_POLLS = 10
"""A consumer that polled this often without a message has read the log to its end."""
_SKIPPED_MAX = 5


def judge_offsets(logs: Logs, findings: Findings) -> None:
    """Judge that each offset has one message, and each message one offset."""
    for key, log in logs.by_key.items():
        for offset, there in sorted(log.at.items()):
            findings.look("offset")
            once = [each for each in there if (key, each) not in logs.repeated]
            if len(once) > 1:
                ops = [_source(logs, key, each, offset) for each in there[:2]]
                text = f"the offset {offset} of key {key} has both {there[0]!r} and {there[1]!r}"
                findings.violate("inconsistent-offsets", text, *_indices(ops))
        for message, offsets in log.offsets.items():
            if len(offsets) > 1 and (key, message) not in logs.repeated:
                first, second = sorted(offsets)[:2]
                ops = [_source(logs, key, message, offset) for offset in (first, second)]
                text = f"{message!r} is in the log of key {key} twice, at {first} and {second}"
                findings.violate("duplicate", text, *_indices(ops))


def judge_polled(logs: Logs, findings: Findings) -> None:
    """Judge each polled message by the operations that sent it."""
    for (key, message), readers in logs.readers.items():
        senders = logs.senders.get((key, message), [])
        for op in readers:
            findings.look("polled")
            if not any(sender.begin < op.end for sender in senders):
                why = f"{senders[0]} began only later" if senders else "it was never sent"
                text = f"{op} shows {message!r} of key {key}, but {why}"
                findings.violate("unexpected", text, op.begin, *_indices(senders[:1]))
            elif op.did and all(sender.type is OpType.FAIL for sender in senders):
                text = f"{op} shows {message!r} of key {key}, but {senders[0]} failed"
                findings.violate("G1a", text, senders[0].begin, op.begin)
            if senders == [op]:
                text = f"{op} shows {message!r} of key {key}, which it sends itself"
                findings.violate("precommitted-read", text, op.begin)


def judge_within(logs: Logs, findings: Findings, exempt: set[int]) -> None:
    """Judge the order of the polls, and of the sends, within each operation.

    `exempt` has the operations of subscribed processes.
    """
    for op in logs.ops:
        for key, places in op.polls.items():
            if key in op.rebalanced or op.begin in exempt:
                findings.exempt("int-poll-skip", len(places) - 1)
                continue
            for first, second in itertools.pairwise(messages(places)):
                _judge_poll(logs, findings, "int-", key, (first, op), (second, op))
        if op.type is OpType.FAIL:
            continue
        for key, places in op.sends.items():
            for first, second in itertools.pairwise(messages(places)):
                _judge_send(logs, findings, "int-", key, (first, op), (second, op))


def judge_processes(logs: Logs, findings: Findings, exempt: set[int]) -> None:
    """Judge the order of polls, and of sends, from one operation of a process to the next."""
    by_process: dict[int | str, list[LogOp]] = {}
    for op in logs.ops:
        by_process.setdefault(op.process, []).append(op)
    for ops in by_process.values():
        _judge_polls(logs, findings, ops, exempt)
        _judge_sends(logs, findings, ops)


def _judge_polls(logs: Logs, findings: Findings, ops: Sequence[LogOp], exempt: set[int]) -> None:
    last: dict[str, tuple[Message, LogOp]] = {}
    for op in ops:
        if op.f in CHANGES:
            if op.type is not OpType.FAIL:
                kept = frozenset() if op.from_start else op.keys
                last = {key: seen for key, seen in last.items() if key in kept}
            continue
        for key, places in op.polls.items():
            if not places:
                continue
            if key in last and op.begin in exempt:
                findings.exempt("poll-skip")
            elif key in last:
                _judge_poll(logs, findings, "", key, last[key], (places[0][1], op))
            if op.did:
                last[key] = (places[-1][1], op)


def _judge_sends(logs: Logs, findings: Findings, ops: Sequence[LogOp]) -> None:
    last: dict[str, tuple[Message, LogOp]] = {}
    for op in ops:
        for key, places in op.sends.items():
            if op.type is not OpType.FAIL and key in last:
                _judge_send(logs, findings, "", key, last[key], (places[0][1], op))
            if op.did:
                last[key] = (places[-1][1], op)


def _judge_poll(
    logs: Logs,
    findings: Findings,
    prefix: str,
    key: str,
    first: tuple[Message, LogOp],
    second: tuple[Message, LogOp],
) -> None:
    before, after = logs.index(key, first[0]), logs.index(key, second[0])
    if before is None or after is None:
        return
    findings.look(f"{prefix}poll-skip")
    ops = dict.fromkeys((first[1].begin, second[1].begin))
    then = f"{first[0]!r} of key {key} in {first[1]}, and then {second[0]!r} in {second[1]}"
    if after > before + 1:
        left_out = [repr(each) for each in logs.skipped(key, before, after) if each is not None]
        what = ", ".join(left_out[:_SKIPPED_MAX]) or "an offset"
        text = f"polled {then}, which leaves out {what}"
        findings.violate(f"{prefix}poll-skip", text, *ops)
    elif after <= before:
        findings.violate(f"{prefix}nonmonotonic-poll", f"polled {then}, which is not later", *ops)


def _judge_send(
    logs: Logs,
    findings: Findings,
    prefix: str,
    key: str,
    first: tuple[Message, LogOp],
    second: tuple[Message, LogOp],
) -> None:
    before, after = logs.index(key, first[0]), logs.index(key, second[0])
    if before is None or after is None:
        return
    findings.look(f"{prefix}nonmonotonic-send")
    if after <= before:
        text = (
            f"sent {first[0]!r} to key {key} in {first[1]}, and then {second[0]!r} in {second[1]}, "
            "which has the lower offset"
        )
        ops = dict.fromkeys((first[1].begin, second[1].begin))
        findings.violate(f"{prefix}nonmonotonic-send", text, *ops)


def subscribed(ops: Sequence[LogOp]) -> set[int]:
    """Return the operations of processes that were, or may have been, subscribed at the time."""
    shared: set[int | str] = set()
    operations = set()
    for op in ops:
        if op.f == "subscribe" and op.type is not OpType.FAIL:
            shared.add(op.process)
        elif op.f == "assign" and op.did:
            shared.discard(op.process)
        elif op.process in shared:
            operations.add(op.begin)
    return operations


def judge_losses(logs: Logs, findings: Findings, exempt: set[int]) -> set[Name]:
    """Judge the acknowledged messages below the highest message that a poll shows; return them."""
    below: set[Name] = set()
    # An unanswered poll may have consumed messages for its consumer group: these are not lost.
    unknown = [
        op.begin
        for op in logs.ops
        if op.begin in exempt and op.polled and not op.answered and op.type is not OpType.FAIL
    ]
    for key, log in logs.by_key.items():
        tops = dict(_tops(logs, key, exempt))
        highest, witness = tops.get("assigned", (-1, None))
        highest_of_all, other = max(tops.values(), default=(-1, None), key=lambda top: top[0])
        for message, offsets in log.offsets.items():
            sender = logs.sender((key, message))
            if sender is None or not logs.is_committed(sender):
                continue
            last = max(offsets)
            if last >= highest_of_all:
                continue
            below.add((key, message))
            if (key, message) in logs.readers:
                findings.look("lost-write")
                continue
            seen = witness if last < highest else other
            if last >= highest and any(begin > sender.begin for begin in unknown):
                findings.exempt("lost-write")
                continue
            findings.look("lost-write")
            assert seen is not None
            text = (
                f"{message!r} of key {key}, sent by {sender}, is in no poll, although {seen} shows "
                "a later message"
            )
            findings.violate("lost-write", text, sender.begin, seen.begin)
    return below


def _tops(logs: Logs, key: str, exempt: set[int]) -> Iterator[tuple[str, tuple[int, LogOp]]]:
    """Yield the highest polled offset: once for assigned and once for subscribed processes.

    A message with several offsets counts with its lowest offset.
    """
    log = logs.by_key[key]
    for kind, shared in (("assigned", False), ("subscribed", True)):
        tops = [
            (min(log.offsets[message]), reader)
            for message in log.offsets
            for reader in logs.readers.get((key, message), ())
            if reader.did and (reader.begin in exempt) is shared
        ]
        if tops:
            yield kind, max(tops, key=lambda top: top[0])


def judge_unseen(logs: Logs, findings: Findings, exempt: set[int], below: Collection[Name]) -> None:
    """Judge the acknowledged messages at the ends of their logs, except those in `below`."""
    ends = list(_read_to_end(logs, exempt))
    open_ = 0
    for op in logs.ops:
        if not op.did:
            continue
        for key, places in op.sends.items():
            for message in messages(places):
                name = (key, message)
                if name in below or name in logs.repeated:
                    continue
                if name in logs.readers:
                    findings.look("unseen")
                    continue
                poll = next((poll for at, keys, poll in ends if at > op.end and key in keys), None)
                if poll is None:
                    open_ += 1
                    continue
                findings.look("unseen")
                text = (
                    f"{message!r} of key {key} was acknowledged to {op}, but no poll shows it, not "
                    f"even {poll}, the last of {EMPTY_POLLS} in a row without a message of {key}"
                )
                findings.violate("unseen", text, op.begin, poll.begin)
    if open_:
        findings.gap(
            f"{counted(open_, 'acknowledged message')} {'is' if open_ == 1 else 'are'} in no poll, "
            "and no process read the log to the end after that",
            rule="unseen",
        )


def _read_to_end(logs: Logs, exempt: set[int]) -> Iterator[tuple[int, set[str], LogOp]]:
    """Yield (index of an assign, keys read to the end since then, the poll that showed this)."""
    since: dict[int | str, tuple[int, dict[str, int]]] = {}
    for op in logs.ops:
        if op.f == "assign" and op.did:
            since[op.process] = (op.begin, dict.fromkeys(op.keys, 0))
        elif op.f == "subscribe":
            since.pop(op.process, None)
        elif op.polled and op.did and op.process in since and op.begin not in exempt:
            at, empty = since[op.process]
            for key in empty:
                empty[key] = 0 if op.polls.get(key) else empty[key] + 1
            if full := {key for key, count in empty.items() if count == EMPTY_POLLS}:
                yield at, full, op


def _source(logs: Logs, key: str, message: Message, offset: int) -> LogOp | None:
    ops = [*logs.senders.get((key, message), ()), *logs.readers.get((key, message), ())]
    return next(
        (
            op
            for op in ops
            if _has(op.sends, key, (offset, message)) or _has(op.polls, key, (offset, message))
        ),
        None,
    )


def _has(places: Mapping[str, Sequence[Place]], key: str, place: Place) -> bool:
    return place in places.get(key, ())


def _indices(ops: Sequence[LogOp | None]) -> list[int]:
    return list(dict.fromkeys(op.begin for op in ops if op is not None))
