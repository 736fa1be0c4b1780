"""Changes verdicts after events for which the target is not responsible.

If a replica group has lost its majority for good, an administrator can make it serve again by
overruling its votes and forcing a configuration of the remaining replicas upon it (Kudu's
`unsafe_change_config`). This gives up data that only the excluded replicas had: acknowledged writes
may be gone, two histories of the group may exist, and neither breaks a promise.

Two parties must report the change. A client of the harness reports it by the event `config-forced`
{group} before it asks for the change. The target reports it by the event `config-overruled` {group,
term, index, kept, left_out} before the change has any effect. This event goes into the history as
the op `unsafe-change`. Without the first event, the second is only the claim of a node and excuses
nothing.

Missing or duplicate data after the change prove nothing, so an invalid result becomes `unknown`
with the reason. The history before the change is also judged separately, and may be invalid. A
result is excused even if all operations that it names came before the change, since their meaning
may be inferred from later operations. The liveness checker still applies: the purpose of the change
was that the group serves and settles again.

Results also become `unknown` if another program listened on a port of a node (`infrastructure` with
`impostor`): this program may have answered for the node since the node's last exit. So do they if
the disk with the nodes' data was full (`full`), since what a node wrote may be gone. Checkers that
handle such ops themselves (`crash` and `liveness`) are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from harness.ops import HARNESS, CheckResult, History, Op, Verdict

UNSAFE_CHANGE: Final = "unsafe-change"
_STILL_PROMISED: Final = frozenset({"liveness"})
_BY_OWN_RULES: Final = frozenset({"crash", "liveness"})


class _Excuse(NamedTuple):
    """A reason to excuse invalid results from op `begin` on, unless the checker is `exempt`."""

    begin: int
    why: str
    exempt: frozenset[str]


def _forced(op: Op) -> _Excuse:
    value = op.value if isinstance(op.value, dict) else {}
    left_out = ", ".join(map(str, value.get("left_out") or ())) or "some replicas"
    why = (
        f"an administrator left {left_out} out of the group {value.get('group')!r} by force (op "
        f"{op.index}), and gave up what only they had"
    )
    return _Excuse(op.index, why, _STILL_PROMISED)


def _of_host(history: History) -> Iterator[_Excuse]:
    """Yield one excuse for each program that took a node's port, and for each full disk.

    The excuse for a port begins at the node's last exit, since a running node keeps its port.
    """
    ended: dict[object, int] = {}
    for op in history.of_process(HARNESS):
        value = op.value if isinstance(op.value, dict) else {}
        if op.f == "node-exit":
            ended[value.get("node")] = op.index
        elif op.f == "infrastructure" and value.get("impostor"):
            why = f"{value.get('what')} (op {op.index}), and may have answered for it"
            yield _Excuse(ended.get(value.get("node"), 0), why, _BY_OWN_RULES)
        elif op.f == "infrastructure" and value.get("full"):
            why = f"{value.get('what')} (op {op.index}), so writes of nodes may have failed"
            yield _Excuse(op.index, why, _BY_OWN_RULES)


def temper(
    history: History, result: CheckResult, check: Callable[[History], CheckResult]
) -> CheckResult:
    """Return `result`, changed to `unknown` if an unsafe change or another program explains it.

    `check` judges a history in the same way as `history` was judged.
    """
    if result.verdict is not Verdict.INVALID:
        return result
    excuses = [
        *(_forced(op) for op in islice(history.facts(UNSAFE_CHANGE), 1)),
        *_of_host(history),
    ]
    first = min((each for each in excuses if result.checker not in each.exempt), default=None)
    if first is None:
        return result
    before = check(History(op for op in history if op.index < first.begin))
    if before.verdict is Verdict.INVALID:
        return before
    return msgspec.structs.replace(
        result,
        verdict=Verdict.UNKNOWN,
        reason=f"{result.reason}; but {first.why}",
        details={**result.details, "rule": "overruled", "broken": result.details.get("rule")},
    )
