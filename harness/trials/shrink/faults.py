"""Reductions of faults: fewer, earlier, shorter, and in plain words.

A packed case keeps some of the faults, lets them begin early, and ends soon after the last one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from harness.case import Case, Fault
from harness.faults.nemesis_from_text import AimedNemesis, load_nemesis
from harness.ops import NS_PER_S
from harness.plan.random_case import NONE
from harness.trials.shrink.search import Search

FIRST_AT_NS: Final = 1 * NS_PER_S
"""The start of the first fault of a packed case. By then, clients have found the leader."""
AFTER_NS: Final = 2 * NS_PER_S
"""How long operations continue after the last fault of a packed case."""
PACKED_MAX: Final = 6
"""With more faults than this, they are not tried one by one or in small groups."""
ROUND_NS: Final = NS_PER_S // 10
"""Shortened durations are multiples of this."""
_NODE: Final = re.compile(r"\bnode:[^\s,]+")
_NTH: Final = re.compile(r"\bnth=(\d+)")


def with_faults(case: Case, faults: Sequence[Fault]) -> Case:
    """Return the case with these faults, and without nemeses that have no fault left."""
    names = tuple(dict.fromkeys(fault.nemesis for fault in faults)) or (NONE,)
    return msgspec.structs.replace(case, faults=tuple(faults), nemeses=names)


def in_plain_words(case: Case) -> Case:
    """Return the case with its faults as single sentences without times, such as `kill leader`.

    A fault whose nemesis cannot be written in words stays as it is.
    """
    plain: list[Fault] = []
    for number, fault in enumerate(case.faults or (), 1):
        nemesis = load_nemesis(fault.nemesis)
        if isinstance(nemesis, AimedNemesis):
            text = nemesis.sentence(fault).untimed
            args = {
                name: fault.args[name]
                for name in AimedNemesis.of_text(text).drawn_args
                if name in fault.args
            }
            plain.append(
                msgspec.structs.replace(fault, id=f"fault-{number}", nemesis=text, args=args)
            )
        else:
            plain.append(fault)
    return with_faults(case, plain)


def packed(case: Case, faults: Sequence[Fault]) -> Case:
    """Return the case with only these faults, and let the first one begin soon.

    The times between faults stay the same, and the chaos phase ends soon after the last fault.
    """
    early = min((fault.at_ns for fault in faults), default=0)
    moved = [
        msgspec.structs.replace(fault, at_ns=fault.at_ns - early + min(early, FIRST_AT_NS))
        for fault in faults
    ]
    end_ns = end_of(moved) + AFTER_NS
    limit_s = min(case.time_limit_s, end_ns / NS_PER_S)
    return msgspec.structs.replace(with_faults(case, moved), time_limit_s=limit_s)


def end_of(faults: Sequence[Fault]) -> int:
    """Return the end of the last fault, in ns."""
    return max((fault.at_ns + fault.duration_ns for fault in faults), default=0)


def packed_cases(case: Case, counts: Sequence[int]) -> Iterator[Case]:
    """Yield a packed case for each group of neighbouring faults whose size is in `counts`.

    A size of 0 means no faults. Cases with more than `PACKED_MAX` faults have no other groups.
    """
    faults = case.faults or ()
    for count in counts:
        if count == 0:
            yield packed(case, ())
        elif len(faults) <= PACKED_MAX:
            for begin in range(len(faults) - count + 1):
                yield packed(case, faults[begin : begin + count])


def shrink_faults(search: Search) -> None:
    """Reduce the faults of the best case: their number, events and durations."""
    if len(search.case.faults or ()) > 1:
        leave_one(search)
    faults = search.case.faults or ()
    search.drop(faults, lambda rest: with_faults(search.case, rest), "fewer faults")
    while search.first(_united(search.case), "one fault in place of several") is not None:
        pass
    wait_less(search)
    for number in range(len(search.case.faults or ())):
        while search.first(_shorter(search.case, number), "a shorter fault") == 0:
            pass


def leave_one(search: Search, *, seeds: int | None = None) -> None:
    """Try the best case with no fault and with each single fault, unless it has too many faults."""
    faults = search.case.faults or ()
    fewer = [(), *([fault] for fault in faults if len(faults) > 1)]
    if 0 < len(faults) <= PACKED_MAX:
        cases = [with_faults(search.case, left) for left in fewer]
        search.first_quickly(cases, "at most one fault", seeds=seeds)


def _united(case: Case) -> Iterator[Case]:
    """Replace faults that differ only in their node by one fault on all members, or on all nodes.

    For example, three links that are slow from the start to the end become one sentence.
    """
    alike: dict[str, list[Fault]] = {}
    for fault in case.faults or ():
        alike.setdefault(_NODE.sub("", fault.nemesis), []).append(fault)
    for several in alike.values():
        if len({fault.nemesis for fault in several}) == 1:
            continue
        begin_ns = min(fault.at_ns for fault in several)
        for whom in ("members", "all"):
            united = msgspec.structs.replace(
                several[0],
                nemesis=_NODE.sub(whom, several[0].nemesis),
                at_ns=begin_ns,
                duration_ns=end_of(several) - begin_ns,
            )
            rest = [fault for fault in case.faults or () if fault not in several]
            yield with_faults(case, [united, *rest])


def wait_less(search: Search) -> None:
    """Let faults begin at earlier occurrences of their events, to need fewer operations."""
    for number in range(len(search.case.faults or ())):
        search.first(_earlier_events(search.case, number), "an earlier event")


def _earlier_events(case: Case, number: int) -> Iterator[Case]:
    """Yield the case with one fault at an earlier occurrence of its event."""
    fault = (case.faults or ())[number]
    event = _NTH.search(fault.nemesis)
    nth = int(event[1]) if event is not None else 1
    for lower in sorted({1, 2, nth // 4, nth // 2}):
        if 0 < lower < nth:
            text = _NTH.sub(f"nth={lower}", fault.nemesis)
            yield _replaced(case, number, msgspec.structs.replace(fault, nemesis=text))


def _shorter(case: Case, number: int) -> Iterator[Case]:
    """Yield the case with one fault shortened to about a quarter or half of its duration."""
    fault = (case.faults or ())[number]
    for part in (4, 2):
        shorter_ns = fault.duration_ns // part // ROUND_NS * ROUND_NS
        if shorter_ns:
            yield _replaced(case, number, msgspec.structs.replace(fault, duration_ns=shorter_ns))


def _replaced(case: Case, number: int, fault: Fault) -> Case:
    faults = list(case.faults or ())
    faults[number] = fault
    return with_faults(case, faults)
