"""The checker `bounds` judges resource use and outages by limits that the target declares.

The snapshot contains the limits (`"bounds"`), so that a stored history can be judged again:

    limits    [{name, measure, of, limit, per, why}]; `per` is {unit: growth of the limit per unit}
    counters  {node: {name: number}} at the end of the run
    calls     {method: the number of calls that all nodes served}
    amounts   {unit: number}: further units for `per`
    quorum    the nodes of which a majority must be up to serve

| measure   | the number that is compared with the limit                                        |
|-----------|-----------------------------------------------------------------------------------|
| counter   | the counter named by `of`, of each node, once the target has settled              |
| memory    | the MiB of memory of each node's processes at the end of the run; if `of` is      |
|           | `any time`, at every measurement (`usage`)                                        |
| disk      | the MiB of each node's files, at every measurement                                |
| written   | the MiB that each node wrote in any minute, if measured                           |
| calls     | the calls of the method named by `of`                                             |
| elections | the number of terms for which the harness heard of a leader                       |
| leaders   | the number of nodes that announced themselves as leader in one term               |
| diverged  | the log positions at which replicas differ (`harness.run.divergence`)             |
| outage    | seconds without any answer during chaos; `of` is the kind of overlapping fault    |

The units are operation, fault, second, slow second, and the target's amounts. In a simulated world
that is N times slower than usual (`Session.patience`), a second has N - 1 slow seconds. For the
measure `written`, only the units of the same minute count, plus the operations of the previous
minute and faults that last into the minute. A node that was not measured is not judged, and the
result says so.

The limit of an outage is the sum of the limits of all faults that overlap the outage, plus the time
during which faults hit half of the quorum or the links of all clients. An outage that overlaps a
disturbance (of the harness, its host or its engine) does not count, unless the outage exceeds the
limit before or after the disturbance. For elections and calls, a disturbance counts as a fault, and
so does each second in which nodes starved.

The verdict is `unknown` if the history has no limits, or if a limit grows by a unit whose amount is
not known and the number is above the fixed part of the limit.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.conduct.voters import Voters
from checkers.verdict.disturbances import (
    STARVED_SHARE_MIN,
    TIMED,
    Disturbance,
    disturbances_of,
    excuses,
    weight,
)
from checkers.verdict.findings import Findings
from checkers.verdict.permitted import permitted_exits
from checkers.verdict.sentences import seconds
from harness.errors import counted
from harness.ops import NEMESIS, NS_PER_S, CheckResult, History, Op, OpType
from harness.permits import permits_of
from harness.plugins import Checker
from harness.timeline import ALL_CLIENTS, RESET, Fault, faults_of

MIB: Final = 1024 * 1024
MINUTE_NS: Final = 60 * NS_PER_S
HELD: Final = {"memory": ("memory_bytes", "of memory"), "disk": ("disk_bytes", "on its disk")}
"""For each measure: the field of a `usage` fact that contains the bytes, and words to print."""
UNITS: Final = {"memory": " MiB", "disk": " MiB", "written": " MiB", "outage": " s"}
CALM: Final = "none"
"""The value of `of` in the limit of outages that overlap no fault."""
UNFINISHED: Final = "the run ended before its final snapshot, which holds the limits"
SHOWN_MAX: Final = 10

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Ends:
    voters: Voters  # a majority of these nodes must be up; empty if the target declares none
    clients: float


@dataclass(frozen=True, slots=True)
class _Outage:
    begin: int
    end: int
    faults: tuple[Fault, ...]

    @property
    def length_s(self) -> float:
        return (self.end - self.begin) / NS_PER_S

    def hindered_s(self, ends: _Ends) -> float:
        """Return the seconds of the outage in which faults hit half of the quorum or all clients.

        If the target declares no quorum, every fault that has a duration counts.
        """
        lasting = [fault for fault in self.faults if fault.kind != RESET]
        voters = ends.voters.surely(self.begin, self.end)
        edges: set[float] = {self.begin, self.end}
        for fault in self.faults:
            edges.update((max(self.begin, fault.start), min(self.end, _end(fault))))
        hindered_ns = 0.0
        for begin, end in itertools.pairwise(sorted(edges)):
            on = [fault for fault in lasting if fault.start <= begin and end <= _end(fault)]
            nodes = {name for each in on if not each.clients_only for name in each.targets}
            unheard = {name for each in on for name in each.clients}
            hit = ends.voters.declared & nodes
            if on and (
                2 * len(hit) >= len(voters | hit)
                or ALL_CLIENTS in unheard
                or len(unheard) >= ends.clients
            ):
                hindered_ns += end - begin
        return hindered_ns / NS_PER_S


@dataclass(slots=True)
class _Run:
    """A history that is being judged, with the target's limits and the findings so far."""

    history: History
    declared: Json
    faults: Sequence[Fault]
    disturbances: Sequence[Disturbance]
    amounts: Mapping[str, float]
    findings: Findings
    at_rest: bool
    may_not_settle: bool
    """Whether the target is permitted never to settle, so that counters are not judged."""
    missing_since_ns: float
    """The time of a node's first permitted exit; the node stays down until all is healed."""
    unmeasured: list[str] = field(default_factory=list)
    """The names of limits that no node measures. For example, a simulation does not measure memory.
    """

    def bound(self, limit: Json, more: Mapping[str, float] | None = None) -> float:
        """Return the value of a limit, with its growth by the run's units and by `more`."""
        units = {**self.amounts, **(more or {})}
        per = (limit.get("per") or {}).items()
        return float(limit["limit"] + sum(share * units.get(unit, 0) for unit, share in per))

    def disturbed(self, limit: Json) -> float:
        """Return the value of a limit if each disturbance counts as a fault."""
        faults = len(self.faults) + weight(self.disturbances)
        return self.bound(limit, {"fault": faults})

    def hold(self, limit: Json, value: float, bound: float, what: str, *ops: int) -> None:
        name = str(limit["name"])
        self.findings.look(name)
        if value <= bound:
            return
        most = f"{bound:,.1f}".removesuffix(".0")
        above = f"{what}, above the limit of {most}{UNITS.get(limit['measure'], '')}"
        unknown = [unit for unit in limit.get("per") or {} if unit not in self.amounts]
        if unknown:
            grows = f"it grows with each {unknown[0]}, but the target did not report their number"
            self.findings.gap(f"{above}, but {grows}")
        else:
            self.findings.violate(name, f"{above}: {limit.get('why', '')}", *ops)

    def not_measured(self, what: str, measured: frozenset[str], limit: Json) -> None:
        if not measured:
            self.unmeasured.append(limit["name"])
            return
        usage = self.history.facts("usage")
        nodes = {node for op in usage for node in op.value.get(what, ())}
        self.findings.exempt(limit["name"], len(nodes - measured))


