"""The keys of a bucket, judged one row group at a time.

A checker with `check_columns` proves most keys valid from columns. Those that it leaves get a small
history each and the checker's ordinary `check`, with a budget of their own: so an invalid key has
its counterexample, and a gigantic one costs its budget and no more. Rows are columns again in the
end; a hundred thousand of them cost little. Keys that were judged together share the time that took
in proportion to their operations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.case import Case
from harness.errors import CheckerLimitError, HarnessError
from harness.ops import Verdict
from results.facts.schema import schema
from results.judging.budgets import Budget, SpentError, cpu_limit
from results.judging.columns import Columns, read_columns
from results.judging.result_ids import Check
from results.judging.units import Checkers, Row, judge_history, mark_of, table_of, worst_mark

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Part", "judge_groups"]


class Part(NamedTuple):
    """Row groups of one bucket, with the case and the key of its run."""

    path: Path
    groups: tuple[int, int]
    case: Case
    run: str
    budget: Budget


class _Judge(NamedTuple):
    """One checker at work on a part."""

    check: Check
    part: Part
    checkers: Checkers
    complain: Callable[[str, str], None]


def judge_groups(
    check: Check, part: Part, checkers: Checkers, complain: Callable[[str, str], None]
) -> tuple[pa.Table, str]:
    """The verdicts of one checker over all keys of a part, and their mark (see `mark_of`).

    `complain(kind, text)` is told what went wrong on the way. Raises `HistoryError` where the file
    cannot be read.
    """
    import pyarrow as pa

    judge = _Judge(check, part, checkers, complain)
    tables = []
    marks = []
    begin_ns = (time.perf_counter_ns(), time.process_time_ns())
    for columns in read_columns(part.path, *part.groups):
        table, mark = _verdicts(judge, columns, _together(judge, columns), begin_ns)
        tables.append(table)
        marks.append(mark)
        begin_ns = (time.perf_counter_ns(), time.process_time_ns())
    return pa.concat_tables(tables), worst_mark(marks)


def _verdicts(
    judge: _Judge, columns: Columns, judged: Any, begin_ns: tuple[int, int]
) -> tuple[pa.Table, str]:
    import numpy as np
    import pyarrow as pa

    name, result_id, run = judge.check.checker, judge.check.result_id, judge.part.run
    valid = np.zeros(len(columns.keys), np.bool_)
    n_ops = columns.operations()
    together: list[pa.Table] = []
    if judged is not None:
        valid = np.asarray(judged.valid)
        places = np.flatnonzero(valid)
        wall_ns, cpu_ns = (
            time.perf_counter_ns() - begin_ns[0],
            time.process_time_ns() - begin_ns[1],
        )
        share = n_ops[places] / max(1, int(n_ops.sum()))
        count = len(places)
        made: dict[str, Any] = {
            "checker": pa.repeat(pa.scalar(name), count),
            "key": pa.array(columns.keys, pa.string()).take(pa.array(places)),
            "verdict": pa.repeat(pa.scalar(Verdict.VALID.value), count),
            "rule": pa.nulls(count, pa.string()),
            "signature": pa.nulls(count, pa.string()),
            "reason": pa.array(judged.reasons, pa.string()).take(pa.array(places)),
            "n_ops": pa.array(n_ops[places]),
            "configurations": pa.array(np.asarray(judged.configurations)[places], pa.int64()),
            "wall_ns": pa.array((share * wall_ns).astype(np.int64)),
            "cpu_ns": pa.array((share * cpu_ns).astype(np.int64)),
            "permitted": pa.array(np.zeros(count, np.int64)),
            "error": pa.nulls(count, pa.string()),
            "counterexample": pa.nulls(count, pa.string()),
            "failed_ops": pa.nulls(count, pa.int64()),
            "result_id": pa.repeat(pa.scalar(result_id), count),
            "run": pa.repeat(pa.scalar(run), count),
        }
        layout = schema("verdicts")
        together.append(pa.table(made).select(layout.names).cast(layout))
    alone = np.flatnonzero(~valid).tolist()
    rows = _alone(judge, columns, alone) if alone else []
    table = pa.concat_tables([*together, table_of(rows, run, result_id)])
    return table, mark_of(rows)


def _together(judge: _Judge, columns: Columns) -> Any:
    """What the checker says of all keys at once; `None` where it came to nothing.

    Whatever goes wrong here costs time only: every key is then judged by itself.
    """
    budget = judge.part.budget
    name = judge.check.checker
    try:
        with cpu_limit(budget.cpu_s):
            checker: Any = judge.checkers.bounded(name, budget)
            return checker.check_columns(columns, judge.part.case)
    except (SpentError, CheckerLimitError, MemoryError):
        return None
    except Exception as error:  # noqa: BLE001 - a mistake in a checker, which is named
        judge.complain(
            "checker", f"{name} failed over columns, each key was judged alone: {error!r}"
        )
        return None


def _alone(judge: _Judge, columns: Columns, numbers: list[int]) -> list[Row]:
    """One history after another."""
    name, part = judge.check.checker, judge.part
    rows: list[Row] = []
    histories = columns.histories(numbers)
    for number in numbers:
        key = columns.keys[number]
        try:
            history = next(histories)
        except HarnessError as error:
            n_ops, reason = int(columns.operations()[number]), f"its ops are not a history: {error}"
            rows.append(Row(checker=name, key=key, reason=reason, n_ops=n_ops, error=str(error)))
            histories = columns.histories(numbers[len(rows) :])
            continue
        rows.append(judge_history(name, history, part.case, part.budget, judge.checkers, key=key))
    return rows
