"""Describes the circumstances of a violation in one sentence: answering node, leader, faults.

The facts come from the history alone (`harness.timeline`), and are the same for every checker and
workload. The sentence describes the most telling operation in the result: an operation that a node
answered while another node led, or else the first operation. If a result names no operation of a
client, as for liveness, the sentence describes a moment: the leader, the nodes that did not run,
the active faults, and the last change of the stuck table. The sentence draws no conclusions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.errors import listed
from harness.ops import (
    NS_PER_S,
    CheckResult,
    Counterexample,
    History,
    Op,
    OpType,
    Pair,
    PartialOrder,
    Verdict,
)
from harness.timeline import (
    CLOCK,
    CPU,
    CUT,
    DISK,
    KILL,
    PAUSE,
    POWER_CUT,
    RESET,
    RESTART,
    SHAPE,
    Fault,
    NodeState,
    Reign,
    core_of,
    faults_of,
    nodes_of,
    reigns_of,
    states_of,
)

OPERATIONS_MAX: Final = 64
"""How many operations of a result the sentence considers at most."""
NAMED_MAX: Final = 4
"""How many nodes, faults or states one list in the sentence names at most."""
STUCK_MAX: Final = 20
NAME_CHARS_MAX: Final = 80
_DID: Final = {
    CUT: "had cut {} off since {}",
    KILL: "had killed {} at {}",
    POWER_CUT: "had cut the power of {} at {}",
    PAUSE: "had paused {} since {}",
    RESTART: "had stopped {} at {}",
    SHAPE: "had made the links of {} worse since {}",
    RESET: "had reset the connections of {} at {}",
    CLOCK: "had changed the clock of {} since {}",
    CPU: "had slowed down {} since {}",
    DISK: "had spoiled the disk of {} since {}",
}
ID_CHARS: Final = 6
_TABLE_ID: Final = re.compile(r"\b([Tt]able) ([0-9a-f]{32})\b")
_QUOTED: Final = re.compile(r"'([^']{1,200})'|\b(?:table|tablet) (\S{1,200})")


class Timeline(msgspec.Struct, frozen=True):
    """The facts of a run that the sentences of all its results use."""

    history: History
    faults: Sequence[Fault]
    reigns: Sequence[Reign]
    states: Sequence[NodeState]
    nodes: Sequence[str]

    @classmethod
    def of(cls, history: History) -> Timeline:
        """Compute the facts of `history`, without leaders that have neither term nor answers."""
        faults = faults_of(history)
        served = {pair.completion.node for pair in history.pairs if pair.completion is not None}
        return cls(
            history,
            faults,
            [r for r in reigns_of(history) if r.term or r.asked or r.node in served],
            states_of(history, faults),
            nodes_of(history, faults, ()),
        )

    def leader(self, time_ns: int) -> Reign | None:
        seen = (r for r in reversed(self.reigns) if r.start <= time_ns and not r.contested)
        return next(seen, None)

    def sentence(self, result: CheckResult) -> str | None:
        """Return the sentence for a failed result; `None` if `history` has no facts for it."""
        if result.verdict.holds or not (self.reigns or self.faults):
            return None
        wanted = set(result.operations[:OPERATIONS_MAX])
        named = [
            pair
            for pair in self.history.pairs
            if pair.invoke.index in wanted
            or (pair.completion is not None and pair.completion.index in wanted)
        ]
        if named:
            order = {index: at for at, index in enumerate(result.operations)}
            named.sort(key=lambda pair: order.get(pair.invoke.index, len(order)))
            return self._of_operation(next(filter(self._is_stale, named), named[0]))
        if result.verdict is not Verdict.INVALID:
            return None
        facts = [op for op in self.history if op.index in wanted]
        moment = facts[0] if facts else next(iter(reversed(self.history)), None)
        return None if moment is None else self._of_moment(moment)

    # --- an operation ------------------------------------------------------------------------

    def _is_stale(self, pair: Pair) -> bool:
        """Whether another node was the leader, both at the call and at the answer."""
        done = pair.completion
        if done is None or done.type is OpType.INFO or done.node is None or _is_of_tablets(done):
            return False
        then = [(self.leader(time_ns), time_ns) for time_ns in (pair.invoke.time, done.time)]
        return all(
            reign is not None and _leads(reign, time_ns) and reign.node != done.node
            for reign, time_ns in then
        )

    def _of_operation(self, pair: Pair) -> str:
        call, done = pair.invoke, pair.completion
        name = f"op {call.index} ({call.f})"
        reign = self.leader(call.time)
        if done is None or done.type is OpType.INFO:
            sent = sorted({attempt.node for attempt in done.attempts}) if done else []
            to = f", sent to {_list(sent)}," if sent else ""
            what = f"The answer to {name}{to} was lost{self._while(reign, call.time)}"
        elif done.node is None:
            what = f"{name[0].upper()}{name[1:]} was answered{self._while(reign, call.time)}"
        else:
            what = self._answered(done, done.node, name, call.time)
        end = call.time if done is None else done.time
        node = None if done is None else done.node
        return _joined([what, *self._faults(call.time, end, node), *self._ours(call.time, end)])

    def _answered(self, done: Op, node: str, name: str, time_ns: int) -> str:
        """Return a clause such as `m1 answered op 623 (list) in term 1 while m2 led in term 2`."""
        term = done.value.get("term") if isinstance(done.value, Mapping) else None
        within = f" in term {term}" if isinstance(term, int) else ""
        if _is_of_tablets(done):
            return f"{_short(node)} answered {name}{f'{within} of its tablet' if within else ''}"
        reign, last = self.leader(time_ns), self.leader(done.time)
        if last is not None and last.node == node and _leads(last, done.time):
            reign, time_ns = last, done.time  # `node` may have been elected only after the call
        if reign is not None and reign.node == node and _leads(reign, time_ns):
            title = f", leader{_term(reign, ' of')}," if not reign.asked else ""
            return f"{_short(node)}{title} answered {name}{'' if term == reign.term else within}"
        reigns = [r for r in self.reigns if r.node == node and r.start <= time_ns]
        before = f", leader{_term(reigns[-1], ' of')} before," if reigns and not within else ""
        return f"{_short(node)}{before} answered {name}{within}{self._while(reign, time_ns)}"

    def _while(self, reign: Reign | None, time_ns: int) -> str:
        """Return the end of a clause, which says who led: ` while m2 led in term 2`."""
        if reign is None:
            return " before any leader was seen" if self.reigns else ""
        rivals = [
            r for r in self.reigns if r.contested and _leads(r, time_ns) and r.start <= time_ns
        ]
        also = "".join(f" and {_short(r.node)} led{_term(r)}, too" for r in rivals[:NAMED_MAX])
        return f" while {_led(reign, time_ns)}{also}"

    # --- a moment ----------------------------------------------------------------------------

    def _of_moment(self, op: Op) -> str:
        reign = self.leader(op.time)
        leads = _led(reign, op.time) if reign else "no leader was seen"
        parts = [leads if self.reigns else ""]
        core = core_of(op)
        outside = [name for name in self.nodes if name not in core] if core else []
        if core:
            parts.append(f"the core was {_list(core)}, without {_list(outside) or 'no node'}")
        parts += [
            f"{_short(state.node)} was {state.kind} since {_s(state.start)}"
            for state in [s for s in self.states if _covers(s, op.time)][:NAMED_MAX]
        ]
        parts += self._faults(op.time, op.time, None)
        parts += self._stuck(op)
        parts += self._ours(0, op.time)
        return f"At {_s(op.time)} {_joined(parts)}"

    def _ours(self, start: int, end: int) -> Iterator[str]:
        """Yield phrases about disturbances that the harness, its host or its engine caused."""
        gaps = (op for op in self.history.facts("heartbeat-gap") if _meets(op, start, end))
        if (gap := next(gaps, None)) is not None:
            begin_s, end_s = gap.value["from_s"], gap.value["to_s"]
            yield f"the harness itself did not run from {begin_s:.1f} s to {end_s:.1f} s"
        starved = [op for op in self.history.facts("starvation") if _meets(op, start, end)]
        if starved:
            waited, end_s = starved[-1].value.get("waited_s"), starved[-1].value["to_s"]
            names = _list([str(name) for name in waited] if isinstance(waited, Mapping) else [])
            yield f"{names or 'a node'} waited for a processor until {end_s:.1f} s"
        for op in self.history.facts("infrastructure"):
            if op.time <= end and isinstance(op.value, Mapping):
                what = _short(str(op.value.get("what", "it failed")))
                yield f"the engine or host had failed at {_s(op.time)} ({what})"
                break

    def _stuck(self, op: Op) -> Iterator[str]:
        """Yield a phrase about the last change of a table that `op` reports as `pending`."""
        pending = op.value.get("pending") if isinstance(op.value, Mapping) else None
        words = [str(text) for text in pending[:STUCK_MAX]] if isinstance(pending, list) else []
        names = {a or b for text in words for a, b in _QUOTED.findall(text)}
        last = next((p for p in reversed(self.history.pairs) if _changes(p, names)), None)
        if last is None:
            return
        call, done = last.invoke, last.completion
        lost = done is None or done.type is OpType.INFO
        by = f", answered by {_short(done.node)}" if done is not None and done.node else ""
        end = call.time if done is None else done.time
        on = [fault for fault in self.faults if fault.is_on(call.time, end)]
        during = f", during {_list([fault.id for fault in on])}" if on else ""
        yield (
            f"the stuck table was last changed by op {call.index} ({call.f}) at {_s(call.time)}"
            f"{', whose answer was lost' if lost else by}{during}"
        )

    # --- faults ------------------------------------------------------------------------------

    def _faults(self, start: int, end: int, node: str | None) -> list[str]:
        """Return phrases for the faults active from `start` to `end`, faults on `node` first."""
        on = [fault for fault in self.faults if fault.is_on(start, end)]
        on.sort(key=lambda fault: node not in fault.targets)
        if on:
            more = [f"{len(on) - NAMED_MAX} more faults were active"] if len(on) > NAMED_MAX else []
            return [_fault_phrase(fault, end) for fault in on[:NAMED_MAX]] + more
        over = [fault for fault in self.faults if fault.targets and (fault.end or end) < start]
        if not over:
            return ["no fault had been injected yet"] if self.faults else []
        last = max(over, key=lambda fault: (fault.end or 0, fault.start))
        hit = f"{_short(last.nemesis)} on {_list(last.targets)}"
        return [f"no fault was active; the last, {hit}, was healed at {_s(last.end or 0)}"]


def explained(history: History, results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """Return the results, with explanations.

    Each result that is not valid gets a sentence that explains the failure. Table ids in its texts
    get the names of their tables.
    """
    judged = tuple(results)
    if all(result.verdict is Verdict.VALID for result in judged):
        return judged
    try:
        timeline = Timeline.of(history)
        sentences = [timeline.sentence(result) for result in judged]
        names = _TableNames(history)
    except Exception:  # noqa: BLE001 - a failed explanation must not cost the verdict
        return judged
    return tuple(
        _with_sentence(result, sentence, names)
        for result, sentence in zip(judged, sentences, strict=True)
    )


def _with_sentence(result: CheckResult, sentence: str | None, names: _TableNames) -> CheckResult:
    if result.verdict is Verdict.VALID:
        return result
    lines = [names.put_into(line) for line in result.explanation]
    if sentence is not None:
        lines = [sentence, *(lines or [f"{names.put_into(result.reason)}."])]
    return msgspec.structs.replace(
        result, reason=names.put_into(result.reason), explanation=tuple(lines)
    )


class _TableNames:
    """The names that each table id has had, from the answers to clients."""

    def __init__(self, history: History) -> None:
        self._names: dict[str, list[str]] = {}
        for pair in history.pairs:
            answer = None if pair.completion is None else pair.completion.value
            if not isinstance(answer, Mapping) or not isinstance(pair.invoke.value, Mapping):
                continue
            asked = pair.invoke.value
            self._add(answer.get("table_id"), asked.get("new_name") or asked.get("name"))
            rows = answer.get("tables")
            for row in rows if isinstance(rows, list) else ():
                if isinstance(row, list) and len(row) > 1:
                    self._add(row[1], row[0])

    def _add(self, ident: Any, name: Any) -> None:
        if isinstance(ident, str) and isinstance(name, str):
            names = self._names.setdefault(ident, [])
            if name not in names[-1:]:
                names.append(name)

    def put_into(self, text: str) -> str:
        """Return `text` with names: `table 0e7fb6...` becomes `table 't3' (id 0e7fb6…)`."""
        return _TABLE_ID.sub(self._named, text) if self._names else text

    def _named(self, match: re.Match[str]) -> str:
        names = self._names.get(match[2])
        if names is None:
            return match[0]
        later = f", later {_short(names[-1])!r}" if names[-1] != names[0] else ""
        return f"{match[1]} {_short(names[0])!r}{later} (id {match[2][:ID_CHARS]}…)"


def _is_of_tablets(done: Op) -> bool:
    """Whether tablet replicas answered. Their leaders and terms are not the catalog's."""
    return isinstance(done.value, Mapping) and not {"tablet", "parts"}.isdisjoint(done.value)