class BoundsChecker(Checker):
    """Checks elections, calls, outages and the nodes' resource use against the target's limits."""

    api_version = 1
    name = "bounds"
    doc = "elections, calls, outages and what nodes store stay within the target's limits"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del time_limit_s
        permits = permits_of(history)
        findings = Findings(self.name, permits)
        snapshots = [op.value for op in history.facts("snapshot")]
        declared = _declared(snapshots[-1]) if snapshots else {}
        if not declared:
            findings.gap("the target declared no limits" if snapshots else UNFINISHED)
            return findings.result("")
        faults = [f for f in faults_of(history.of_process(NEMESIS), most=None) if f.targets]
        settled = [bool(op.value.get("ok")) for op in history.facts("converged")]
        exits = permitted_exits(history, permits)
        run = _Run(
            history,
            declared,
            faults,
            disturbances_of(history),
            _amounts(history, faults, declared),
            findings,
            at_rest=bool(settled and settled[-1]) and not snapshots[-1].get("pending"),
            may_not_settle=any(
                "converged" in p.rules.get("liveness", ()) for p in permits.values()
            ),
            missing_since_ns=min(
                (op.time for op in history.facts("node-exit") if op.index in exits),
                default=math.inf,
            ),
        )
        for limit in declared["limits"]:
            measure = MEASURES.get(limit["measure"])
            if measure is not None:
                measure(run, limit)
            elif limit["measure"] != "outage":  # `_outages` judges these limits
                reason = f"the limit {limit['name']!r} has the unknown measure"
                findings.gap(f"{reason} {limit['measure']!r}")
        _outages(run, getattr(case, "concurrency", math.inf))
        return _result(run)


def _result(run: _Run) -> CheckResult:
    findings = run.findings
    if not findings.looked and not findings.gaps:
        findings.gap("no limit could be judged")
    held = counted(len(findings.looked), "limit")
    reason = f"{held} held in {counted(findings.looked.total(), 'check')}"
    if exempt := findings.exempted.total():
        reason += f"; {exempt} were not judged: the run did not settle, or they were not measured"
    if run.unmeasured:
        reason += f"; not measured: {', '.join(run.unmeasured)}"
    return findings.result(reason, {"unmeasured": run.unmeasured})


