"""Permits: promises that a target's profile does not make. Runs record their permits as data.

A profile may describe an older or weaker system than the strict profile: Kudu's leaders have no
lease, so a leader that is cut off returns stale answers. Such a system never promised fresh
answers, so a checker that finds no other violation reports the verdict *permitted* and the number
of occurrences. Effects of a bug switch are never permitted, since permits come from the profile
alone.

`Target.permits` returns the permits, and each history contains them as an op of the harness:
`{"profile": name, "permits": [permit...]}`. So a stored history is judged again under the same
permits.

| name                 | effect                                                                    |
|----------------------|---------------------------------------------------------------------------|
| stale-read           | an answer lacks what leaders of *later* terms acknowledged, nothing else  |
| torn-list            | a list shows its tables as of different moments during the call           |
| name-gap             | a table has no name for readers while it is renamed or deleted            |
| dirty-create         | readers see a table before its create ends, even if the create fails      |
| ddl-twice            | a change that a client sent twice takes effect twice                      |
| lost-after-power-cut | a power cut loses acknowledged data                                       |
| drop-twice           | several concurrent drops of one table are acknowledged                    |
| drop-renamed         | a drop removes a table under the new name that a concurrent rename gave   |
| drop-missed          | a drop does nothing, because a concurrent rename moved its table away     |
| change-renamed       | an alter or rename acts under the new name that a concurrent rename gave, |
|                      | and a rename changes only its part of that name: database or table        |
| torn-get             | a get shows a mixture of a table before and after a concurrent change     |
| half-made            | tablets of a removed table run, are deleted and are created again         |
| deleted-first        | a delete that fails deletes tablets, which are created again without data |
| orphan-replicas      | a server keeps a replica of a tablet that the catalog does not know,      |
|                      | or a copy that its group never took in                                    |

Checkers know these names. Any permit may also list log lines (`signs`) that excuse the exit of a
process, and whole `rules` of checkers that the target may break. Listing rules is the last resort,
for defects with many symptoms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from harness.ops import CheckResult, History, Op, Verdict
from harness.timeline import power_cuts

__all__ = [
    "CHANGE_RENAMED",
    "DDL_TWICE",
    "DELETED_FIRST",
    "DIRTY_CREATE",
    "DROP_MISSED",
    "DROP_RENAMED",
    "DROP_TWICE",
    "HALF_MADE",
    "LOST_AFTER_POWER_CUT",
    "NAME_GAP",
    "ORPHAN_REPLICAS",
    "PERMITTED",
    "STALE_READ",
    "TORN_GET",
    "TORN_LIST",
    "Condition",
    "Permit",
    "fact_of",
    "lossy_cuts",
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
DELETED_FIRST: Final = "deleted-first"
HALF_MADE: Final = "half-made"
TORN_GET: Final = "torn-get"
ORPHAN_REPLICAS: Final = "orphan-replicas"

FACT: Final = "permits"
PERMITTED: Final = "permitted"
"""The key in a result's details under which a checker counts how often it used each permit."""


Condition = Literal["", "power-cut", "leader-change", "leader-back"]
"""The event that enables a permit: none, a power cut of any node, a change of the leader, or the
return of an earlier leader."""


class Permit(msgspec.Struct, frozen=True, kw_only=True):
    """One permitted behaviour. `why` says in one line why the profile permits it.

    A process may end if one of the last lines of its log contains one of the `signs`. `rules` maps
    names of checkers to the rules (`details["rule"]`, or invariants) that the target may break.
    `after` is the condition that must occur first (`since`); until then the permit does not apply.
    `lacks` are kinds of operations that the profile does not support: a run can be valid although
    none of them succeeds. If `lacks` names a whole vocabulary, runs with that vocabulary are
    refused.
    """

    name: str
    why: str
    signs: tuple[str, ...] = ()
    after: Condition = ""
    rules: dict[str, tuple[str, ...]] = {}
    lacks: tuple[str, ...] = ()


def fact_of(profile: str, permits: Sequence[Permit]) -> dict[str, Any]:
    """Return the value of the op `permits`. This op records the permits in the history."""
    return {"profile": profile, "permits": [msgspec.to_builtins(permit) for permit in permits]}


def lossy_cuts(history: History, permits: Mapping[str, Permit]) -> list[Op]:
    """Return the power cuts that may undo acknowledged changes; none without a permit for it."""
    return power_cuts(history) if LOST_AFTER_POWER_CUT in permits else []


def permits_of(history: History) -> dict[str, Permit]:
    """Return the permits of a history by name, if their conditions have occurred.

    The result is empty if the profile promises everything.
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
    """Return the index of the op that fulfilled `condition`.

    It is infinity if none did, and -1 if there is no condition.
    """
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
    """Map the name of each permit to how often a checker's result used it."""
    counts = result.details.get(PERMITTED)
    if result.verdict is not Verdict.PERMITTED or not isinstance(counts, Mapping):
        return {}
    return {str(name): times for name, times in counts.items() if isinstance(times, int)}


def permitted_of(results: Iterable[CheckResult]) -> dict[str, int]:
    """Map each permit to how often a run used it: the highest count in any of `results`."""
    most: dict[str, int] = {}
    for result in results:
        for name, times in permitted_in(result).items():
            most[name] = max(times, most.get(name, 0))
    return most