def _meets(op: Op, start: int, end: int) -> bool:
    """Whether the time span that a harness op records overlaps the span from `start` to `end`."""
    value = op.value if isinstance(op.value, Mapping) else {}
    begin_s, end_s = value.get("from_s"), value.get("to_s")
    if not isinstance(begin_s, (int, float)) or not isinstance(end_s, (int, float)):
        return False
    return begin_s * NS_PER_S <= end and end_s * NS_PER_S >= start


def _led(reign: Reign, time_ns: int) -> str:
    """Return a clause such as `m2 led in term 2`, or a clause that no node led."""
    if _leads(reign, time_ns):
        if reign.asked:
            return f"{_short(reign.node)} was the last seen to lead{_term(reign)}"
        return f"{_short(reign.node)} led{_term(reign)}"
    ended = f"{_s(reign.end or 0)}, when {_short(reign.until)}"
    return f"no node led ({_short(reign.node)} led{_term(reign)} until {ended})"


def _term(reign: Reign, word: str = " in") -> str:
    return f"{word} term {reign.term}" if reign.term else ""


def _leads(reign: Reign, time_ns: int) -> bool:
    return reign.end is None or reign.end > time_ns


def _covers(state: NodeState, time_ns: int) -> bool:
    return state.start <= time_ns and (state.end is None or state.end > time_ns)


