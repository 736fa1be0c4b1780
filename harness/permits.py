"""Permits: promises that a profile of a target does not make, as data that runs record.

A profile may be an older or a weaker system than its strict one: Kudu's leaders have no lease, so
one that is cut off answers from the past. That breaks no promise and keeps none: a checker that
finds no other fault reports *permitted*, and how often. Effects of a bug switch are never
permitted, since permits come from the profile alone.

`Target.permits` returns them, and each history has them as a fact of the harness:
`{"profile": name, "permits": [permit...]}`. So a stored history is judged again under the same
permits.

| name                 | effect                                                                    |
|----------------------|---------------------------------------------------------------------------|
| stale-read           | an answer lacks what leaders of *later* terms acknowledged, nothing else  |
| torn-list            | a list shows each table as of another moment of its call                  |
| name-gap             | while it is renamed or deleted, a table is found under no name            |
| dirty-create         | a table shows while its create is under way, also if that then fails      |
| ddl-twice            | a change that was sent twice acts twice                                   |
| lost-after-power-cut | a power cut loses acknowledged data                                       |
| drop-twice           | of drops of one table at once, more than one is acknowledged              |
| drop-renamed         | a drop takes a table that is renamed meanwhile, under its new name        |
| drop-missed          | a drop of a table that is renamed meanwhile does nothing                  |
| change-renamed       | so does an alter, or another rename: it changes the table under that name |
| torn-get             | a get shows a table as a change that is under way meanwhile makes it      |

Checkers know these. Any permit may also name log lines (`signs`) of processes that may end, and
whole `rules` of checkers, which then prove nothing: the last resort, for defects that show in many
ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from harness.ops import CheckResult, History, Verdict
from harness.timeline import power_cuts

__all__ = [
    "CHANGE_RENAMED",
    "DDL_TWICE",
    "DIRTY_CREATE",
    "DROP_MISSED",
    "DROP_RENAMED",
    "DROP_TWICE",
    "LOST_AFTER_POWER_CUT",
    "NAME_GAP",
    "PERMITTED",
    "STALE_READ",
    "TORN_GET",
    "TORN_LIST",
    "Condition",
    "Permit",
    "fact_of",
    "permits_of",
    "permitted_in",
    "permitted_of",
    "since",
]

STALE_READ: Final = "stale-read"
TORN_LIST: Final = "torn-list"
NAME_GAP: Final = "name-gap"
DIRTY_CREATE: Final = "dirty-create"
DDL_TWICE: Final = "ddl-twice"
LOST_AFTER_POWER_CUT: Final = "lost-after-power-cut"
DROP_TWICE: Final = "drop-twice"
DROP_RENAMED: Final = "drop-renamed"
DROP_MISSED: Final = "drop-missed"
CHANGE_RENAMED: Final = "change-renamed"
TORN_GET: Final = "torn-get"

FACT: Final = "permits"
PERMITTED: Final = "permitted"
"""The key among the details of a result: permit -> how often."""


Condition = Literal["", "power-cut", "leader-change", "leader-back"]
"""Nothing, the power of some node was cut, a second leader was seen, or one led again."""


class Permit(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that may happen; `why` says in one line where the profile has it from.

    `signs` are texts: a process may end if one of the last lines of its log holds one. `rules`
    maps names of checkers to rules of theirs (`details["rule"]`, or invariants) that may be broken.
    `after` is what must have come before (`since`): without it, there is no such permit.
    `lacks` are kinds of operations that the profile does not have: that none ever succeeds does not
    make a run vacuous. Of a whole vocabulary that it names there is no run at all.
    """

    name: str
    why: str
    signs: tuple[str, ...] = ()
    after: Condition = ""
    rules: dict[str, tuple[str, ...]] = {}
    lacks: tuple[str, ...] = ()


def fact_of(profile: str, permits: Sequence[Permit]) -> dict[str, Any]:
    """The fact for the history."""
    return {"profile": profile, "permits": [msgspec.to_builtins(permit) for permit in permits]}


def permits_of(history: History) -> dict[str, Permit]:
    """The permits of a history by name, without those whose condition never occurred; none if the
    profile promises all.
    """
    permits: dict[str, Permit] = {}
    for op in history.facts(FACT):
        value = op.value if isinstance(op.value, Mapping) else {}
        for fields in value.get("permits") or ():
            permit = msgspec.convert(fields, Permit)
            if since(history, permit.after) < math.inf:
                permits[permit.name] = permit
    return permits


def since(history: History, condition: Condition) -> float:
    """The index of the op by which a condition had come; infinite where it never did."""
    if condition == "power-cut":
        return next((cut.index for cut in power_cuts(history)), math.inf)
    led: list[Any] = []
    for op in history.leaders() if condition else ():
        node = op.value.get("node")
        if led and node != led[-1] and (condition == "leader-change" or node in led):
            return op.index
        led.append(node)
    return math.inf if condition else -1


def permitted_in(result: CheckResult) -> dict[str, int]:
    """The number of uses of each permit in a result."""
    counts = result.details.get(PERMITTED)
    if result.verdict is not Verdict.PERMITTED or not isinstance(counts, Mapping):
        return {}
    return {str(name): times for name, times in counts.items() if isinstance(times, int)}


def permitted_of(results: Iterable[CheckResult]) -> dict[str, int]:
    """The same over all checkers of a run: of one permit, what the checker that saw most says."""
    most: dict[str, int] = {}
    for result in results:
        for name, times in permitted_in(result).items():
            most[name] = max(times, most.get(name, 0))
    return most