def _declared(snapshot: object) -> Json:
    bounds = snapshot.get("bounds") if isinstance(snapshot, Mapping) else None
    return bounds if isinstance(bounds, Mapping) and bounds.get("limits") else {}


def _end(fault: Fault) -> float:
    return math.inf if fault.end is None else fault.end


def _amounts(history: History, faults: Sequence[Fault], declared: Json) -> dict[str, float]:
    last_s = (history[-1].time if len(history) else 0) / NS_PER_S
    patience = max((op.value.get("patience", 1.0) for op in history.facts("live")), default=1.0)
    return {str(unit): number for unit, number in (declared.get("amounts") or {}).items()} | {
        "operation": len(history.pairs),
        "fault": len(faults),
        "second": last_s,
        "slow second": last_s * (patience - 1),
    }


def _elections(run: _Run, limit: Json) -> None:
    terms = {op.value.get("term"): op.index for op in run.history.facts("leader")}
    what = f"{counted(len(terms), 'leader was', 'leaders were')} elected"
    run.hold(limit, len(terms), run.disturbed(limit), what, *list(terms.values())[:SHOWN_MAX])


def _leaders(run: _Run, limit: Json) -> None:
    terms: dict[int, dict[str, int]] = {}
    for op in run.history.facts("leader"):
        # A polled leader does not count: the answer may combine one node's leader with another
        # node's term.
        if not op.value.get("asked"):
            terms.setdefault(op.value.get("term", 0), {})[op.value["node"]] = op.index
    for term, nodes in terms.items():
        if term:
            what = f"{' and '.join(nodes)} led in term {term}"
            run.hold(limit, len(nodes), run.bound(limit), what, *nodes.values())


def _diverged(run: _Run, limit: Json) -> None:
    places = list(run.history.facts("divergence"))
    what = f"Replicas differed in {counted(len(places), 'place')}"
    indices = [op.index for op in places[:SHOWN_MAX]]
    run.hold(limit, len(places), run.bound(limit), what, *indices)


def _calls(run: _Run, limit: Json) -> None:
    count = (run.declared.get("calls") or {}).get(limit["of"], 0)
    what = f"{limit['of']} was called {counted(count, 'time')}"
    run.hold(limit, count, run.disturbed(limit), what)


def _memory(run: _Run, limit: Json) -> None:
    if limit["of"]:
        _held(run, limit)
        return
    looks = list(run.history.facts("memory"))
    if not looks:
        run.unmeasured.append(limit["name"])
    for op in looks:
        for node, held in op.value["bytes"].items():
            if held is None:
                run.findings.exempt(limit["name"])
            else:
                what = f"{node} ended with {held / MIB:.0f} MiB of memory"
                run.hold(limit, held / MIB, run.bound(limit), what, op.index)


def _held(run: _Run, limit: Json) -> None:
    what, words = HELD[limit["measure"]]
    largest: dict[str, tuple[float, Op]] = {}
    for op in run.history.facts("usage"):
        for node, held in op.value.get(what, {}).items():
            if held is not None and (node not in largest or held > largest[node][0]):
                largest[node] = (held, op)
    for node, (held, op) in sorted(largest.items()):
        text = f"{node} held {held / MIB:.1f} MiB {words} at {seconds(op.time)} s"
        run.hold(limit, held / MIB, run.bound(limit), text, op.index)
    run.not_measured(what, frozenset(largest), limit)


