"""The liveness checker judges whether a healed target serves again, and then settles.

The harness records whether the target served again (the fact `live`) and settled (`converged`).
This checker judges both facts.

If a time bound was exceeded, the verdict is never `valid`. It is `invalid` only if the harness
checked again after the bound, at a node that had to serve, and no disturbance excuses the delay
(`checkers.verdict.disturbances`). It is `unknown` if the run ended before the facts were recorded,
or if the target refused the probe because of its declared limits.

It is `permitted` if the delay came from nodes that had ended in a way that the profile permits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from checkers.catalog.invariants.refusals import demanded_refusals
from checkers.verdict.disturbances import (
    STARVED_SHARE_MIN,
    Disturbance,
    citation,
    disturbances_of,
    excuses,
)
from checkers.verdict.permitted import gone_nodes, permit_rules, permitted_result
from harness.errors import listed
from harness.ops import NS_PER_S, CheckResult, History, Op, Verdict, worst
from harness.permits import permits_of
from harness.plugins import Checker

WORDS_MAX = 20
NAMES_MAX: Final = 6
ID_CHARS: Final = 6
_NAME: Final = re.compile(r"\b[0-9a-f]{32}\b|\b[a-z]+[0-9]+\b")
"""Matches ids and the names of nodes and tables. Problems that differ only in these parts are shown
together.
"""


class _Promise(msgspec.Struct, frozen=True):
    """A promise of the target, the fact that records its outcome, and words for both outcomes.

    `open_field` is the field of the fact that lists everything that was still missing.
    """

    fact: str
    open_field: str
    kept: str
    broken: str


PROMISES: Final = (
    _Promise("live", "missing", "served again", "did not succeed again"),
    _Promise("converged", "pending", "settled", "was still open"),
)


class _Finding(msgspec.Struct, frozen=True):
    verdict: Verdict
    text: str | None = None


def _list(words: object) -> str:
    if not isinstance(words, list | tuple) or not words:
        return "nothing in particular"
    texts = [str(word) for word in words]
    more = f" and {len(texts) - WORDS_MAX} more" if len(texts) > WORDS_MAX else ""
    between = "; " if any("," in text for text in texts) else ", "
    return between.join(texts[:WORDS_MAX]) + more


def _grouped(problems: object) -> list[str]:
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for problem in map(str, problems if isinstance(problems, list | tuple) else ()):
        groups.setdefault(tuple(_NAME.split(problem)), []).append(_NAME.findall(problem))
    return [_as_one(parts, names) for parts, names in groups.items()]


def _as_one(parts: Sequence[str], problems: Sequence[Sequence[str]]) -> str:
    text = parts[0]
    for names, part in zip(zip(*problems, strict=True), parts[1:], strict=True):
        several = sorted(set(names), key=lambda name: (len(name), name))
        if len(several) > 1:
            short = [name if len(name) <= ID_CHARS else f"{name[:ID_CHARS]}…" for name in several]
            text += ("" if text else "each of ") + listed(short, limit=NAMES_MAX)
        else:
            text += several[0]
        text += part
    return f"{text} ({len(problems)} in all)" if len(problems) > 1 else text


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


class LivenessChecker(Checker):
    """Checks that the target serves once a quorum is healed, and settles once all is healed."""

    api_version = 1
    name = "liveness"
    doc = "a healed quorum serves within its bound, and a fully healed target settles"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case, time_limit_s
        disturbances = disturbances_of(history)
        permits = permits_of(history)
        counts: Counter[str] = Counter()
        findings: list[_Finding] = []
        operations: list[int] = []
        details: dict[str, Any] = {}
        for promise in PROMISES:
            op = next(iter([*history.facts(promise.fact)][::-1]), None)
            if op is None or not isinstance(op.value, dict) or "ok" not in op.value:
                text = f"The run ended before it was known whether the target {promise.kept}."
                findings.append(_Finding(Verdict.UNKNOWN, text))
                continue
            details[promise.fact] = {
                name: op.value.get(name) for name in ("ok", "took_s", "bound_s")
            }
            judged = _judge(promise, op, disturbances)
            if judged.verdict is Verdict.INVALID and (kind := _demanded(promise, op, history)):
                text = f"{judged.text} It refused to {kind} because of its own limits."
                judged = _Finding(Verdict.UNKNOWN, text)
            gone = gone_nodes(history, permits, before=op.index)
            missing = _needed(promise, op) & set(gone)
            silent = promise.fact == "live" or missing == _needed(promise, op)
            if not op.value["ok"] and missing and silent:
                counts.update(gone[node][0] for node in sorted(missing))
                judged = _Finding(Verdict.PERMITTED, judged.text)
            findings.append(judged)
            if judged.verdict is not Verdict.VALID:
                operations.append(op.index)
        verdict = worst(finding.verdict for finding in findings)
        texts = tuple(finding.text for finding in findings if finding.text is not None)
        if verdict is Verdict.VALID:
            live, rest = details["live"], details["converged"]
            reason = f"live after {_s(live)} and at rest after {_s(rest)}"
        else:
            # The reason comes from the worst finding, which need not be the first finding in the
            # run.
            at = next(n for n, finding in enumerate(findings) if finding.verdict is verdict)
            reason = findings[at].text or ""
            details["rule"] = PROMISES[at].fact
        if verdict is Verdict.INVALID:
            details["by_invariant"] = {
                promise.fact: 1
                for promise, finding in zip(PROMISES, findings, strict=True)
                if finding.verdict is verdict
            }
        result = CheckResult(self.name, verdict, reason, texts, tuple(operations), details)
        if verdict is Verdict.PERMITTED:
            return permitted_result(result, permits, counts, operations, details)
        return permit_rules(result, permits)


def _judge(promise: _Promise, op: Op, disturbances: tuple[Disturbance, ...]) -> _Finding:
    value: Mapping[str, Any] = op.value
    if (vacuous := _vacuous(promise, value)) is not None:
        return _Finding(Verdict.UNKNOWN, vacuous)
    took_s, bound_s = _number(value.get("took_s")), _number(value.get("bound_s"))
    late = took_s is not None and bound_s is not None and took_s > bound_s
    if value["ok"] and not late:
        return _Finding(Verdict.VALID)
    core = f" (with {_list(value['core'])} healed)" if value.get("core") else ""
    if value["ok"]:
        text = (
            f"The target was seen to have {promise.kept} after {took_s:.1f} s of healing{core}; "
            f"the bound is {bound_s:g} s"
        )
    else:
        text = (
            f"Within {value.get('bound_s')} s of healing{core} this {promise.broken}: "
            f"{_list(_grouped(value.get(promise.open_field)))}"
        )
    begin_ns = op.time - int((took_s or 0.0) * NS_PER_S)
    tolerated_s = STARVED_SHARE_MIN * (bound_s or 0.0)
    reasons = excuses(disturbances, begin_ns, op.time, bound_s, tolerated_s, at_end=True)
    if reasons:
        cited = citation(reasons)
        return _Finding(Verdict.UNKNOWN, f"{text}. That proves nothing: {cited}.")
    if value["ok"]:
        return _Finding(
            Verdict.UNKNOWN, f"{text}. It may have done so earlier, when the harness did not check."
        )
    if (unasked := _unasked(value)) is not None:
        return _Finding(Verdict.UNKNOWN, f"{text}. {unasked}")
    return _Finding(Verdict.INVALID, f"{text}.")


def _vacuous(promise: _Promise, value: Mapping[str, Any]) -> str | None:
    if promise.fact != "live":
        return None
    if value.get("core") == []:
        return "The target's core() is empty, so no node had to serve."
    if value.get("kinds") == []:
        return "The workload's probe() has no operations, so the healed core was not tested."
    return None


_SILENT: Final = " does not answer"


def _needed(promise: _Promise, op: Op) -> set[str]:
    """Return the nodes without which the target cannot keep a promise."""
    names = op.value.get("core" if promise.fact == "live" else promise.open_field)
    lines = [str(line) for line in names] if isinstance(names, list | tuple) else []
    if promise.fact == "live":
        return set(lines)
    nodes = {line.removesuffix(_SILENT) for line in lines}
    return nodes if all(line.endswith(_SILENT) for line in lines) else set()


def _demanded(promise: _Promise, op: Op, history: History) -> str | None:
    """Return the first kind of operation that failed, if the target refused it by its own limits.

    Later kinds are not asked about, since they depend on the first.
    """
    missing = op.value.get(promise.open_field)
    if promise.fact != "live" or not isinstance(missing, list | tuple) or not missing:
        return None
    begin_ns = op.time - int((_number(op.value.get("took_s")) or 0.0) * NS_PER_S)
    first = str(missing[0])
    return first if first in demanded_refusals(history, begin_ns) else None


def _unasked(value: Mapping[str, Any]) -> str | None:
    """Return a sentence if a failed probe proves nothing; `None` if it counts.

    A failed probe proves nothing if the client broke its contract, or if it asked none of the nodes
    that had to serve after the bound.
    """
    asked, core = value.get("asked_late"), value.get("core")
    breach = value.get("breach")
    if isinstance(breach, str) and breach:
        return f"The target's client broke its contract and did not report on the core: {breach}."
    if not isinstance(asked, list) or not isinstance(core, list) or not value.get("rest"):
        return None
    if any(node in core for node in asked):
        return None
    if not asked:
        return "The client did not report which nodes it asked, and some nodes are not in the core."
    return f"After the bound only nodes outside the core were asked: {_list(asked)}."


def _s(fact: dict[str, Any]) -> str:
    took, bound = fact["took_s"], fact["bound_s"]
    if not isinstance(took, int | float):
        return "an unknown time"
    return f"{took:.1f} s of {bound:g} s" if isinstance(bound, int | float) else f"{took:.1f} s"
