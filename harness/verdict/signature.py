"""Computes the signature of a failed run: a short text, the same for all seeds that fail equally.

A signature has three parts (checker, rule, fault): `catalog-invariants · acknowledged · kill`. A
defect usually breaks one rule under one or two kinds of faults, but in many kinds of operations. So
the operations are not part of the signature. The text in a result has them as a fourth part, the
*shape*, and lists of failures count the shapes of each signature.

* The **rule** is the broken rule. Checkers name it in `details["rule"]`. For other checkers it is
  derived from the rest of the result, and finally from the words of its reason.
* The **fault** is a kind of fault. If faults were active at the last operation involved, it is the
  kind of the one that began last. If no fault was active, it is the kind of the last fault before.
* The **shape** is the kinds of the operations involved.

The operations involved are the first two that the checker names. A checker names the worst finding
first, and a contradiction needs two operations. Any further operations are consequences, whose
number differs from seed to seed.

Nothing in a signature may depend on the seed: no numbers, names, ids or times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.ops import NEMESIS, CheckResult, History, Op, Verdict, worst
from harness.timeline import faults_of

SEPARATOR: Final = " · "
AND: Final = "+"
NO_FAULT: Final = "no fault"
SIGNATURE: Final = "signature"
"""The key of the signature in the details of a result."""
PARTS: Final = 3
"""The number of parts of a signature. In results, the shape follows as a fourth part."""
SHAPES_SHOWN_MAX: Final = 3
INVOLVED_MAX: Final = 2
KINDS_MAX: Final = 6
RULE_CHARACTERS_MAX: Final = 60
_VARYING: Final = re.compile(
    r"""'[^']*'|"[^"]*"|“[^”]*”|\b[0-9a-f]{8,}\b|\b[a-z]+[0-9]+\b|[0-9][0-9.,]*"""
)
_CLAUSE: Final = re.compile(r"[:;(\n]|, |\. ")


class Failure(msgspec.Struct, frozen=True):
    """The worst finding of a failed run, for lists of runs."""

    checker: str
    reason: str
    signature: str


def sign(results: Iterable[CheckResult], history: History) -> tuple[CheckResult, ...]:
    """Return the results. Each failed result gets its signature in its details."""
    return tuple(_signed(result, history) for result in results)


def _signed(result: CheckResult, history: History) -> CheckResult:
    if result.verdict.holds:
        return result
    details = {**result.details, SIGNATURE: signature(result, history)}
    return msgspec.structs.replace(result, details=details)


def failure_of(results: Sequence[CheckResult]) -> Failure | None:
    """Return the worst finding in signed results (see `sign`); `None` if all results pass."""
    verdict = worst(result.verdict for result in results)
    if verdict.holds:
        return None
    for result in results:
        if result.verdict is verdict:
            text = result.details.get(SIGNATURE)
            name = text if isinstance(text, str) else _joined(result.checker, rule_of(result))
            # `run.json` is UTF-8, even if the target's answer is not.
            reason = result.reason.encode("utf-8", "backslashreplace").decode()
            return Failure(result.checker, reason, name)
    return Failure("", "no checker looked at it", "no checker")


def split(text: str) -> tuple[str, str]:
    """Split a signature with a shape into signature and shape.

    The shape is empty if the failure concerns no operation.
    """
    parts = text.split(SEPARATOR)
    return SEPARATOR.join(parts[:PARTS]), SEPARATOR.join(parts[PARTS:])


def shapes_text(counts: Counter[str]) -> str:
    """Return the most frequent shapes with their numbers of runs: `get 71, list 36`."""
    parts = [f"{shape} {count}" for shape, count in counts.most_common(SHAPES_SHOWN_MAX)]
    more = len(counts) - len(parts)
    return ", ".join([*parts, *([f"{more} more"] if more else [])])


def signature(result: CheckResult, history: History) -> str:
    """Return the signature of a failed result, with the shape."""
    ops = involved(result, history)
    kinds = sorted({f for op in ops for f in _kinds(op)})
    if not ops and result.verdict is not Verdict.INVALID:
        return _joined(result.checker, rule_of(result))  # there is no verdict on the whole run
    return _joined(
        result.checker,
        rule_of(result),
        _fault(history, ops) or NO_FAULT,
        AND.join(kinds[:KINDS_MAX]) + (f"{AND}…" if kinds[KINDS_MAX:] else ""),
    )


def begun_until(result: CheckResult, history: History) -> int | None:
    """Return how many operations began before or with the last operation that `result` involves.

    `None` if it involves no operation.
    """
    ops = involved(result, history)
    if not ops:
        return None
    last = max(op.index for op in ops)
    return sum(pair.invoke.index <= last for pair in history.pairs)


def _joined(*parts: str) -> str:
    text = SEPARATOR.join(part for part in parts if part)
    # only text that a UTF-8 file can contain
    return text.encode("utf-8", "backslashreplace").decode()


# --- which rule ----------------------------------------------------------------------------------


def rule_of(result: CheckResult) -> str:
    """Return the name of the broken rule, or of the obstacle to a verdict."""
    details = result.details
    rule = details.get("rule")
    if isinstance(rule, str) and rule:
        return rule[:RULE_CHARACTERS_MAX]
    for name in ("by_invariant", "anomalies"):
        value = details.get(name)
        if isinstance(value, Mapping) and value:
            return str(next(iter(value)))
    for fact, rule in (("live", "missing"), ("converged", "pending")):
        value = details.get(fact)
        if isinstance(value, Mapping) and value.get("ok") is False:
            return rule
    if isinstance(details.get("failure"), Mapping):
        return "no-order"
    return rule_of_words(result.reason)


def rule_of_words(reason: str) -> str:
    """Return the first clause of a reason, without parts that differ from seed to seed."""
    clause = _CLAUSE.split(_VARYING.sub("…", reason), maxsplit=1)[0].strip()
    return clause[:RULE_CHARACTERS_MAX] or "no reason given"


# --- which operations ----------------------------------------------------------------------------


def involved(result: CheckResult, history: History) -> list[Op]:
    """Return the invocations of the first client operations that a result lists.

    If the result lists none, return the first ops of the harness that it lists.
    """
    wanted = frozenset(result.operations)
    by_index = {op.index: op for op in history if op.index in wanted}
    for pair in history.pairs if wanted else ():
        if pair.completion is not None and pair.completion.index in wanted:
            by_index[pair.completion.index] = pair.invoke
    ops = {by_index[i].index: by_index[i] for i in result.operations if i in by_index}.values()
    return ([op for op in ops if op.is_client] or list(ops))[:INVOLVED_MAX]


def _kinds(op: Op) -> Sequence[str]:
    """Return the kind of a client's op, or the kinds that an op of the harness names as missing."""
    if op.is_client:
        return [op.f]
    missing: Any = op.value.get("missing") if isinstance(op.value, dict) else None
    return [str(f) for f in missing] if isinstance(missing, list) else []


# --- which faults --------------------------------------------------------------------------------


def _fault(history: History, ops: Sequence[Op]) -> str:
    """Return the kind of the fault that was active at the last of `ops`.

    If none was active, it is the last fault before; empty if no fault had begun. Without ops, the
    fault at the end of the run counts.
    """
    if not len(history):
        return ""
    at = max((op.time for op in ops), default=history[-1].time)
    begun = [
        (fault.end is None or at < fault.end, fault.start, fault.kind)
        for fault in faults_of(history.of_process(NEMESIS), most=None)
        if fault.targets and fault.start <= at
    ]
    return max(begun)[-1] if begun else ""