def _written(run: _Run, limit: Json) -> None:
    """Judge the MiB that each node wrote between two measurements at most a minute apart.

    A number below the previous number comes from a new process, which started at zero.
    """
    called = sorted(pair.invoke.time for pair in run.history.pairs)
    by_node: dict[str, list[tuple[Op, int]]] = {}
    for op in run.history.facts("usage"):
        for node, written in op.value.get("written_bytes", {}).items():
            if written is not None:
                by_node.setdefault(node, []).append((op, written))

    def bound(begin: int, end: int) -> float:
        units = {
            "operation": bisect_right(called, end) - bisect_left(called, begin - MINUTE_NS),
            "fault": sum(fault.start < end and _end(fault) > begin for fault in run.faults),
            "second": (end - begin) / NS_PER_S,
        }
        return run.bound(limit, units) * max(1.0, (end - begin) / MINUTE_NS)

    for node, looks in sorted(by_node.items()):
        total, totals, first = 0, [0], 0
        for (_, before), (_, after) in itertools.pairwise(looks):
            total += after - before if after >= before else after
            totals.append(total)
        for last in range(1, len(looks)):
            end = looks[last][0]
            while first < last - 1 and end.time - looks[first][0].time > MINUTE_NS:
                first += 1
            begin, value = looks[first][0], (totals[last] - totals[first]) / MIB
            when = f"from {seconds(begin.time)} to {seconds(end.time)} s"
            text = f"{node} wrote {value:.1f} MiB {when}"
            run.hold(limit, value, bound(begin.time, end.time), text, begin.index, end.index)
    several = frozenset(node for node, looks in by_node.items() if len(looks) > 1)
    run.not_measured("written_bytes", several, limit)


def _counters(run: _Run, limit: Json) -> None:
    if not run.at_rest:
        if not run.may_not_settle:
            run.findings.exempt(limit["name"])
        return
    for node, counters in sorted((run.declared.get("counters") or {}).items()):
        value = counters.get(limit["of"])
        if value is not None:
            what = f"{node} ended with {value} {limit['of']}"
            run.hold(limit, value, run.bound(limit), what)


MEASURES: Final[Mapping[str, Callable[[_Run, Json], None]]] = {
    "counter": _counters,
    "memory": _memory,
    "disk": _held,
    "written": _written,
    "calls": _calls,
    "elections": _elections,
    "leaders": _leaders,
    "diverged": _diverged,
}


def _answers(history: History) -> Iterator[int]:
    """Yield the times of answers (`ok` and refusals) that only a working target gives."""
    for pair in history.pairs:
        done = pair.completion
        if done is None:
            continue
        refused = done.type is OpType.FAIL and isinstance(done.value, Mapping)
        if done.type is OpType.OK or (refused and done.value.get("result") is not None):
            yield done.time


def _outages(run: _Run, clients: float) -> None:
    declared = run.declared["limits"]
    limits = {str(each["of"]): each for each in declared if each["measure"] == "outage"}
    if not limits:
        return
    quorum = frozenset(run.declared.get("quorum") or ())
    ends = _Ends(Voters(run.history, quorum), clients)
    phases = {op.value.get("phase"): op.time for op in run.history.facts("phase")}
    end = phases.get("heal-core", run.history[-1].time)
    times = sorted(time for time in _answers(run.history) if time < end)
    shortest = min(limit["limit"] for limit in limits.values()) * NS_PER_S
    for before, after in itertools.pairwise([*times, end]):
        if after - before <= shortest:
            run.findings.look("outages")
            continue
        met = tuple(f for f in run.faults if f.start < after and _end(f) > before)
        _hold_outage(_Outage(before, after, met), limits, ends, run)


def _hold_outage(outage: _Outage, limits: Mapping[str, Json], ends: _Ends, run: _Run) -> None:
    """Judge the length of an outage.

    The limit is the sum of the limits of all overlapping faults, plus the time in which faults hit
    half of the quorum or all clients.
    """
    kinds = [fault.kind for fault in outage.faults] or [CALM]
    if any(kind not in limits for kind in kinds):
        return  # the target promises nothing during this kind of fault
    promised = [limits[kind]["limit"] for kind in kinds]
    bound = sum(promised) + outage.hindered_s(ends)
    limit = limits[max(kinds, key=lambda kind: limits[kind]["limit"])]
    met = f" during {', '.join(dict.fromkeys(kinds))}" if outage.faults else " without any fault"
    when = f"from {seconds(outage.begin)} to {seconds(outage.end)} s"
    what = f"No client was served {when}{met}"
    if outage.length_s > bound:
        if outage.end > run.missing_since_ns:
            run.findings.exempt("outages")
            return
        # Some disturbances have no known start, so they may explain an outage at any time.
        untimed = [each for each in run.disturbances if each.kind not in TIMED]
        tolerated_s = min(STARVED_SHARE_MIN * min(promised), outage.length_s - bound)
        reasons = untimed or excuses(
            run.disturbances, outage.begin, outage.end, bound, tolerated_s, at_end=False
        )
        if reasons:
            run.findings.gap(f"{what}, but {reasons[0].text}")
            return
    indices = (fault.begin.index for fault in outage.faults)
    run.hold(limit, outage.length_s, bound, what, *indices)
