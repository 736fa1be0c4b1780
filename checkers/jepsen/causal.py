"""The history model causal: reads must agree with the causal order of each register's operations.

This follows `jepsen/tests/causal.clj`. A single client performs all operations of a register in
sequence: read-init, write 1, read, write 2, read. Each read must show the client's last write, no
matter which replica answers. An operation may have the fields `position` (a token from the system)
and `link` (the position of the operation that it follows, or `init`).

* stale: a read shows the initial value or an earlier value than the last write in the order.
* unexpected: a read shows a value that was never written, or only by a write that failed.

The initial value is 0, nil or an empty text. In Jepsen's form, a read that is answered with nil
matches any value.

A write of unknown outcome may take effect at any later time. Once a read shows its value, no later
read may show an earlier value. If operations overlap, or a link does not fit, the order is
uncertain. From there on, the register is not judged, and a result without violations is `unknown`.
Reads by other clients are not judged.

Differences from Jepsen: a read may show a write of unknown outcome. A wrong link is not a
violation, since the client wrote it. Jepsen demands that the values of writes count up from 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from msgspec.structs import replace

from checkers.foreign.model import bad_op, request_of
from checkers.foreign.plain_form import is_ours, outcome_of
from checkers.jepsen.model import DirectCheck, StepsModel, nothing_seen
from checkers.jepsen.steps import NEVER, Step
from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.exact import exact
from harness.ops import History, ModelSettings, Op, OpType, Pair
from harness.plugins import PreparedCheck
from harness.vocabularies import registers

INITIAL: Final = (None, 0, "")
_READS: Final = frozenset({"read", "read-init"})
_KNOWN: Final = "read-init, read, and write with a value, perhaps with a position and a link"


class _Seen(NamedTuple):
    """The value of an operation. `counts` is false if a nil only means a missing answer."""

    value: Hashable
    counts: bool = True
    position: Hashable = None
    link: Hashable = None

    def __repr__(self) -> str:
        return repr(self.value)


class Causal(StepsModel, version="1"):
    """The history model of registers. A single client reads and writes each register."""

    name = "causal"
    doc = "each register is used by one client, which always sees its own last write"
    vocabulary = registers.CALLS
    functions: ClassVar[Mapping[str, str]] = {"read": "", "read-init": "", "write": "with a value"}

    def prepare_steps(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        history = ops if isinstance(ops, History) else History(ops)
        if is_ours(history.pairs, registers.CALLS):
            history = History(_with_keys(history), foreign=True)
            settings = ModelSettings(independent=True)
        return super().prepare_steps(history, settings)

    def understand(self, history: History) -> DirectCheck:
        return self.check_of([_step(pair) for pair in history.pairs])

    def parse(self, step: Step) -> Step:
        return step

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        # Operations that failed, and reads without an answer, had no effect.
        order = [step for step in steps if step.did or (step.f == "write" and step.may_have)]
        order.sort(key=lambda step: step.begin)
        writers = [s.process for s in order if s.f == "write"]
        owner = next(iter([*writers, *(s.process for s in order)]), None)
        order = [s for s in order if not _is_visit(s, owner)]
        judged = _Order(findings)
        for before, step in zip([None, *order], order, strict=False):
            gap = None if before is None else judged.gap_between(before, step)
            if gap is not None:
                findings.gap(gap)
                break
            judged.take(step)
        details |= {"reads": judged.reads, "writes": sum(s.f == "write" for s in steps)}
        if not findings.looked["stale"]:
            nothing_seen(findings, "no answered read follows a write of its client")
        return f"{counted(judged.reads, 'read')} in their causal order"


class _Order:
    """The causal order of one register, up to some operation."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._last: Step | None = None
        self._open: dict[Hashable, Step] = {}
        self._written: dict[Hashable, Step] = {}
        self._position: Hashable = None
        self.reads = 0

    def gap_between(self, before: Step, step: Step) -> str | None:
        """Return why `step` may not follow `before` in the causal order, or `None` if it may."""
        link = _seen(step).link
        if before.end != NEVER and step.begin < before.end:
            return f"{step} overlaps with {before}, so their causal order is not known"
        if link in {None, "init", ":init"}:
            if step.process != before.process and link is None:
                return f"{step} is by another process than {before}, and has no link to it"
        elif self._position is not None and step.did and link != self._position:
            return f"{step} has the link {link!r}, and the last position is {self._position!r}"
        return None

    def take(self, step: Step) -> None:
        seen = _seen(step)
        if step.f == "write":
            self._written[seen.value] = step
            if step.did:
                self._last = step
                self._open.pop(seen.value, None)
            else:
                self._open[seen.value] = step
        else:
            self._read(step, seen)
        if step.did and seen.position is not None:
            self._position = seen.position

    def _read(self, read: Step, seen: _Seen) -> None:
        if seen.value is None and not seen.counts:
            self._findings.exempt("stale")
            return
        self.reads += 1
        self._findings.look("stale" if self._written else "unexpected")
        initial = seen.value in INITIAL
        if seen.value in self._open:
            self._last = self._open.pop(seen.value)
        elif initial if self._last is None else _seen(self._last).value == seen.value:
            return
        elif initial or seen.value in self._written:
            last = self._last
            assert last is not None, "a written value is open, or was read or acknowledged"
            earlier = self._written.get(seen.value)
            operations = [s.begin for s in (earlier, last, read) if s is not None]
            text = f"{_shown(read, seen)}, although {_shown(last, _seen(last))} precedes it"
            self._findings.violate("stale", text, *dict.fromkeys(operations))
        else:
            text = f"{_shown(read, seen)}, which no write before it can have written"
            self._findings.violate("unexpected", text, read.begin)


