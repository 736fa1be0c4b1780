"""What a run really did, and whether that is enough to mean anything.

The anti-vacuity certificate: operations that succeeded, by kind and phase; operations in flight at
each edge of a fault; what each fault really hit; elections held. Too little of these is `unknown`
with the reason, never a green tick: harnesses whose nemesis never ran, or whose clients never got
through, have stayed green for weeks (cockroach PR 24514, etcd issue 21033).
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from harness.case import Case
from harness.ops import NEMESIS, CheckResult, History, Op, OpType, Pair, Verdict

__all__ = ["OK_MIN", "StatsChecker", "quantile_ns"]

OK_MIN: Final = 10
"""A run with fewer successful operations proves nothing."""
ERROR_KINDS_MAX: Final = 50
FAULTS_MAX: Final = 1000


class StatsChecker:
    """Counts, and refuses to call a vacuous run valid."""

    api_version: ClassVar[int] = 1
    name: ClassVar[str] = "stats"
    doc: ClassVar[str] = "statistics, and the certificate that the run was not vacuous"

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Valid or unknown; never invalid."""
        del time_limit_s
        pairs = history.pairs
        faults = _faults(history)
        reasons = [*_thin_operations(pairs), *_thin_faults(faults, case, history)]
        certificate = _certificate(history, pairs, faults)
        done = sum(1 for pair in pairs if pair.type is OpType.OK)
        return CheckResult(
            self.name,
            Verdict.UNKNOWN if reasons else Verdict.VALID,
            reasons[0] if reasons else f"{done} of {len(pairs)} operations ok",
            explanation=tuple(reasons),
            details={"certificate": certificate, **_statistics(pairs)},
        )


# --- what is too little ----------------------------------------------------------------------


def _thin_operations(pairs: Sequence[Pair]) -> list[str]:
    invoked = Counter(pair.invoke.f for pair in pairs)
    done = Counter(pair.invoke.f for pair in pairs if pair.type is OpType.OK)
    reasons = []
    if sum(done.values()) < OK_MIN:
        reasons.append(
            f"only {sum(done.values())} operations succeeded; fewer than {OK_MIN} prove nothing"
        )
    for f, count in sorted(invoked.items()):
        if not done[f]:
            reasons.append(f"no {f} of {count} ever succeeded, so nothing is known about it")
    return reasons


def _thin_faults(faults: list[dict[str, Any]], case: Case, history: History) -> list[str]:
    reasons = []
    planned = list(dict.fromkeys([*case.nemeses, *(fault.nemesis for fault in case.faults or ())]))
    for nemesis in planned:
        if nemesis == "none":
            continue
        mine = [fault for fault in faults if fault["nemesis"] == nemesis]
        hits = [fault for fault in mine if fault["targets"]]
        bites = [fault["bite"] for fault in hits if fault["bite"] is not None]
        if not hits:
            reasons.append(f"the nemesis {nemesis} never hit anything ({len(mine)} tries)")
        elif not any(count is None or count > 0 for count in bites):
            reasons.append(f"no fault of {nemesis} had any effect: nothing was dropped or stopped")
        elif all(count is None for count in bites):
            reasons.append(
                f"what {nemesis} dropped could not be measured here; start the link proxy with its "
                "metrics on, or use our own"
            )
    if not any(True for _ in history.facts("snapshot")) and not reasons:
        reasons.append("the run ended before its final reads")
    return reasons


# --- what happened ---------------------------------------------------------------------------


def _faults(history: History) -> list[dict[str, Any]]:
    """One entry a fault: when, on whom, and what it did (`bite` is `None` if it never healed)."""
    found: dict[str, dict[str, Any]] = {}
    for op in history.of_process(NEMESIS):
        value = op.value if isinstance(op.value, dict) else {}
        name = str(value.get("fault", op.index))
        if value.get("action") == "inject":
            found[name] = {
                "nemesis": op.f,
                "targets": list(value.get("targets", ())),
                "note": value.get("note", ""),
                "from_ns": op.time,
                "to_ns": None,
                "bite": None,
                "unit": "",
            }
        elif name in found:
            bite = value.get("bite") or {}
            found[name] |= {
                "to_ns": op.time,
                "bite": bite.get("count"),
                "unit": bite.get("unit", ""),
            }
    return list(found.values())


