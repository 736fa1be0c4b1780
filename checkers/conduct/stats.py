"""The checker `stats` reports statistics of a run, and certifies that the run was not vacuous.

A run in which nothing happened is trivially linearizable. So the verdict is `unknown` if any of
this evidence is missing:

* Every kind of operation that was invoked succeeded at least once. If the profile does not have the
  kind (`Permit.lacks`), the verdict is `permitted`.
* Enough changes were acknowledged, so that the target had something to lose.
* Every nemesis of the case had a measured effect on a node, unless a search chose the faults.
* The load was as requested, and operations overlapped (`checkers.conduct.load`).
* The run completed its final reads, and the target delivered a snapshot.

The verdict is never `invalid`. `details["certificate"]` is the short form to print, and
`details["rule"]` names the first missing piece of evidence.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from checkers.conduct.load import Load
from checkers.verdict.permitted import permit_of_rule, permitted_result
from checkers.verdict.sentences import seconds
from harness.case import Case
from harness.errors import counted, measured
from harness.ops import NEMESIS, CheckResult, History, Op, OpType, Pair, Verdict, error_code
from harness.permits import permits_of
from harness.plugins import Checker
from harness.timeline import Fault, faults_of
from harness.vocabularies.kinds import READS, kind_of

OK_MIN: Final = 10
"""A run with fewer successful operations proves nothing."""
OK_MUTATIONS_MIN: Final = 5
FAULTS_MAX: Final = 200
LEADERS_MAX: Final = 100
ERRORS_MAX: Final = 30
QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)
NS_PER_MS: Final = 1_000_000


class _Doubt(NamedTuple):
    rule: str
    text: str


class _InFlight:
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
        begun = bisect.bisect_right(self._begins, time_ns)
        return begun - bisect.bisect_left(self._ends, time_ns)


def _quantiles(latencies_ns: Sequence[int]) -> dict[str, float]:
    ordered = sorted(latencies_ns)
    return {f"p{q * 100:g}_ms": round(_ranked(ordered, q) / NS_PER_MS, 3) for q in QUANTILES}


def _ranked(ordered: Sequence[float], q: float) -> float:
    return ordered[max(0, -(-int(q * 1000) * len(ordered) // 1000) - 1)]


class _Counts:
    def __init__(self, history: History) -> None:
        phases = [(op.index, str(op.value.get("phase"))) for op in history.facts("phase")]
        starts = [index for index, _ in phases]
        self.by_f: dict[str, Counter[str]] = {}
        self.by_phase: dict[str, Counter[str]] = {}
        self.errors: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.effective: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        latencies: dict[str, list[int]] = {}
        for pair in history.pairs:
            f, kind = kind_of(pair.invoke), pair.type.value
            at = bisect.bisect_right(starts, pair.invoke.index) - 1
            phase = phases[at][1] if at >= 0 else "before"
            self.by_f.setdefault(f, Counter())[kind] += 1
            self.by_phase.setdefault(phase, Counter())[f"{f} {kind}"] += 1
            done = pair.completion
            if done is None:
                continue
            if done.error is not None:
                self.errors[f"{f} {kind} {error_code(done.error)}"] += 1
            value = done.value if isinstance(done.value, dict) else {}
            if pair.type is OpType.OK:
                latencies.setdefault(f, []).append(done.time - pair.invoke.time)
                rows = value.get("rows")
                refused = isinstance(rows, list | tuple) and "ok" not in rows
                self.effective[f] += not refused and value.get("result", "ok") == "ok"
            if "result" in value:
                self.results[f"{f} {value['result']}"] += 1
            if value.get("result", "ok") != "ok":
                self.refused[f] += 1
            elif pair.type is OpType.FAIL:
                self.failed[f] += 1
        self.latencies = {f: _quantiles(kept) for f, kept in sorted(latencies.items())}

    @property
    def refusals(self) -> dict[str, dict[str, float]]:
        """Map each operation kind to its refusals (results such as "exists") and failures (errors).

        `share` is the share of both together in all operations of the kind.
        """
        shares = {}
        for f, kinds in sorted(self.by_f.items()):
            total, refused, failed = sum(kinds.values()), self.refused[f], self.failed[f]
            share = round((refused + failed) / total, 3)
            shares[f] = {"refused": refused, "failed": failed, "of": total, "share": share}
        return shares

    @property
    def ok_mutations(self) -> int:
        """The number of acknowledged operations that changed the state of the target."""
        return sum(count for f, count in self.effective.items() if f not in READS)


NO_SNAPSHOT: Final = "the target's snapshot() returned nothing, so its final state is unchecked"
UNREAD: Final = "unread"  # the rule that all final reads must complete, which a permit may lift


class StatsChecker(Checker):
    """Reports counts and latencies, and checks that the run proved something."""

    api_version = 1
    name = "stats"
    doc = "statistics, and proof that operations succeeded and that faults had an effect"

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Return `valid` or `permitted`, or `unknown` with all missing pieces of evidence."""
        del time_limit_s
        counts = _Counts(history)
        permits = permits_of(history)
        lacking = {f: name for name, permit in permits.items() for f in permit.lacks}
        faults = faults_of(history.of_process(NEMESIS), most=None)
        in_flight = _InFlight(history.pairs)
        leaders = [op.value for op in history.leaders()]
        load = Load(history, case)
        doubts = [
            *_doubts_about_operations(counts, lacking),
            *_doubts_about_faults(case, faults, _undone(history, faults)),
            *(_Doubt(*doubt) for doubt in load.doubts()),
        ]
        unread = list(history.facts("unread"))
        unread_by = permit_of_rule(self.name, UNREAD, permits)
        if unread_by is None:
            doubts += map(_doubt_about_reads, unread)
        if any(True for _ in history.facts("interrupted")):
            doubts.insert(0, _Doubt("interrupted", "the user cut the run short"))
        snapshots = list(history.facts("snapshot"))
        if not doubts and not snapshots:
            doubts.append(_Doubt("unfinished", "the run ended before its final reads"))
        doubts += [_Doubt("no-snapshot", NO_SNAPSHOT) for op in snapshots if op.value is None]
        details = self._details(counts, faults, in_flight, leaders, case)
        details["certificate"] |= load.certificate()
        if doubts:
            more = len(doubts) - 1
            reason = doubts[0].text
            reason += f" (and {counted(more, 'more doubt')})" if more else ""
            text = tuple(f"{doubt.text[:1].upper()}{doubt.text[1:]}." for doubt in doubts)
            details["rule"] = doubts[0].rule
            return CheckResult(self.name, Verdict.UNKNOWN, reason, text, details=details)
        total = sum(sum(kinds.values()) for kinds in counts.by_f.values())
        reason = (
            f"{counted(total, 'operation')}, "
            f"{counted(counts.ok_mutations, 'acknowledged change')}, "
            f"{counted(len(faults), 'fault')}, "
            f"{_about_leaders(leaders)}"
        )
        result = CheckResult(self.name, Verdict.VALID, reason, details=details)
        refused: Counter[str] = Counter()
        for f, kinds in counts.by_f.items():
            if f in lacking and not kinds["ok"]:
                refused[lacking[f]] += sum(kinds.values())
        if unread_by is not None and unread:
            refused[unread_by] += len(unread)
        return permitted_result(result, permits, refused, (), details) if refused else result

    def _details(
        self,
        counts: _Counts,
        faults: Sequence[Fault],
        in_flight: _InFlight,
        leaders: list[Any],
        case: Case,
    ) -> dict[str, Any]:
        rows = [
            {
                "nemesis": fault.nemesis,
                "fault": fault.id,
                "targets": list(fault.targets),
                "begin_s": seconds(fault.start),
                "end_s": None if fault.end is None else seconds(fault.end),
                "bite": None if fault.bite is None else dict(fault.bite),
                **({"undone": True} if fault.undone else {}),
                "in_flight_begin": in_flight.at(fault.start),
                "in_flight_end": None if fault.end is None else in_flight.at(fault.end),
            }
            for fault in faults[:FAULTS_MAX]
        ]
        kinds: Counter[str] = Counter()
        for by_kind in counts.by_f.values():
            kinds.update(by_kind)
        return {
            "by_f": {f: dict(sorted(kinds.items())) for f, kinds in sorted(counts.by_f.items())},
            "by_phase": {
                phase: dict(sorted(kinds.items())) for phase, kinds in counts.by_phase.items()
            },
            "results": dict(sorted(counts.results.items())),
            "refusals": counts.refusals,
            "errors": dict(counts.errors.most_common(ERRORS_MAX)),
            "error_kinds": len(counts.errors),
            "latencies_ms": counts.latencies,
            "faults": rows,
            "faults_not_shown": max(0, len(faults) - FAULTS_MAX),
            "certificate": {
                "operations": dict(sorted(kinds.items())),
                "ok_by_kind": {f: n["ok"] for f, n in sorted(counts.by_f.items())},
                "ok_by_phase": {
                    phase: sum(n for kind, n in kinds.items() if kind.endswith(" ok"))
                    for phase, kinds in counts.by_phase.items()
                },
                "unknown_outcomes": kinds["info"],
                "acknowledged_changes": counts.ok_mutations,
                "refused_or_failed": {
                    f: f"{row['share']:.1%} ({row['refused']:g} refused, {row['failed']:g} failed)"
                    for f, row in counts.refusals.items()
                    if row["share"]
                },
                "faults_by_nemesis": {
                    nemesis: _summary([fault for fault in faults if fault.nemesis == nemesis])
                    for nemesis in sorted({*_planned(case), *(fault.nemesis for fault in faults)})
                },
                **_at_events(faults),
                "faults": [_line(row) for row in rows],
                "changes_of_leader": _leader_changes(leaders),
                "leaders": " ".join(
                    f"{leader.get('node')}@{leader.get('term')}" for leader in leaders[:LEADERS_MAX]
                ),
            },
        }


