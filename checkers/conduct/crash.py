"""The checker `crash` judges whether a node process ended by itself (invariant I9).

The verdict is `invalid` only if a node exited by itself. An exit is excused if a fault of the
node's disk or clock may have caused it. It is permitted if the node's log shows a sign that the
run's profile permits (`Permit.signs`).

The verdict is `unknown` if the host may have ended the node (its OOM killer, or a signal that the
harness did not send), or if an infrastructure failure happened near the exit.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from checkers.verdict.disturbances import FOREIGN_EXITS, Disturbance, citation, disturbances_of
from checkers.verdict.invariants import KEY, counted_by_name, invariant_of
from checkers.verdict.permitted import permitted_exits, permitted_result
from checkers.verdict.sentences import seconds
from harness.errors import counted
from harness.ops import NEMESIS, NS_PER_S, CheckResult, History, Op, Verdict
from harness.permits import permits_of
from harness.plugins import Checker
from harness.timeline import EXCUSED_AFTER_NS

EXITS_MAX: Final = 10
LOG_LINES_MAX: Final = 10
LINE_CHARACTERS_MAX: Final = 300
RAISED: Final = re.compile(r"[\w.]*(?:Error|Exception): (?:check failed: )?(?=.)")
"""Matches the class name of an error at the start of a traceback's last line."""
NEAR_NS: Final = 10 * NS_PER_S
"""A container engine that fails may report a node's exit, or its own failure, this much late."""


class CrashChecker(Checker):
    """Checks that no node exited by itself, among all exits that the harness saw."""

    api_version = 1
    name = "crash"
    doc = "no node exits by itself"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case, time_limit_s
        exits = list(history.facts("node-exit"))
        excused = _Excuses(history)
        ended = [op for op in exits if not (op.value.get("expected", False) or excused.covers(op))]
        permits = permits_of(history)
        permitted = permitted_exits(history, permits)
        allowed = {op.index: permitted[op.index] for op in ended if op.index in permitted}
        unexpected = [op for op in ended if op.index not in allowed]
        failures = [each for each in disturbances_of(history) if each.kind == "infrastructure"]
        doubts = {op.index: _doubt(op, failures) for op in unexpected}
        crashes = [op for op in unexpected if doubts[op.index] is None]
        looked = {"exits": max(1, len(exits))}
        details: dict[str, Any] = {
            "exits": len(exits),
            "crashes": len(crashes),
            "not_the_targets": len(unexpected) - len(crashes),
            "excused": excused.count,
            "looked": looked,
            KEY: counted_by_name(looked, [invariant_of("exits")]),
        }
        if not unexpected and allowed:
            words = tuple(f"{_exit_words(op)}." for op in ended[:EXITS_MAX])
            held = CheckResult(self.name, Verdict.INVALID, "", words)
            return permitted_result(
                held, permits, Counter(allowed.values()), list(allowed), details
            )
        if not unexpected:
            reason = f"no unexpected exits ({len(exits) - excused.count} by nemeses)"
            if excused.count:
                reason += (
                    f"; {excused.count} ended because of disk or clock faults, which is allowed"
                )
            return CheckResult(self.name, Verdict.VALID, reason, details=details)
        text: list[str] = []
        crashes_first = sorted(unexpected, key=lambda op: doubts[op.index] is not None)
        for op in crashes_first[:EXITS_MAX]:
            text.append(f"{_exit_words(op)}.")
            doubt = doubts[op.index]
            if doubt is not None:
                text.append(f"Whether the target is to blame is unknown: {doubt}.")
            if log := _log(op):
                text.append("\n".join([f"The log of {op.value.get('node')} ends with:", *log]))
        if len(unexpected) > EXITS_MAX:
            text.append(f"{len(unexpected) - EXITS_MAX} more exits are not shown.")
        if crashes:
            verdict, details["rule"] = Verdict.INVALID, "unexpected-exit"
            reason = _exit_words(crashes[0])
            if len(crashes) > 1:
                reason += f" (and {counted(len(crashes) - 1, 'more unexpected exit')})"
        else:
            verdict, details["rule"] = Verdict.UNKNOWN, "exit-not-explained"
            reason = f"{_names(unexpected)} ended, and {doubts[unexpected[0].index]}"
        blamed = crashes or unexpected
        return CheckResult(
            self.name, verdict, reason, tuple(text), tuple(op.index for op in blamed), details
        )


class _Excuses:
    """The intervals in which a node may exit because of a fault.

    An interval lasts until `EXCUSED_AFTER_NS` after the end of the fault.
    """

    def __init__(self, history: History) -> None:
        self.count = 0
        self._spans: dict[str, list[tuple[int, float]]] = {}
        begun: dict[str, tuple[int, list[str]]] = {}
        for op in history.of_process(NEMESIS):
            value = op.value if isinstance(op.value, dict) else {}
            fault = str(value.get("fault"))
            if value.get("action") == "inject" and value.get("may_end") is True:
                targets = value.get("targets")
                nodes = [str(node) for node in targets] if isinstance(targets, list) else []
                begun[fault] = op.time, nodes
            elif value.get("action") == "heal" and fault in begun:
                self._add(begun.pop(fault), op.time + EXCUSED_AFTER_NS)
        for open_one in begun.values():
            self._add(open_one, math.inf)

    def _add(self, begun: tuple[int, list[str]], end_ns: float) -> None:
        start_ns, nodes = begun
        for node in nodes:
            self._spans.setdefault(node, []).append((start_ns, end_ns))

    def covers(self, op: Op) -> bool:
        spans = self._spans.get(str(op.value.get("node")), ())
        is_excused = any(start <= op.time <= end for start, end in spans)
        self.count += is_excused
        return is_excused


def _exit_words(op: Op) -> str:
    code = op.value.get("code")
    with_code = "" if code is None else f" with code {code}"
    text = f"{op.value.get('node')} exited{with_code} at {seconds(op.time)} s"
    log = _log(op)
    if not log:
        return text
    if raised := RAISED.match(log[-1]):
        return f"{text}: {log[-1][raised.end() :]}"
    return f"{text}; the last line of its log: {log[-1]}"


def _log(op: Op) -> list[str]:
    lines = "\n".join(str(line) for line in op.value.get("log") or ()).rstrip().splitlines()
    return [line[:LINE_CHARACTERS_MAX] for line in lines[-LOG_LINES_MAX:]]


def _names(exits: Iterable[Op]) -> str:
    return ", ".join(sorted({str(op.value.get("node")) for op in exits}))


def _doubt(op: Op, failures: Iterable[Disturbance]) -> str | None:
    """Return why something other than the target may have caused the exit `op`, or `None`."""
    by = op.value.get("by")
    if by in FOREIGN_EXITS:
        who = "its host ended it" if by == "host" else "the sender of the signal is unknown"
        return f"{who} (code {op.value.get('code')})"
    node = str(op.value.get("node"))
    near = [
        failure
        for failure in failures
        if failure.concerns(node) and failure.overlaps(op.time - NEAR_NS, op.time + NEAR_NS)
    ]
    return citation(near) or None