def _certificate(
    history: History, pairs: Sequence[Pair], faults: list[dict[str, Any]]
) -> dict[str, Any]:
    leaders = list(history.facts("leader"))
    edges = _Flights(pairs)
    lines = []
    for fault in faults[:FAULTS_MAX]:
        hit = "nothing" if not fault["targets"] else ", ".join(fault["targets"])
        end_ns = fault["to_ns"]
        effect = "not measured" if fault["bite"] is None else f"{fault['bite']} {fault['unit']}"
        until = "the end" if end_ns is None else f"{end_ns / 1e9:.1f} s"
        lines.append(
            f"{fault['nemesis']} on {hit} from {fault['from_ns'] / 1e9:.1f} s to {until}: {effect} "
            f"hit, {edges.at(fault['from_ns'])} ops in flight at its start, "
            f"{edges.at(end_ns) if end_ns is not None else 0} at its end"
        )
    return {
        "ok_by_kind": dict(sorted(_ok(pairs).items())),
        "ok_by_phase": _ok_by_phase(history, pairs),
        "unknown_outcomes": sum(1 for pair in pairs if pair.type is OpType.INFO),
        "leader_changes": max(0, len(leaders) - 1),
        "leaders": " ".join(f"{op.value['node']}@{op.value['term']}" for op in leaders[:100]),
        "faults": lines,
    }


def _ok(pairs: Iterable[Pair]) -> Counter[str]:
    return Counter(pair.invoke.f for pair in pairs if pair.type is OpType.OK)


def _ok_by_phase(history: History, pairs: Sequence[Pair]) -> dict[str, int]:
    phases = [(op.time, str(op.value["phase"])) for op in history.facts("phase")]
    starts = [time for time, _ in phases]
    counts: dict[str, int] = {name: 0 for _, name in phases if name not in {"setup", "converge"}}
    for pair in pairs:
        if pair.completion is None or pair.type is not OpType.OK or not phases:
            continue
        position = bisect.bisect_right(starts, pair.completion.time) - 1
        name = phases[max(0, position)][1]
        counts[name] = counts.get(name, 0) + 1
    return counts


class _Flights:
    """How many operations were in flight at a moment."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._calls = sorted(pair.invoke.time for pair in pairs)
        self._returns = sorted(
            pair.completion.time for pair in pairs if pair.completion is not None
        )

    def at(self, time_ns: int) -> int:
        """Invoked at or before `time_ns` and not completed by then."""
        begun = bisect.bisect_right(self._calls, time_ns)
        return begun - bisect.bisect_right(self._returns, time_ns)


def quantile_ns(ordered: Sequence[int], share: float) -> int:
    """The nearest-rank quantile of a sorted, non-empty sequence, in its own unit."""
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered) + 0.999999) - 1))]


def _statistics(pairs: Sequence[Pair]) -> dict[str, Any]:
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    latencies: dict[str, list[int]] = defaultdict(list)
    errors: Counter[str] = Counter()
    for pair in pairs:
        by_kind[pair.invoke.f][pair.type.value] += 1
        completion: Op | None = pair.completion
        if completion is None:
            continue
        if pair.type is OpType.OK:
            latencies[pair.invoke.f].append(completion.time - pair.invoke.time)
        if completion.error:
            errors[completion.error.split(":")[0]] += 1
    latency_ms = {}
    for f, values in sorted(latencies.items()):
        values.sort()
        latency_ms[f] = {
            f"p{round(share * 100)}": quantile_ns(values, share) / 1e6
            for share in (0.5, 0.95, 0.99, 1.0)
        }
    return {
        "by_kind": {f: dict(sorted(counts.items())) for f, counts in sorted(by_kind.items())},
        "errors": dict(
            sorted(errors.items(), key=lambda item: (-item[1], item[0]))[:ERROR_KINDS_MAX]
        ),
        "latency_ms": latency_ms,
    }