def _leader_changes(leaders: Sequence[Mapping[str, Any]]) -> int | str:
    count = max(0, len(leaders) - 1)
    if leaders and not any(leader.get("asked") for leader in leaders):
        return count
    return f"at least {count}" if count else "not observed"


def _about_leaders(leaders: Sequence[Mapping[str, Any]]) -> str:
    changes = _leader_changes(leaders)
    if changes == "not observed":
        return "leader changes not observed"
    return f"{changes} leader {'change' if len(leaders) == 2 else 'changes'}"


def _summary(faults: Sequence[Fault]) -> str:
    hit = [fault for fault in faults if fault.targets]
    bites = [fault for fault in hit if fault.bitten]
    unmeasured = sum(fault.bitten is None and not fault.undone for fault in hit)
    words = f"{len(faults)} injected, {len(hit)} with a target, {len(bites)} bit"
    words += f", {unmeasured} not measurable" if unmeasured else ""
    undone = sum(fault.undone for fault in hit)
    return words + (f", {undone} ended from outside" if undone else "")


def _at_events(faults: Sequence[Fault]) -> dict[str, str]:
    """Return the certificate's line about how late faults followed the events that trigger them."""
    after_ms = [fault.after_event_ms for fault in faults if fault.after_event_ms is not None]
    if not after_ms:
        return {}
    p95_ms = _ranked(sorted(after_ms), 0.95)
    struck = f"{counted(len(after_ms), 'fault')} struck, 95 % within {p95_ms:.1f} ms"
    return {"faults_at_events": f"{struck} of the event"}


