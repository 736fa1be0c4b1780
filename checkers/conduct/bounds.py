"""Bounds: what a target may use and how long it may be away, by limits that it declares itself.

The snapshot carries them (`"bounds"`), so that a stored history can be judged again:

    limits    [{name, measure, of, limit, per, why}]; the limit grows by `per`: {unit: share}
    counters  {node: {name: number}} at the end of the run
    calls     {method: how often all nodes served it}
    amounts   {unit: number}: further units for `per`
    quorum    the nodes of which a majority must be up to serve

| measure   | what is held against the limit                                                    |
|-----------|-----------------------------------------------------------------------------------|
| counter   | the counter `of`, of each node, once all has settled                              |
| memory    | the MiB that each node's processes hold at the end, or with `of` = `any time`     |
|           | whenever that was measured (`usage`), where it is                                 |
| disk      | the MiB that each node's files hold, whenever that was measured                   |
| written   | the MiB that each node wrote in any minute, where that is measured                |
| calls     | the calls of the method `of`                                                      |
| elections | the terms in which a leader was heard of                                          |
| leaders   | the nodes that announced to lead in one term                                      |
| diverged  | places of a group of which replicas told differently (`harness.run.divergence`)      |
| outage    | seconds without any answer in chaos; `of` is the kind of the faults that it meets |

Units: operation, fault, second, and the target's amounts. For what is written in a minute, those of
that minute: operations, also of the minute before, since what they asked for may come late; faults,
if they last into it. A node that nobody measured is not judged, and that is said.

An outage may take the limits of all the faults that it meets together, and the time for which half
of the quorum at once, or the links of all clients, were hit. One that meets a disturbance, by the
harness, its host or its engine, is not held against the target, unless it is known when that was,
and the limit passed before or after it; for elections and calls a disturbance counts as a fault,
and each second in which nodes starved as one.
A limit that grows by a unit of which the target did not say how much there was convicts nobody:
what stays below its fixed part holds, and what exceeds that is `unknown`.
A history without limits is `unknown`: targets that declare some name this checker as theirs.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.catalog.invariants.findings import Findings
from checkers.verdict.disturbances import (
    STARVED_SHARE_MIN,
    TIMED,
    Disturbance,
    disturbances_of,
    excuses,
    weight,
)
from checkers.verdict.permitted import permit_rules, permitted_exits
from checkers.verdict.sentences import seconds
from harness.ops import NEMESIS, CheckResult, History, Op, OpType, Verdict
from harness.permits import permits_of
from harness.timeline import ALL_CLIENTS, RESET, Fault, faults_of

NS_PER_S: Final = 1_000_000_000
MIB: Final = 1024 * 1024
MINUTE_NS: Final = 60 * NS_PER_S
HELD: Final = {"memory": ("memory_bytes", "of memory"), "disk": ("disk_bytes", "on its disk")}
"""By measure: the numbers of a fact `usage`, and what they are of."""
CALM: Final = "none"
"""The kind of fault of an outage that met none."""
UNFINISHED: Final = "the run ended before its final snapshot, which holds the limits"
SHOWN_MAX: Final = 10

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Ends:
    """Who serves, and who is served."""

    quorum: frozenset[str]  # of which a majority must be up, as far as the target declares it
    clients: float  # how many call at once


@dataclass(frozen=True, slots=True)
class _Outage:
    """A time without any answer, and what it meets."""

    begin: int
    end: int
    faults: tuple[Fault, ...]

    @property
    def length_s(self) -> float:
        """How long it was."""
        return (self.end - self.begin) / NS_PER_S

    def hindered_s(self, ends: _Ends) -> float:
        """For how much of it nobody could be served: half of the quorum was hit at once, or all
        clients.

        Where no quorum was declared, any fault may have hit it. A reset takes no time.
        """
        lasting = [fault for fault in self.faults if fault.kind != RESET]
        edges: set[float] = {self.begin, self.end}
        for fault in self.faults:
            edges.update((max(self.begin, fault.start), min(self.end, _end(fault))))
        hindered_ns = 0.0
        for begin, end in itertools.pairwise(sorted(edges)):
            on = [fault for fault in lasting if fault.start <= begin and end <= _end(fault)]
            nodes = {name for each in on if not each.clients_only for name in each.targets}
            unheard = {name for each in on for name in each.clients}
            if on and (
                2 * len(ends.quorum & nodes) >= len(ends.quorum)
                or ALL_CLIENTS in unheard
                or len(unheard) >= ends.clients
            ):
                hindered_ns += end - begin
        return hindered_ns / NS_PER_S


@dataclass(slots=True)
class _Judged(Findings):
    """What was looked at, and what exceeded its limit. `units` are those of known amount."""

    units: frozenset[str] = frozenset()
    unmeasured: list[str] = field(default_factory=list)
    """Limits of what nobody measured of any node, as memory in a simulation."""
    text: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    operations: list[int] = field(default_factory=list)
    missing_since_ns: float = math.inf
    """When a node first ended as its profile permits: nobody started it before all was healed."""

    def hold(self, limit: Json, value: float, bound: float, what: str, *ops: int) -> None:
        """`value` against `bound`, in the words of `what`."""
        name = str(limit["name"])
        self.look(name)
        if value > bound:
            unknown = [unit for unit in limit.get("per") or {} if unit not in self.units]
            if unknown:
                grows = f"it grows by each {unknown[0]}, and nobody said how many there were"
                self.gaps.append(f"{what}, above the limit of {bound:g}, but {grows}")
                return
            self.rules.append(name)
            self.text.append(f"{what}, above the limit of {bound:g}: {limit.get('why', '')}")
            self.operations.extend(ops)


class BoundsChecker:
    """Elections, calls, outages and what nodes keep, against limits that the target declares."""

    api_version = 1
    name = "bounds"
    doc = "elections, calls, outages and what nodes keep stay within the target's limits"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge every limit; linear, so `time_limit_s` is not needed."""
        del time_limit_s
        snapshots = [op.value for op in history.facts("snapshot")]
        declared = _declared(snapshots[-1]) if snapshots else {}
        if not declared:
            missing = "the target declared no limits" if snapshots else UNFINISHED
            details = {"rule": "incomplete"}
            return CheckResult(self.name, Verdict.UNKNOWN, missing, details=details)
        faults = [f for f in faults_of(history.of_process(NEMESIS), most=None) if f.targets]
        disturbances = disturbances_of(history)
        settled = [bool(op.value.get("ok")) for op in history.facts("converged")]
        at_rest = bool(settled and settled[-1]) and not snapshots[-1].get("pending")
        amounts = _amounts(history, faults, declared)
        judged = _Judged(units=frozenset(amounts))
        permits = permits_of(history)
        may_not_settle = any("converged" in p.rules.get("liveness", ()) for p in permits.values())
        exits = permitted_exits(history, permits)
        judged.missing_since_ns = min(
            (op.time for op in history.facts("node-exit") if op.index in exits), default=math.inf
        )
        disturbed = {"fault": len(faults) + weight(disturbances)}
        for limit in declared["limits"]:
            measure = limit["measure"]
            units = amounts | disturbed if measure in {"elections", "calls"} else amounts
            bound = _bound(limit, units)
            if measure == "outage":
                continue  # below: they are added up
            if measure == "elections":
                _elections(history, limit, bound, judged)
            elif measure == "leaders":
                _leaders(history, limit, bound, judged)
            elif measure == "diverged":
                found = list(history.facts("divergence"))
                what = f"Replicas differed in {len(found)} places"
                judged.hold(limit, len(found), bound, what, *(op.index for op in found[:SHOWN_MAX]))
            elif measure == "calls":
                _calls(limit, bound, declared, judged)
            elif measure == "memory" and not limit["of"]:
                _memory(history, limit, bound, judged)
            elif measure in HELD:
                _held(history, limit, bound, judged)
            elif measure == "written":
                _written(history, limit, amounts, faults, judged)
            elif measure == "counter" and at_rest:
                _counters(limit, bound, declared, judged)
            elif measure == "counter" and may_not_settle:
                pass  # nobody promised that it comes to rest, so nothing is said of that
            elif measure == "counter":
                judged.exempt[limit["name"]] = 1
            else:
                judged.gaps.append(
                    f"the limit {limit['name']!r} has the unknown measure {measure!r}"
                )
        quorum = frozenset(declared.get("quorum") or ())
        ends = _Ends(quorum, getattr(case, "concurrency", math.inf))
        _outages(history, faults, disturbances, declared, ends, judged)
        return permit_rules(self._result(judged), permits)

    def _result(self, judged: _Judged) -> CheckResult:
        details: dict[str, Any] = {
            "looked": dict(sorted(judged.looked.items())),
            "exempt": dict(sorted(judged.exempt.items())),
            "unmeasured": judged.unmeasured,
            "gaps": judged.gaps[:SHOWN_MAX],
            "exceeded": len(judged.text),
        }
        if judged.text:
            details["rule"] = judged.rules[0]
            details["by_invariant"] = dict(Counter(judged.rules))
            shown = judged.text[:SHOWN_MAX]
            if len(judged.text) > len(shown):
                shown.append(f"{len(judged.text) - len(shown)} more are not shown.")
            return CheckResult(
                self.name,
                Verdict.INVALID,
                judged.text[0],
                tuple(shown),
                tuple(dict.fromkeys(judged.operations)),
                details,
            )
        exempt = sum(judged.exempt.values())
        if judged.gaps or not judged.looked:
            details["rule"] = "incomplete"
            reason = judged.gaps[0] if judged.gaps else "no limit could be looked at"
            return CheckResult(self.name, Verdict.UNKNOWN, reason, details=details)
        checks = f"{sum(judged.looked.values()):,} check{'s' * (sum(judged.looked.values()) != 1)}"
        reason = f"{len(judged.looked)} limit{'s' * (len(judged.looked) != 1)} held in {checks}"
        if exempt:
            reason += f"; {exempt} were not judged: the run did not settle, or nobody measured"
        if judged.unmeasured:
            reason += f"; not measured: {', '.join(judged.unmeasured)}"
        return CheckResult(self.name, Verdict.VALID, reason, details=details)