def _changes(pair: Pair, names: set[str]) -> bool:
    """Whether `pair` is a change of one of the tables `names`, and may have taken effect."""
    done = pair.completion
    if pair.type is OpType.FAIL or not isinstance(pair.invoke.value, Mapping):
        return False
    if "nonce" not in pair.invoke.value:
        return False
    answer = done.value if done is not None and isinstance(done.value, Mapping) else {}
    spoken: list[Any] = [pair.invoke.value.get("name"), pair.invoke.value.get("new_name")]
    return not names.isdisjoint(map(str, (*spoken, answer.get("table_id"))))


def _fault_phrase(fault: Fault, time_ns: int) -> str:
    """Return a phrase such as `partition-leader had cut m1 off since 7.9 s`."""
    form = _DID.get(fault.kind, "had hit {} since {}")
    if fault.clients:  # despite a fault of client links, the nodes may reach each other
        text = f"{_short(fault.nemesis)} was active since {_s(fault.start)} ({_short(fault.note)})"
    else:
        text = f"{_short(fault.nemesis)} {form.format(_list(fault.targets), _s(fault.start))}"
    return text if fault.end is None or fault.end > time_ns else f"{text}, until {_s(fault.end)}"


def _joined(parts: Sequence[str]) -> str:
    return f"{'; '.join(part for part in parts if part)}."


