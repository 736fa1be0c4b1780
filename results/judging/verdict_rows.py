"""Judges histories within a budget, and makes the rows of the table `verdicts`.

Errors of a history or a checker become `unknown` verdicts. If the checker raises, the row has the
traceback. If it exceeds its budget, the row names the limit. If it killed its worker twice, the row
says `checker crashed`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa

from harness.case import Case
from harness.ops import CheckResult, History, Verdict
from harness.permits import permitted_in
from harness.verdict.judge import judge_one, load_checker, traceback_of, was_limited
from harness.verdict.signature import SIGNATURE, begun_until, rule_of, signature
from results.facts.schema import schema
from results.judging.budgets import Budget
from results.judging.markers import BROKEN, LIMITED

COUNTEREXAMPLE_CHARS_MAX: Final = 1 << 16
REASON_CHARS_MAX: Final = 2_000
CRASHED: Final = "checker crashed: it killed its worker twice; use --again to try once more"


checker_named: Final = functools.cache(load_checker)
"""Each checker is loaded once, since each load reads the entry points of all packages."""


class Row(msgspec.Struct, kw_only=True):
    """One row of the table `verdicts`. If `limited`, the budget left the verdict unknown."""

    checker: str
    key: str | None = None
    verdict: str = Verdict.UNKNOWN.value
    reason: str = ""
    rule: str | None = None
    signature: str | None = None
    n_ops: int = 0
    configurations: int | None = None
    wall_ns: int = 0
    cpu_ns: int = 0
    permitted: int = 0
    error: str | None = None
    counterexample: str | None = None
    failed_ops: int | None = None
    limited: bool = False


def mark_of(rows: Iterable[Row]) -> str:
    """Return the mark (`results.judging.markers`) of a result that consists of these rows."""
    return worst_mark(
        LIMITED if row.limited else BROKEN if row.error is not None else "" for row in rows
    )


def worst_mark(marks: Iterable[str]) -> str:
    """Combine the marks of a result's parts. `LIMITED` wins, because it causes a retry."""
    distinct = {*marks}
    return LIMITED if LIMITED in distinct else BROKEN if BROKEN in distinct else ""


def crashed(checker: str, n_ops: int) -> Row:
    """Return the row of a checker that killed its worker twice."""
    return Row(checker=checker, reason=CRASHED, n_ops=n_ops, error=CRASHED)


def no_verdict(checker: str) -> Row:
    """Return the row that replaces a missing verdict. The run's problems give the reason."""
    return Row(checker=checker, reason="could not be judged: see the problems of this run")


def judge_history(
    name: str,
    history: History,
    case: Case,
    budget: Budget,
    *,
    key: str | None = None,
) -> Row:
    """Judge one history by one checker, within `budget`. Errors of the checker become `unknown`."""
    wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
    result = judge_one(checker_named(name), history, case, budget, whole=key is None)
    row = _row_of(name, result, history, key)
    row.wall_ns = time.perf_counter_ns() - wall_ns
    row.cpu_ns = time.process_time_ns() - cpu_ns
    return row


def _row_of(name: str, result: CheckResult, history: History, key: str | None) -> Row:
    details = result.details
    configurations = details.get("configurations")
    row = Row(
        checker=name,
        key=key,
        verdict=result.verdict.value,
        reason=result.reason[:REASON_CHARS_MAX],
        n_ops=len(history.pairs),
        configurations=configurations if isinstance(configurations, int) else None,
        limited=was_limited(result),
        error=traceback_of(result),
    )
    if result.verdict is Verdict.PERMITTED:
        row.rule = rule_of(result)
        row.permitted = sum(permitted_in(result).values())
    if not result.verdict.holds:
        row.rule, row.signature = rule_of(result), details.get(SIGNATURE)
    if result.verdict is Verdict.INVALID:
        row.counterexample = _counterexample(result)
        if key is None:  # the history of one key lacks the operations of other keys
            row.failed_ops = begun_until(result, history)
    return row


def _counterexample(result: CheckResult) -> str:
    """Encode a violation's explanation and ops as JSON; if too long, drop the last sentences."""
    explanation = list(result.explanation)
    while True:
        text = msgspec.json.encode(
            {
                "operations": list(result.operations[:1000]),
                "explanation": explanation,
                "left_out": len(result.explanation) - len(explanation),
            }
        ).decode()
        if len(text) <= COUNTEREXAMPLE_CHARS_MAX or not explanation:
            return text
        explanation = explanation[: len(explanation) // 2]


def table_of(rows: list[Row], run: str, result_id: str) -> pa.Table:
    """Make rows of the table `verdicts` from the rows of one result."""
    columns: dict[str, list[Any]] = {name: [] for name in schema("verdicts").names}
    for row in rows:
        if row.signature is None and not Verdict(row.verdict).holds:
            result = CheckResult(row.checker, Verdict.UNKNOWN, row.reason)
            row.rule, row.signature = rule_of(result), signature(result, History(()))
        for name, column in columns.items():
            if name not in {"run", "result_id"}:
                column.append(getattr(row, name))
    columns["run"] = [run] * len(rows)
    columns["result_id"] = [result_id] * len(rows)
    return pa.table(columns, schema=schema("verdicts"))
