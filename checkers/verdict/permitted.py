"""Makes the results of checkers that found only deviations that the run's profile permits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from checkers.verdict.disturbances import FOREIGN_EXITS, HEALING
from harness.ops import HARNESS, CheckResult, History, Op, Verdict
from harness.permits import PERMITTED, Permit, since


def permitted_exits(history: History, permits: Mapping[str, Permit]) -> dict[int, str]:
    """Map the index of each `node-exit` fact that a permit covers to the name of the permit."""
    begin = {name: since(history, permit.after) for name, permit in permits.items()}
    exits = {}
    for op in history.facts("node-exit"):
        able = {name: permit for name, permit in permits.items() if begin[name] < op.index}
        if (name := _sign_of(op, able)) is not None:
            exits[op.index] = name
    return exits


def gone_nodes(
    history: History, permits: Mapping[str, Permit], *, before: float = math.inf
) -> dict[str, tuple[str, Op]]:
    """Map nodes to (permit, exit) if they ended as permitted and were down at op `before`."""
    allowed = permitted_exits(history, permits)
    gone: dict[str, tuple[str, Op]] = {}
    for op in history if allowed else ():
        if op.index >= before:
            break
        if op.process == HARNESS and op.f == "phase" and op.value.get("phase") in HEALING:
            gone.clear()
        elif op.index in allowed:
            gone[str(op.value.get("node"))] = allowed[op.index], op
    return gone


def _sign_of(exited: Op, permits: Mapping[str, Permit]) -> str | None:
    if exited.value.get("expected", False) or exited.value.get("by") in FOREIGN_EXITS:
        return None
    log = [str(line) for line in exited.value.get("log") or ()]
    for name, permit in sorted(permits.items()):
        if any(sign in line for sign in permit.signs for line in log):
            return name
    return None


def shown_counts(counts: Mapping[str, int]) -> str:
    """Return the uses of permits as text, such as `stale-read 3 times, torn-list once`."""
    return ", ".join(
        f"{name} {'once' if times == 1 else f'{times} times'}"
        for name, times in sorted(counts.items())
    )


_DEVIATIONS: Final = (
    (re.compile(r"\bbut no order of the operations[^:]* allows it"), "which deviates as permitted"),
    (
        re.compile(r"no order of the operations that respects real time explains (.*)\.$"),
        r"the deviation is in \1.",
    ),
    (re.compile(r"\bit is a contradiction\b"), "it is a deviation"),
    (re.compile(r"^(\d+) violation(s?) of "), r"\1 deviation\2 of "),
)
"""Patterns of words about violations, each with milder words for a permitted deviation."""


def _deviation(sentence: str) -> str:
    for words, milder in _DEVIATIONS:
        sentence = words.sub(milder, sentence)
    return sentence


def permitted_result(
    broken: CheckResult,
    permits: Mapping[str, Permit],
    counts: Mapping[str, int],
    operations: Sequence[int],
    details: Mapping[str, Any],
) -> CheckResult:
    """Turn the invalid result `broken` into `permitted`; `counts` has the uses of each permit."""
    why = tuple(f"{name}: {permits[name].why}." for name in sorted(counts) if name in permits)
    return CheckResult(
        broken.checker,
        Verdict.PERMITTED,
        f"the profile permits this: {shown_counts(counts)}",
        (*why, *map(_deviation, broken.explanation)),
        tuple(dict.fromkeys(operations)) or broken.operations,
        {**details, PERMITTED: dict(counts), "rule": "+".join(sorted(counts))},
    )


def permit_of_rule(checker: str, rule: str, permits: Mapping[str, Permit]) -> str | None:
    """Return the name of a permit that lets the target break a checker's rule, or `None`.

    Of several such permits, the permit for power cuts comes first.
    """
    able = [permit for permit in permits.values() if rule in permit.rules.get(checker, ())]
    return min(able, key=lambda permit: permit.after != "power-cut").name if able else None


def permit_rules(broken: CheckResult, permits: Mapping[str, Permit]) -> CheckResult:
    """Turn the result `broken` into `permitted` if permits let the target break every broken rule.

    The broken rules are in `details["by_invariant"]`, or else in `details["rule"]`.
    """
    if broken.verdict is not Verdict.INVALID or not permits:
        return broken
    rule = broken.details.get("rule")
    details = broken.details
    counted = details.get("by_invariant") or ({rule: 1} if rule else {})
    counts: dict[str, int] = dict(details.get(PERMITTED) or {})
    for name, times in counted.items():
        permit = permit_of_rule(broken.checker, name, permits)
        if permit is None:
            return broken
        counts[permit] = counts.get(permit, 0) + times
    if not counts:
        return broken
    return permitted_result(broken, permits, counts, broken.operations, broken.details)