def _declared(snapshot: object) -> Json:
    """What the target declares, if there is any limit in it."""
    found = snapshot.get("bounds") if isinstance(snapshot, Mapping) else None
    return found if isinstance(found, Mapping) and found.get("limits") else {}


def _end(fault: Fault) -> float:
    return math.inf if fault.end is None else fault.end


def _amounts(history: History, faults: Sequence[Fault], declared: Json) -> dict[str, float]:
    """The units of `per`."""
    last = history[-1].time if len(history) else 0
    own = {str(unit): number for unit, number in (declared.get("amounts") or {}).items()}
    return own | {
        "operation": len(history.pairs),
        "fault": len(faults),
        "second": last / NS_PER_S,
    }


def _bound(limit: Json, units: Mapping[str, float]) -> float:
    """The limit, with what it grew by."""
    per = (limit.get("per") or {}).items()
    return float(limit["limit"] + sum(share * units.get(unit, 0) for unit, share in per))


def _elections(history: History, limit: Json, bound: float, judged: _Judged) -> None:
    terms = {op.value.get("term"): op.index for op in history.facts("leader")}
    what = f"{len(terms)} leaders were elected"
    judged.hold(limit, len(terms), bound, what, *list(terms.values())[:SHOWN_MAX])


def _leaders(history: History, limit: Json, bound: float, judged: _Judged) -> None:
    terms: dict[int, dict[str, int]] = {}
    for op in history.facts("leader"):
        if not op.value.get("asked"):  # who was asked may have said it of two moments
            terms.setdefault(op.value.get("term", 0), {})[op.value["node"]] = op.index
    for term, nodes in terms.items():
        if term:  # 0: a target without terms
            what = f"{' and '.join(nodes)} led in term {term}"
            judged.hold(limit, len(nodes), bound, what, *nodes.values())