def _line(row: Mapping[str, Any]) -> str:
    bite = row["bite"] or {}
    count = bite.get("count")
    did = "bite not measured" if count is None else measured(count, str(bite.get("unit", "")))
    did += ", ended early from outside" if "undone" in row else ""
    targets = ", ".join(row["targets"]) or "no node"
    end = "the end" if row["end_s"] is None else f"{row['end_s']} s"
    return (
        f"{row['nemesis']} on {targets} from {row['begin_s']} s to {end}: {did}; "
        f"{counted(row['in_flight_begin'], 'operation')} in flight at its start, "
        f"{row['in_flight_end'] or 0} at its end"
    )


def _doubts_about_operations(counts: _Counts, lacking: Mapping[str, str]) -> list[_Doubt]:
    doubts = []
    if not counts.by_f:
        return [_Doubt("no-operations", "no operation was invoked at all")]
    done = sum(kinds["ok"] for kinds in counts.by_f.values())
    if done < OK_MIN:
        text = f"only {counted(done, 'operation')} succeeded; fewer than {OK_MIN} prove nothing"
        doubts.append(_Doubt("few-operations", text))
    # An imported history has no phases, so it cannot lack operations during chaos.
    if any(phase != "before" for phase in counts.by_phase):
        chaos = counts.by_phase.get("chaos", Counter())
        done = sum(count for kind, count in chaos.items() if kind.endswith(" ok"))
        if done < OK_MIN:
            text = f"only {counted(done, 'operation')} succeeded during chaos: that proves nothing"
            doubts.append(_Doubt("few-operations", text))
    for f, kinds in sorted(counts.by_f.items()):
        if not kinds["ok"] and f not in lacking:
            text = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()) if count)
            doubts.append(_Doubt("never-succeeded", f"no {f!r} ever succeeded ({text})"))
    if counts.ok_mutations < OK_MUTATIONS_MIN:
        text = (
            f"acknowledged changes: {counts.ok_mutations}; at least {OK_MUTATIONS_MIN} are "
            "needed, or the target has nothing to lose"
        )
        doubts.append(_Doubt("few-changes", text))
    return doubts