def _is_visit(step: Step, owner: int | str | None) -> bool:
    """Whether another client reads the register without a link, so that it may see any state."""
    return step.f != "write" and owner not in {None, step.process} and _seen(step).link is None


def _seen(step: Step) -> _Seen:
    seen: _Seen = step.asked if step.f == "write" else step.answer or _Seen(None, counts=False)
    return seen


def _shown(step: Step, seen: _Seen) -> str:
    verb = "write" if step.f == "write" else step.f
    return f"the {verb} of {seen.value!r} {step.by}"


def _step(pair: Pair) -> Step:
    call, done = pair.invoke, pair.completion
    if call.f not in Causal.functions:
        raise bad_op(call, Causal.name, _KNOWN)
    end = NEVER if done is None or pair.type is OpType.INFO else done.index
    asked = answer = None
    if call.f in _READS:
        answer = _value(done) if done is not None and done.type is OpType.OK else None
    else:
        asked = _value(request_of(pair))
        if done is not None and done.type is OpType.OK and isinstance(done.value, Mapping):
            # Only the answer has a position.
            asked = _value(done)
        if asked.value is None:
            raise bad_op(call, Causal.name, _KNOWN)
    return Step(call.f, asked, answer, pair.type, call.index, end, call.process)


def _value(op: Op) -> _Seen:
    value = op.value
    if not isinstance(value, Mapping):
        return _Seen(exact(value), counts=False)
    if "value" not in value:
        raise bad_op(op, Causal.name, _KNOWN)
    is_linked = "link" in value
    return _Seen(
        exact(value["value"]),
        counts=not is_linked,
        position=exact(value.get("position")),
        link=exact(value.get("link")),
    )


def _with_keys(history: History) -> Iterable[Op]:
    ops: list[Op] = []
    for pair in history.pairs:
        call, done = pair.invoke, pair.completion
        key = call.value["key"]
        ops.append(replace(call, value=[key, call.value.get("value")]))
        if done is not None:
            value = done.value if call.f in _READS else None
            kind = outcome_of(pair)
            if kind is OpType.OK and call.f == "write":
                value = call.value["value"]
            ops.append(replace(done, type=kind, value=[key, value]))
    return sorted(ops, key=lambda op: op.index)
