"""What a verdict is worth where an administrator overruled the votes of a group of replicas.

A group that has lost its majority for good serves again when somebody forces a configuration of the
rest upon it (Kudu's `unsafe_change_config`). What those that were left out alone had is then given
up: acknowledged writes may be gone, two histories of the group may live side by side, and neither
breaks a promise. It takes two to say so: a client of the harness, by the event `config-forced`
{group} before it asks for the change, and the target before anything comes of it, by the event
`config-overruled` {group, term, index, kept, left_out}. The latter is written into the history as
the fact `unsafe-change`; without the former it is a node's own word, and acquits nobody.

After it nothing is proven by what is missing or told twice, so what would convict is `unknown`, and
says why. What happened before is judged once more, alone, and convicts as ever: the operations that
a result names do not tell, since what they mean may have been inferred from later ones. And to
serve and to come to rest again is what the change was for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from harness.ops import CheckResult, History, Verdict

__all__ = ["UNSAFE_CHANGE", "temper"]

UNSAFE_CHANGE: Final = "unsafe-change"
_STILL_PROMISED: Final = frozenset({"liveness"})


def temper(
    history: History, result: CheckResult, check: Callable[[History], CheckResult]
) -> CheckResult:
    """`result`, unknown where it convicts of what an administrator may have done.

    `check` judges a history as `history` was judged.
    """
    if result.verdict is not Verdict.INVALID or result.checker in _STILL_PROMISED:
        return result
    forced = next(history.facts(UNSAFE_CHANGE), None)
    if forced is None:
        return result
    before = check(History(op for op in history if op.index < forced.index))
    if before.verdict is Verdict.INVALID:
        return before
    value = forced.value if isinstance(forced.value, dict) else {}
    left_out = ", ".join(map(str, value.get("left_out") or ())) or "somebody"
    why = (
        f"an administrator left {left_out} out of the group {value.get('group')!r} by force (op "
        f"{forced.index}), and gave up what only they had"
    )
    return msgspec.structs.replace(
        result,
        verdict=Verdict.UNKNOWN,
        reason=f"{result.reason}; but {why}",
        details={**result.details, "rule": "overruled", "broken": result.details.get("rule")},
    )
