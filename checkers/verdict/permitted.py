"""Results of checkers that found only what the profile permits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from checkers.verdict.disturbances import FOREIGN_EXITS, HEALING
from harness.ops import HARNESS, CheckResult, History, Op, Verdict
from harness.permits import PERMITTED, Permit, since


def permitted_exits(history: History, permits: Mapping[str, Permit]) -> dict[int, str]:
    """Which ends of nodes are permitted, by the indices of the ops that tell of them."""
    begin = {name: since(history, permit.after) for name, permit in permits.items()}
    found = {}
    for op in history.facts("node-exit"):
        able = {name: permit for name, permit in permits.items() if begin[name] < op.index}
        if (name := _sign_of(op, able)) is not None:
            found[op.index] = name
    return found


def gone_nodes(
    history: History, permits: Mapping[str, Permit], *, before: float = math.inf
) -> dict[str, tuple[str, Op]]:
    """The nodes that ended as permitted, and that nobody had started when the op `before` came:
    permit and end of each.
    """
    allowed = permitted_exits(history, permits)
    gone: dict[str, tuple[str, Op]] = {}
    for op in history if allowed else ():
        if op.index >= before:
            break
        if op.process == HARNESS and op.f == "phase" and op.value.get("phase") in HEALING:
            gone.clear()  # all that are down are started again
        elif op.index in allowed:
            gone[str(op.value.get("node"))] = allowed[op.index], op
    return gone


def _sign_of(exited: Op, permits: Mapping[str, Permit]) -> str | None:
    """The permit of which the log of a node that ended shows a sign; none for what others did."""
    if exited.value.get("expected", False) or exited.value.get("by") in FOREIGN_EXITS:
        return None
    log = [str(line) for line in exited.value.get("log") or ()]
    for name, permit in sorted(permits.items()):
        if any(sign in line for sign in permit.signs for line in log):
            return name
    return None


def shown_counts(counts: Mapping[str, int]) -> str:
    """`stale-read 3 times, torn-list once`."""
    return ", ".join(
        f"{name} {'once' if times == 1 else f'{times} times'}"
        for name, times in sorted(counts.items())
    )


def permitted_result(
    found: CheckResult,
    permits: Mapping[str, Permit],
    counts: Mapping[str, int],
    operations: Sequence[int],
    details: Mapping[str, Any],
) -> CheckResult:
    """What was `found` to be broken is permitted, so often by each permit."""
    why = tuple(f"{name}: {permits[name].why}." for name in sorted(counts) if name in permits)
    return CheckResult(
        found.checker,
        Verdict.PERMITTED,
        f"the profile permits what is not strict here: {shown_counts(counts)}",
        (*why, *found.explanation),
        tuple(dict.fromkeys(operations)) or found.operations,
        {**details, PERMITTED: dict(counts), "rule": "+".join(sorted(counts))},
    )


def permit_of_rule(checker: str, rule: str, permits: Mapping[str, Permit]) -> str | None:
    """The permit that gives up a rule of a checker as a whole: of several, one that has a power cut
    to show for it.
    """
    able = [permit for permit in permits.values() if rule in permit.rules.get(checker, ())]
    return min(able, key=lambda permit: permit.after != "power-cut").name if able else None


def permit_rules(found: CheckResult, permits: Mapping[str, Permit]) -> CheckResult:
    """`found`, permitted if each rule that is broken is one that a permit gives up as a whole.

    The rules are `details["by_invariant"]` with their counts, else the one of `details["rule"]`.
    """
    if found.verdict is not Verdict.INVALID or not permits:
        return found
    rule = found.details.get("rule")
    details = found.details
    broken = details.get("by_invariant") or ({rule: 1} if rule else {})
    counts: dict[str, int] = dict(details.get(PERMITTED) or {})
    for name, times in broken.items():
        permit = permit_of_rule(found.checker, name, permits)
        if permit is None:
            return found
        counts[permit] = counts.get(permit, 0) + times
    if not counts:
        return found
    return permitted_result(found, permits, counts, found.operations, found.details)
