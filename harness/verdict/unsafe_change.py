"""Verdicts after events that the target is not responsible for.

A group of replicas that has lost its majority for good serves again when an administrator overrules
its votes and forces a configuration of the rest upon it (Kudu's `unsafe_change_config`). This gives
up data that only the excluded replicas had: acknowledged writes may be gone, two histories of the
group may live side by side, and neither breaks a promise. Two parties must report it: a client of
the harness, by the event `config-forced` {group} before it asks for the change, and the target
before anything comes of it, by the event `config-overruled` {group, term, index, kept, left_out}.
The latter is written into the history as the fact `unsafe-change`; without the former it is only
the word of a node, which acquits nothing.

Missing or duplicate data after it prove nothing, so a conviction becomes `unknown` with the reason.
The history before it is judged again, alone, and convicts as ever. The operations of a result do
not decide this, since their meaning may be inferred from later ones. Liveness still convicts: the
change was made so that the group serves and comes to rest again.

The same holds if another program listened on a port of a node (`infrastructure` with
`impostor`): since the node last ended, its answers may have been those of the other program.
Checkers that look at such facts themselves, for exits and for time, are left alone.
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
    """From which op on nothing convicts, why, and which checkers do so all the same."""

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


def _impostors(history: History) -> Iterator[_Excuse]:
    """Each from the last end of its node on: while that ran, no other program could listen."""
    ended: dict[object, int] = {}
    for op in history.of_process(HARNESS):
        value = op.value if isinstance(op.value, dict) else {}
        if op.f == "node-exit":
            ended[value.get("node")] = op.index
        elif op.f == "infrastructure" and value.get("impostor"):
            why = f"{value.get('what')} (op {op.index}), and may have answered for it"
            yield _Excuse(ended.get(value.get("node"), 0), why, _BY_OWN_RULES)


def temper(
    history: History, result: CheckResult, check: Callable[[History], CheckResult]
) -> CheckResult:
    """`result`, unknown where it convicts of what others may have done.

    `check` judges a history as `history` was judged.
    """
    if result.verdict is not Verdict.INVALID:
        return result
    excuses = [
        *(_forced(op) for op in islice(history.facts(UNSAFE_CHANGE), 1)),
        *_impostors(history),
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
