"""Reductions of operations: generated operations become a list, which can be shortened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.ops import NS_PER_S, Pair, ScheduledOp
from harness.timeline import faults_of
from harness.trials.recorded import after_warm_up, recorded_ops
from harness.trials.shrink.search import Search, Witness

RECORDED_SEEDS: Final = 5
"""The number of seeds with which recorded operations are tried. The failure must still occur
although the operations come at fixed times."""
ALL_SEEDS: Final = 3
"""The number of seeds for trials with all recorded operations. These trials cost the most."""
OPS_MAX: Final = 20_000
"""How many operations are recorded at most, to limit memory and time."""
NAMES_MAX: Final = 8
"""The maximum number of names that are merged one at a time."""
NEW: Final = "new_"
"""The prefix of a field that contains an object's new name, as in `new_name`."""
ONE_NAME: Final = "one name in place of several"
BEFORE_NS: Final = NS_PER_S
AFTER_NS: Final = NS_PER_S // 2
"""An operation is near a fault if it begins at most `BEFORE_NS` before or `AFTER_NS` after it."""
LATE: Final = 16
"""How many operations just before the failure may suffice to reproduce a race."""
TAIL_NS: Final = NS_PER_S // 10
GAPS_NS: Final = tuple(int(s * NS_PER_S) for s in (0.01, 0.05, 0.2, 0.5, 1, 2))


def record_operations(search: Search, *, few: bool = False) -> bool:
    """Replace the generator of the best case by the operations that it generated, or `few` of them.

    A list of operations begins with the chaos phase, so recorded operations and faults all come
    later by the length of the warm-up. Returns whether the case still fails.
    """
    if search.case.ops is not None:
        return True
    if search.exhausted:
        return False
    witness = search.witness()
    listed = recorded(witness)
    if not listed or len(listed) > OPS_MAX:
        return False
    case = after_warm_up(search.case)
    guesses = _guesses(listed, near_faults(witness))
    tries = [(guesses[:-2], RECORDED_SEEDS), (guesses[-2:], ALL_SEEDS)]
    return any(
        search.first(
            [with_ops(case, guess) for guess in _different(tried)],
            "recorded operations",
            seeds=seeds,
        )
        is not None
        for tried, seeds in (tries[:1] if few else tries)
    )


def recorded(witness: Witness) -> list[tuple[ScheduledOp, bool]]:
    """Return each client operation under load, and whether a failed result names it."""
    named = {
        index
        for result in witness.judgement.results
        if not result.verdict.holds
        for index in result.operations
    }
    return [
        (op, not named.isdisjoint(_indices(pair)))
        for op, pair in recorded_ops(witness.plan.case, witness.history)
    ]


def _indices(pair: Pair) -> set[int]:
    done = pair.completion
    return {pair.invoke.index} | (set() if done is None else {done.index})


def near_faults(witness: Witness) -> list[ScheduledOp]:
    """Return the operations that were invoked shortly before or after a fault began."""
    begun_ns = [fault.start for fault in faults_of(witness.history)]
    return [
        op
        for op, pair in recorded_ops(witness.plan.case, witness.history)
        if any(-BEFORE_NS <= pair.invoke.time - at_ns <= AFTER_NS for at_ns in begun_ns)
    ]


def _guesses(
    listed: Sequence[tuple[ScheduledOp, bool]], near: list[ScheduledOp]
) -> list[list[ScheduledOp]]:
    """Return lists of operations that may suffice: the shortest first, all operations last.

    An operation is related to a blamed one if both contain the same text, such as a table's name,
    that at most half of the operations contain. If the checker blames no operation, the ones `near`
    a fault may suffice.
    """
    blamed = [op for op, is_blamed in listed if is_blamed]
    count = Counter(text for op, _ in listed for text in set(_texts(op.value)))
    texts = {text for op in blamed for text in _texts(op.value) if _is_rare(count[text], listed)}
    clients = {op.process for op in blamed}
    first_ns = min((op.at_ns for op in blamed), default=0)
    last_ns = max((op.at_ns for op in blamed), default=0)
    early = [(op, is_blamed) for op, is_blamed in listed if op.at_ns <= last_ns]
    late = [*(each for each in early[:-LATE] if each[1]), *early[-LATE:]]
    related = [(op, is_blamed or not texts.isdisjoint(_texts(op.value))) for op, is_blamed in early]
    return [
        [],
        blamed,
        [op for op, is_related in related if is_related and op.at_ns >= first_ns],
        [op for op, is_related in related if is_related],
        [op for op, is_related in related if is_related or op.process in clients],
        [op for op, _ in late] if blamed else near,
        [op for op, _ in early],
        [op for op, _ in listed],
    ]


