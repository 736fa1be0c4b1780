"""Hand-made runs of two targets, whose answers depend only on the operation's number."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.case import Case, Fault
from harness.ops import Attempt, CheckResult, History, OpType, ScheduledOp, Verdict
from harness.store import StoredRun
from results.twin.answer import Material, Twin, compare
from results.twin.observed import Observed, observed
from tests.support.histories import MS, Writer

Answer = tuple[str, str | None]
"""The type of a completion and the code of its error, if it has one."""
OK: Answer = ("ok", None)
SECONDS = 24
INTERVAL_S = 6.0


def run(
    answers: Callable[[int], Answer],
    *,
    seed: int = 1,
    fault_every_s: int | None = None,
    led_after_ms: int = 900,
    down_ms: int = 0,
    asked: bool = False,
    ops: Sequence[ScheduledOp] | None = None,
    results: Sequence[CheckResult] = (),
) -> Observed:
    """Build a run with ten operations per second; for a time after each fault, none is
    acknowledged.
    """
    case = Case(
        seed=seed,
        nemeses=("kill-leader",),
        interval_s=INTERVAL_S,
        time_limit_s=float(SECONDS),
        concurrency=1,
        faults=() if fault_every_s is None else (Fault("f", "kill-leader", 0, 1),),
        ops=None if ops is None else tuple(ops),
    )
    lines: list[tuple[int, Callable[[Writer], Any]]] = [
        (0, lambda w: w.add("harness", OpType.INFO, "phase", {"phase": "warm-up"})),
        (1, lambda w: _lead(w, 0, asked)),
        (SECONDS * 1000, lambda w: w.add("harness", OpType.INFO, "phase", {"phase": "heal-core"})),
    ]
    strikes = range(2, SECONDS, fault_every_s) if fault_every_s else ()
    for number, second in enumerate(strikes, start=1):
        lines += _fault(number, second * 1000, led_after_ms, asked)
    count = len(ops) if ops is not None else SECONDS * 10
    for number in range(count):
        at_ms = 100 * number + 10
        is_down = any(0 <= at_ms - 1000 * second < down_ms for second in strikes)
        answer = ("info", "RPC/SENT") if is_down else answers(number)
        lines.append((at_ms, lambda w, n=number, a=answer: _operation(w, n, a, ops)))
    writer = Writer()
    for at_ms, write in sorted(lines, key=lambda line: line[0]):
        writer.at(at_ms)
        write(writer)
    stored = StoredRun(Path("made") / str(seed), case, History(writer.lines), None, None)
    return observed(stored, Verdict.VALID, tuple(results))


def _operation(w: Writer, number: int, answer: Answer, ops: Sequence[ScheduledOp] | None) -> None:
    kind, error = answer
    f, value = (
        ("create", {"name": f"t{number}"}) if ops is None else (ops[number].f, ops[number].value)
    )
    process = number if ops is None else 0
    begin = len(w.lines)
    w.add(process, OpType.INVOKE, f, value)
    ns = w.lines[begin].time
    outcome = "ok" if error is None else f"{error}: in words, number {number}"
    result = (
        {"result": "ok"} if kind == "ok" else {"result": "exists"} if kind == "refused" else None
    )
    w.add(
        process,
        OpType.FAIL if kind in {"refused", "failed"} else OpType(kind),
        f,
        result,
        "m1",
        error=None if error is None else outcome,
        attempts=(Attempt("m1", ns, ns + MS, outcome),),
    )


def _lead(w: Writer, term: int, asked: bool) -> None:
    value = {"node": f"m{term % 3 + 1}", "term": term + 1}
    w.add("harness", OpType.INFO, "leader", {**value, "asked": True} if asked else value)


def _fault(
    number: int, at_ms: int, led_after_ms: int, asked: bool
) -> list[tuple[int, Callable[[Writer], Any]]]:
    value = {"fault": f"f{number}", "kind": "kill", "targets": ["m1"]}
    return [
        (
            at_ms,
            lambda w: w.add("nemesis", OpType.INFO, "kill-leader", {**value, "action": "inject"}),
        ),
        (at_ms + led_after_ms, lambda w: _lead(w, number, asked)),
        (
            at_ms + 3000,
            lambda w: w.add("nemesis", OpType.INFO, "kill-leader", {**value, "action": "heal"}),
        ),
    ]


def twin(
    left: Sequence[Observed],
    right: Sequence[Observed],
    known: Sequence[Any] = (),
    case: str = "made",
) -> Twin:
    material = Material(case=case, about="by hand", left=tuple(left), right=tuple(right))
    return compare(("kudu", "apache-kudu"), [material], known)