def _planned(case: Case) -> list[str]:
    named = [*case.nemeses, *(fault.nemesis for fault in case.faults or ())]
    return [nemesis for nemesis in dict.fromkeys(named) if nemesis != "none"]


def _undone(history: History, faults: Sequence[Fault]) -> set[str]:
    """Return the ids of faults that the nemesis did not end itself. Such faults prove nothing."""
    ends = [op for op in history.facts("infrastructure") if op.value.get("undid")]
    return {fault.id for fault in faults if fault.undone} | {
        fault.id
        for fault in faults
        for op in ends
        if fault.kind == op.value["undid"]
        and op.value["node"] in fault.targets
        and fault.is_on(op.time, op.time)
    }


def _doubts_about_faults(
    case: Case, faults: Sequence[Fault], undone: AbstractSet[str]
) -> list[_Doubt]:
    """Return a doubt for each nemesis of the case that never had a measured effect."""
    doubts = []
    for nemesis in () if case.searched else _planned(case):
        of_nemesis = [fault for fault in faults if fault.nemesis == nemesis]
        hit = [fault for fault in of_nemesis if fault.targets and fault.id not in undone]
        unmeasured = sum(fault.bitten is None for fault in hit)
        if any(fault.bitten for fault in hit):
            continue
        if not of_nemesis:
            text = f"the nemesis {nemesis} was never injected"
        elif not hit:
            times = counted(len(of_nemesis), "time")
            text = f"the nemesis {nemesis} was injected {times}, but had no target"
            if any(fault.id in undone for fault in of_nemesis):
                text += ", or was undone from outside"
        elif not unmeasured:
            text = (
                f"the nemesis {nemesis} hit {counted(len(hit), 'time')} without measurable effect"
            )
        elif all(fault.heal is None for fault in hit if fault.bitten is None):
            text = f"the effect of {nemesis} was never measured: it was still active at the end"
        else:
            rest = len(hit) - unmeasured
            others = f", and {rest} of its faults had no measurable effect" if rest else ""
            text = f"the effect of {nemesis} was not measurable here{others}; start the link proxy "
            text += "with its metrics on, or use our own"
        doubts.append(_Doubt("no-bite", text))
    return doubts


def _doubt_about_reads(unread: Op) -> _Doubt:
    value = unread.value if isinstance(unread.value, dict) else {}
    text = f"{value.get('count', 'some')} of {value.get('of', 'all')} final reads were given up"
    return _Doubt(UNREAD, text)
