"""Statistics, and the certificate that a run was not vacuous.

A run in which nothing happened is linearizable. So this checker asks for evidence, and says
`unknown` with the reason where it is missing:

* every kind of operation that was invoked succeeded at least once;
* enough mutations were acknowledged to have anything to lose;
* every nemesis of the case hit somebody at least once, and its bite was
  not nothing (packets dropped, a process stopped); one that nobody could measure is not assumed;
* the run came to its final reads.

It never says `invalid`. Counts, latencies, faults with the operations in flight at their edges, and
changes of leader go into `details`; `details["certificate"]` is the short form to print.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from checkers._sentences import seconds
from harness.ops import NEMESIS, CheckResult, History, Op, OpType, Pair, Verdict

__all__ = ["StatsChecker"]

READS: Final = frozenset(
    {
        "get",
        "list",
        "locate",
        "is-create-done",
        "is-alter-done",
        "read",
        "txn r",
    }
)
OK_MIN: Final = 10
"""A run with fewer successful operations proves nothing."""
OK_MUTATIONS_MIN: Final = 5
FAULTS_MAX: Final = 200
LEADERS_MAX: Final = 100
ERRORS_MAX: Final = 30
QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)
NS_PER_MS: Final = 1_000_000


class _Planned(Protocol):
    @property
    def nemesis(self) -> str: ...


class _Case(Protocol):
    """The part of a case that matters here."""

    @property
    def nemeses(self) -> tuple[str, ...]: ...

    @property
    def faults(self) -> Sequence[_Planned] | None: ...


class _Fault:
    """One injected fault, with what is known about it."""

    def __init__(self, op: Op) -> None:
        self.nemesis = op.f
        self.id = str(op.value.get("fault"))
        self.targets = [str(target) for target in op.value.get("targets") or ()]
        self.begin = op.time
        self.end: int | None = None
        self.bite: Mapping[str, Any] | None = None

    @property
    def bitten(self) -> bool | None:
        """Whether it did anything; `None` where nobody could measure it."""
        count = None if self.bite is None else self.bite.get("count")
        return None if count is None else count > 0


def _faults(history: History) -> list[_Fault]:
    found: dict[str, _Fault] = {}
    for op in history.of_process(NEMESIS):
        if not isinstance(op.value, dict):
            continue
        if op.value.get("action") == "inject":
            fault = _Fault(op)
            found[fault.id] = fault
        elif op.value.get("action") == "heal":
            healed = found.get(str(op.value.get("fault")))
            if healed is not None:
                healed.end = op.time
                bite = op.value.get("bite")
                healed.bite = bite if isinstance(bite, dict) else None
    return list(found.values())


class _InFlight:
    """How many operations were open at a time; those that never completed stay open."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for pair in pairs:
            self._begins.append(pair.invoke.time)
            if pair.completion is not None:
                self._ends.append(pair.completion.time)
        self._begins.sort()
        self._ends.sort()

    def at(self, time_ns: int) -> int:
        """Operations invoked by then and not completed before."""
        begun = bisect.bisect_right(self._begins, time_ns)
        return begun - bisect.bisect_left(self._ends, time_ns)