def _list(names: Sequence[str]) -> str:
    return listed([_short(name) for name in names], limit=NAMED_MAX)


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARS_MAX else f"{name[:NAME_CHARS_MAX]}…"


def _s(time_ns: int) -> str:
    return f"{time_ns / 1e9:.1f} s"


def counterexample_of(results: Sequence[CheckResult]) -> Counterexample:
    """Return data for a picture: partial orders of a failed search, or the results' operations."""
    for result in results:
        failure = result.details.get("failure")
        if isinstance(failure, Mapping):
            survivors = failure.get("survivors")
            orders = tuple(
                PartialOrder(
                    _indices(survivor.get("last")),
                    (str(survivor.get("state", "")),),
                    _indices(survivor.get("pending")),
                )
                for survivor in (survivors if isinstance(survivors, list) else ())
                if isinstance(survivor, Mapping)
            )
            failing = next(iter(_indices([failure.get("operation")])), None)
            return Counterexample(failing, _indices(failure.get("core")), orders)
    blamed = dict.fromkeys(index for result in results for index in result.operations)
    return Counterexample(None, tuple(blamed))


def _indices(value: Any) -> tuple[int, ...]:
    return tuple(i for i in value if isinstance(i, int)) if isinstance(value, (list, tuple)) else ()