def _calls(limit: Json, bound: float, declared: Json, judged: _Judged) -> None:
    count = (declared.get("calls") or {}).get(limit["of"], 0)
    judged.hold(limit, count, bound, f"{limit['of']} was called {count} times")


def _memory(history: History, limit: Json, bound: float, judged: _Judged) -> None:
    """In simulation nobody measures it, and a node that was not measured is not judged."""
    measured = list(history.facts("memory"))
    if not measured:
        judged.unmeasured.append(limit["name"])
    for op in measured:
        for node, held in op.value["bytes"].items():
            if held is None:
                judged.excuse(limit["name"])
            else:
                what = f"{node} ended with {held / MIB:.0f} MiB of memory"
                judged.hold(limit, held / MIB, bound, what, op.index)


def _held(history: History, limit: Json, bound: float, judged: _Judged) -> None:
    """What was measured of each node, each time; those that never were are not judged."""
    what, words = HELD[limit["measure"]]
    worst: dict[str, tuple[float, Op]] = {}
    for op in history.facts("usage"):
        for node, held in op.value.get(what, {}).items():
            if held is not None and (node not in worst or held > worst[node][0]):
                worst[node] = (held, op)
    for node, (held, op) in sorted(worst.items()):
        text = f"{node} held {held / MIB:.1f} MiB {words} at {seconds(op.time)} s"
        judged.hold(limit, held / MIB, bound, text, op.index)
    _not_measured(history, what, frozenset(worst), limit, judged)


def _not_measured(
    history: History, what: str, measured: frozenset[str], limit: Json, judged: _Judged
) -> None:
    """Those nodes that were never measured, or that none was."""
    if not measured:
        judged.unmeasured.append(limit["name"])
        return
    nodes = {node for op in history.facts("usage") for node in op.value.get(what, ())}
    for _ in nodes - measured:
        judged.excuse(limit["name"])