def _quantiles(latencies_ns: Sequence[int]) -> dict[str, float]:
    """Nearest-rank quantiles in milliseconds."""
    ordered = sorted(latencies_ns)
    found = {}
    for q in QUANTILES:
        rank = max(0, -(-int(q * 1000) * len(ordered) // 1000) - 1)
        found[f"p{q * 100:g}_ms"] = round(ordered[rank] / NS_PER_MS, 3)
    return found


def _kind(op: Op) -> str:
    """The operation's `f`; transactions that only read are a kind of their own."""
    if op.f != "txn" or not isinstance(op.value, list):
        return op.f
    reads = all(isinstance(mop, list | tuple) and mop and mop[0] in ("r", ":r") for mop in op.value)
    return "txn r" if reads else op.f


def _error_kind(error: str) -> str:
    """The code before the text, so that kinds stay few."""
    return error.split(":", 1)[0].strip()[:80]


class _Counts:
    """Everything counted in one pass over the pairs."""

    def __init__(self, history: History) -> None:
        phases = [(op.index, str(op.value.get("phase"))) for op in history.facts("phase")]
        starts = [index for index, _ in phases]
        self.by_f: dict[str, Counter[str]] = {}
        self.by_phase: dict[str, Counter[str]] = {}
        self.errors: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.effective: Counter[str] = Counter()
        latencies: dict[str, list[int]] = {}
        for pair in history.pairs:
            f, kind = _kind(pair.invoke), pair.type.value
            at = bisect.bisect_right(starts, pair.invoke.index) - 1
            phase = phases[at][1] if at >= 0 else "before"
            self.by_f.setdefault(f, Counter())[kind] += 1
            self.by_phase.setdefault(phase, Counter())[f"{f} {kind}"] += 1
            done = pair.completion
            if done is None:
                continue
            if done.error is not None:
                self.errors[f"{f} {kind} {_error_kind(done.error)}"] += 1
            value = done.value if isinstance(done.value, dict) else {}
            if pair.type is OpType.OK:
                latencies.setdefault(f, []).append(done.time - pair.invoke.time)
                self.effective[f] += value.get("result", "ok") == "ok"
            if "result" in value:
                self.results[f"{f} {value['result']}"] += 1
        self.latencies = {f: _quantiles(found) for f, found in sorted(latencies.items())}

    @property
    def ok_mutations(self) -> int:
        """Acknowledged operations that changed something."""
        return sum(count for f, count in self.effective.items() if f not in READS)


class StatsChecker:
    """Counts, latencies, and whether the run was worth anything."""

    api_version = 1
    name = "stats"
    doc = "statistics, and proof that operations succeeded and faults did bite"

    def check(self, history: History, case: _Case, *, time_limit_s: float) -> CheckResult:
        """`valid` or, with every reason, `unknown`."""
        del time_limit_s
        counts = _Counts(history)
        faults = _faults(history)
        in_flight = _InFlight(history.pairs)
        leaders = [op.value for op in history.leaders()]
        doubts = [*_doubts_about_operations(counts), *_doubts_about_faults(case, faults)]
        if any(True for _ in history.facts("interrupted")):
            doubts.insert(0, "the user cut the run short")
        if not doubts and not any(True for _ in history.facts("snapshot")):
            doubts.append("the run ended before its final reads")
        details = self._details(counts, faults, in_flight, leaders, case)
        if doubts:
            reason = doubts[0] + (f" (and {len(doubts) - 1} more doubts)" if doubts[1:] else "")
            text = tuple(f"{doubt[:1].upper()}{doubt[1:]}." for doubt in doubts)
            return CheckResult(self.name, Verdict.UNKNOWN, reason, text, details=details)
        total = sum(sum(kinds.values()) for kinds in counts.by_f.values())
        reason = (
            f"{total} operations, {counts.ok_mutations} acknowledged changes, "
            f"{len(faults)} faults, "
            f"{_about_leaders(leaders)}"
        )
        return CheckResult(self.name, Verdict.VALID, reason, details=details)

    def _details(
        self,
        counts: _Counts,
        faults: list[_Fault],
        in_flight: _InFlight,
        leaders: list[Any],
        case: _Case,
    ) -> dict[str, Any]:
        rows = [
            {
                "nemesis": fault.nemesis,
                "fault": fault.id,
                "targets": fault.targets,
                "begin_s": seconds(fault.begin),
                "end_s": None if fault.end is None else seconds(fault.end),
                "bite": None if fault.bite is None else dict(fault.bite),
                "in_flight_begin": in_flight.at(fault.begin),
                "in_flight_end": None if fault.end is None else in_flight.at(fault.end),
            }
            for fault in faults[:FAULTS_MAX]
        ]
        kinds: Counter[str] = Counter()
        for by_kind in counts.by_f.values():
            kinds.update(by_kind)
        return {
            "by_f": {f: dict(sorted(found.items())) for f, found in sorted(counts.by_f.items())},
            "by_phase": {
                phase: dict(sorted(found.items())) for phase, found in counts.by_phase.items()
            },
            "results": dict(sorted(counts.results.items())),
            "errors": dict(counts.errors.most_common(ERRORS_MAX)),
            "error_kinds": len(counts.errors),
            "latencies_ms": counts.latencies,
            "faults": rows,
            "faults_not_shown": max(0, len(faults) - FAULTS_MAX),
            "certificate": {
                "operations": dict(sorted(kinds.items())),
                "ok_by_kind": {f: n["ok"] for f, n in sorted(counts.by_f.items())},
                "ok_by_phase": {
                    phase: sum(n for kind, n in found.items() if kind.endswith(" ok"))
                    for phase, found in counts.by_phase.items()
                },
                "unknown_outcomes": kinds["info"],
                "acknowledged_changes": counts.ok_mutations,
                "faults_by_nemesis": {
                    nemesis: _summary([fault for fault in faults if fault.nemesis == nemesis])
                    for nemesis in sorted({*_planned(case), *(fault.nemesis for fault in faults)})
                },
                "faults": [_line(row) for row in rows],
                "changes_of_leader": _leader_changes(leaders),
                "leaders": " ".join(
                    f"{leader.get('node')}@{leader.get('term')}" for leader in leaders[:LEADERS_MAX]
                ),
            },
        }


def _leader_changes(leaders: Sequence[Mapping[str, Any]]) -> int | str:
    """How many there were; where leaders are only asked for, how many at least."""
    count = max(0, len(leaders) - 1)
    if leaders and not any(leader.get("asked") for leader in leaders):
        return count
    return f"at least {count}" if count else "not observed"


def _about_leaders(leaders: Sequence[Mapping[str, Any]]) -> str:
    changes = _leader_changes(leaders)
    if changes == "not observed":
        return "changes of leader not observed"
    return f"{changes} change{'s' * (len(leaders) != 2)} of leader"


def _summary(faults: list[_Fault]) -> str:
    hit = [fault for fault in faults if fault.targets]
    bites = [fault for fault in hit if fault.bitten]
    unmeasured = sum(fault.bitten is None for fault in hit)
    words = f"{len(faults)} injected, {len(hit)} with a target, {len(bites)} bit"
    return f"{words}, {unmeasured} not measurable" if unmeasured else words


def _line(row: Mapping[str, Any]) -> str:
    bite = row["bite"] or {}
    count = bite.get("count")
    did = "bite not measured" if count is None else f"{count} {bite.get('unit', '')}".strip()
    targets = ", ".join(row["targets"]) or "nobody"
    end = "the end" if row["end_s"] is None else f"{row['end_s']} s"
    return (
        f"{row['nemesis']} on {targets} from {row['begin_s']} s to {end}: {did}; "
        f"{row['in_flight_begin']} operations in flight at its start, "
        f"{row['in_flight_end'] or 0} at its end"
    )


def _doubts_about_operations(counts: _Counts) -> list[str]:
    doubts = []
    if not counts.by_f:
        return ["no operation was invoked at all"]
    done = sum(kinds["ok"] for kinds in counts.by_f.values())
    if done < OK_MIN:
        doubts.append(f"only {done} operations succeeded; fewer than {OK_MIN} prove nothing")
    if any(phase != "before" for phase in counts.by_phase):  # a run of ours, not an import
        chaos = counts.by_phase.get("chaos", Counter())
        done = sum(count for kind, count in chaos.items() if kind.endswith(" ok"))
        if done < OK_MIN:
            doubts.append(f"only {done} operations succeeded during chaos: that proves nothing")
    for f, kinds in sorted(counts.by_f.items()):
        if not kinds["ok"]:
            shown = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()) if count)
            doubts.append(f"no {f!r} ever succeeded ({shown})")
    if any(f not in READS for f in counts.by_f) and counts.ok_mutations < OK_MUTATIONS_MIN:
        doubts.append(
            f"only {counts.ok_mutations} changes were acknowledged; at least {OK_MUTATIONS_MIN} "
            "are needed to have anything to lose"
        )
    return doubts


def _planned(case: _Case) -> list[str]:
    """The nemeses that the case names and those of its schedule, which may have been edited."""
    named = [*case.nemeses, *(fault.nemesis for fault in case.faults or ())]
    return [nemesis for nemesis in dict.fromkeys(named) if nemesis != "none"]


def _doubts_about_faults(case: _Case, faults: list[_Fault]) -> list[str]:
    doubts = []
    for nemesis in _planned(case):
        own = [fault for fault in faults if fault.nemesis == nemesis]
        hit = [fault for fault in own if fault.targets]
        measured = [fault for fault in hit if fault.bitten is not None]
        if not own:
            doubts.append(f"the nemesis {nemesis} was never injected")
        elif not hit:
            doubts.append(f"the nemesis {nemesis} was injected {len(own)} times but hit nobody")
        elif measured and len(measured) == len(hit) and not any(f.bitten for f in measured):
            doubts.append(f"the nemesis {nemesis} hit {len(hit)} times but did nothing measurable")
        elif not measured:
            doubts.append(
                f"what {nemesis} did could not be measured here; start the link proxy with its "
                "metrics on, or use our own"
            )
    return doubts