def _is_rare(count: int, ops: Sequence[object]) -> bool:
    return 2 * count <= len(ops)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def merge_names(search: Search) -> None:
    """Rename tables and other objects to the name that most operations use.

    A name is the text of a field. A field and its `new_` variant, such as `name` and `new_name`,
    share their names.
    """
    counts: dict[str, Counter[str]] = {}
    for op in search.case.ops or ():
        for key, name in _names(op):
            counts.setdefault(key, Counter())[name] += 1
    for key, named in counts.items():
        first, *others = [name for name, count in named.most_common() if count > 1] or [""]
        at_once = [_renamed(search.case, key, others, first)] if len(others) > 1 else []
        if search.first(at_once, ONE_NAME) is None:
            for other in others[:NAMES_MAX]:
                search.try_one(_renamed(search.case, key, [other], first), ONE_NAME)


def _names(op: ScheduledOp) -> Iterator[tuple[str, str]]:
    """Yield each field whose value is a name, such as a table's. Names inside lists are ignored."""
    if isinstance(op.value, dict):
        for key, text in op.value.items():
            if isinstance(text, str):
                yield key.removeprefix(NEW), text


def _renamed(case: Case, key: str, names: Sequence[str], name: str) -> Case:
    """Return the case with `name` in place of each of `names` in the field `key`."""

    def changed(op: ScheduledOp) -> ScheduledOp:
        if all((key, each) not in _names(op) for each in names):
            return op
        value = {
            field: name if field.removeprefix(NEW) == key and text in names else text
            for field, text in op.value.items()
        }
        return msgspec.structs.replace(op, value=value)

    return with_ops(case, list(map(changed, case.ops or ())))


def _different(guesses: Sequence[list[ScheduledOp]]) -> list[list[ScheduledOp]]:
    return [guess for place, guess in enumerate(guesses) if guess not in guesses[:place]]


def with_ops(case: Case, ops: Sequence[ScheduledOp]) -> Case:
    """Return the case with these operations in place of its generator."""
    return msgspec.structs.replace(case, ops=tuple(ops))


def drop_unrelated(search: Search) -> None:
    """Drop operations of the best case that share no name with a blamed operation."""
    if search.exhausted:
        return
    blamed = [op for op, is_blamed in recorded(search.witness()) if is_blamed]
    ops = search.case.ops or ()
    count = Counter(name for op in ops for name in set(_names(op)))
    names = {name for op in blamed for name in _names(op) if _is_rare(count[name], ops)}
    places = [place for place, op in enumerate(ops) if names.isdisjoint(_names(op))]
    if names and places:
        related = set(range(len(ops))) - set(places)
        search.drop(
            places,
            lambda rest: with_ops(
                search.case, [ops[place] for place in sorted(related | set(rest))]
            ),
            "fewer operations",
        )


def shrink_operations(search: Search, *, chunk_max: int | None = None) -> None:
    """Drop operations from the list of the best case."""
    search.drop(
        search.case.ops or (),
        lambda rest: with_ops(search.case, rest),
        "fewer operations",
        chunk_max=chunk_max,
    )


def tidy_operations(search: Search) -> None:
    """Move the operations and faults of the best case closer together, and to the beginning."""
    case = search.case
    if case.ops is None:
        return
    search.first_quickly([even(case, gap_ns) for gap_ns in GAPS_NS], "even operations")
    _move_earlier(search)


def even(case: Case, gap_ns: int) -> Case:
    """Return the case with pauses of at most `gap_ns` between operations and faults."""
    faults = case.faults or ()
    moments = sorted(
        {
            *(op.at_ns for op in case.ops or ()),
            *(fault.at_ns for fault in faults),
            *(fault.at_ns + fault.duration_ns for fault in faults),
        }
    )
    places: dict[int, int] = {}
    before = at = 0
    for moment in moments:
        at += min(moment - before, gap_ns)
        before = moment
        places[moment] = at
    ops = [msgspec.structs.replace(op, at_ns=places[op.at_ns]) for op in case.ops or ()]
    moved = [
        msgspec.structs.replace(
            fault,
            at_ns=places[fault.at_ns],
            duration_ns=max(
                1_000_000, places[fault.at_ns + fault.duration_ns] - places[fault.at_ns]
            ),
        )
        for fault in faults
    ]
    return msgspec.structs.replace(
        case, ops=tuple(ops), faults=tuple(moved), time_limit_s=(at + TAIL_NS) / NS_PER_S
    )


def _move_earlier(search: Search) -> None:
    """Move everything to the beginning of the chaos phase."""
    case = search.case
    starts = [op.at_ns for op in case.ops or ()] + [fault.at_ns for fault in case.faults or ()]
    early = min(starts, default=0)
    if early <= 0:
        return
    search.try_one(
        msgspec.structs.replace(
            case,
            ops=tuple(msgspec.structs.replace(op, at_ns=op.at_ns - early) for op in case.ops or ()),
            faults=tuple(
                msgspec.structs.replace(fault, at_ns=fault.at_ns - early)
                for fault in case.faults or ()
            ),
            time_limit_s=max(0.1, case.time_limit_s - early / NS_PER_S),
        ),
        "an earlier start",
    )