def _written(
    history: History,
    limit: Json,
    amounts: Mapping[str, float],
    faults: Sequence[Fault],
    judged: _Judged,
) -> None:
    """The most that each node wrote from one look to another, a minute later at most.

    Where looks are further apart, the limit is for as many minutes. What a process wrote after the
    last look before it ended is not known, and not held against anybody: a number less than the one
    before is that of a new process, which began with nought.
    """
    called = sorted(pair.invoke.time for pair in history.pairs)
    looks: dict[str, list[tuple[Op, int]]] = {}
    for op in history.facts("usage"):
        for node, written in op.value.get("written_bytes", {}).items():
            if written is not None:
                looks.setdefault(node, []).append((op, written))

    def bound(begin: int, end: int) -> float:
        own = {
            "operation": bisect_right(called, end) - bisect_left(called, begin - MINUTE_NS),
            "fault": sum(fault.start < end and _end(fault) > begin for fault in faults),
            "second": (end - begin) / NS_PER_S,
        }
        return _bound(limit, {**amounts, **own}) * max(1.0, (end - begin) / MINUTE_NS)

    for node, found in sorted(looks.items()):
        total, totals, first = 0, [0], 0
        for (_, before), (_, after) in itertools.pairwise(found):
            total += after - before if after >= before else after
            totals.append(total)
        for last in range(1, len(found)):
            end = found[last][0]
            while first < last - 1 and end.time - found[first][0].time > MINUTE_NS:
                first += 1
            begin, value = found[first][0], (totals[last] - totals[first]) / MIB
            when = f"from {seconds(begin.time)} to {seconds(end.time)} s"
            judged.hold(
                limit,
                value,
                bound(begin.time, end.time),
                f"{node} wrote {value:.1f} MiB {when}",
                begin.index,
                end.index,
            )
    several = frozenset(node for node, found in looks.items() if len(found) > 1)
    _not_measured(history, "written_bytes", several, limit, judged)


def _counters(limit: Json, bound: float, declared: Json, judged: _Judged) -> None:
    for node, counters in sorted((declared.get("counters") or {}).items()):
        value = counters.get(limit["of"])
        if value is not None:
            what = f"{node} ended with {value} {limit['of']}"
            judged.hold(limit, value, bound, what)


def _answers(history: History) -> Iterator[int]:
    """When somebody was told what only a target that serves can say: a success, or a refusal with a
    result.
    """
    for pair in history.pairs:
        done = pair.completion
        if done is None:
            continue
        refused = done.type is OpType.FAIL and isinstance(done.value, Mapping)
        if done.type is OpType.OK or (refused and done.value.get("result") is not None):
            yield done.time


def _outages(
    history: History,
    faults: Sequence[Fault],
    disturbances: Sequence[Disturbance],
    declared: Json,
    ends: _Ends,
    judged: _Judged,
) -> None:
    """The times between answers from the first one to the end of chaos, by the faults they meet."""
    limits = {str(each["of"]): each for each in declared["limits"] if each["measure"] == "outage"}
    if not limits:
        return
    phases = {op.value.get("phase"): op.time for op in history.facts("phase")}
    end = phases.get("heal-core", history[-1].time)
    times = sorted(time for time in _answers(history) if time < end)
    shortest = min(limit["limit"] for limit in limits.values()) * NS_PER_S
    for before, after in itertools.pairwise([*times, end]):
        if after - before <= shortest:  # whatever it met
            judged.look("outages")
            continue
        met = tuple(fault for fault in faults if fault.start < after and _end(fault) > before)
        _hold_outage(_Outage(before, after, met), limits, ends, disturbances, judged)


def _hold_outage(
    outage: _Outage,
    limits: Mapping[str, Json],
    ends: _Ends,
    disturbances: Sequence[Disturbance],
    judged: _Judged,
) -> None:
    """Every fault that an outage meets adds its limit; what nobody could serve in is added."""
    kinds = [fault.kind for fault in outage.faults] or [CALM]
    if any(kind not in limits for kind in kinds):
        return  # nothing was promised of such a fault
    promised = [limits[kind]["limit"] for kind in kinds]
    bound = sum(promised) + outage.hindered_s(ends)
    limit = limits[max(kinds, key=lambda kind: limits[kind]["limit"])]
    met = f" during {', '.join(dict.fromkeys(kinds))}" if outage.faults else " without any fault"
    what = f"Nobody was served from {seconds(outage.begin)} to {seconds(outage.end)} s{met}"
    if outage.length_s > bound and outage.end > judged.missing_since_ns:
        judged.excuse("outages")
        return
    if outage.length_s > bound:
        # Of a failure only its discovery is known: it may concern any time.
        untimed = [each for each in disturbances if each.kind not in TIMED]
        tolerated_s = min(STARVED_SHARE_MIN * min(promised), outage.length_s - bound)
        own = untimed or excuses(
            disturbances, outage.begin, outage.end, bound, tolerated_s, at_end=False
        )
        if own:
            judged.gaps.append(f"{what}, but {own[0].text}")
            return
    judged.hold(
        limit, outage.length_s, bound, what, *(fault.begin.index for fault in outage.faults)
    )
