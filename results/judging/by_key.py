"""Judges runs over independent keys, each key separately and one range of keys at a time.

A lake stores the operations of such a run sorted by key and cut into ranges
(`results.lake.tables.line_batches`). Each range has a result of its own, whose id ends in the
number of the range. So a worker holds only one range in memory. History lines from the nemesis and
the harness (*notes*) concern all keys. They do not influence verdicts, but appear in explanations
of invalid keys.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from harness.case import imported_case
from harness.errors import HistoryError, counted
from harness.independent import VACUOUS
from harness.ops import History, Verdict
from results.judging.budgets import Budget
from results.judging.staged_results import RunOfLake
from results.judging.verdict_rows import Row, judge_history
from results.lake.tables.rebuild import histories_by_key, history_of


def notes_of(rows: Mapping[str, pa.Table]) -> History:
    """Return the history lines of nemesis and harness from a run's rows in a lake."""
    none = {name: rows[name].slice(0, 0) for name in ("operations", "attempts")}
    return history_of({**rows, **none})


def judge_range(
    checker: str,
    run: RunOfLake,
    number: int,
    rows: Mapping[str, pa.Table],
    budget: Budget,
) -> list[Row]:
    """Judge each key of a range of keys; raise `HistoryError` if operations are missing.

    A key in whose operations the checker has nothing to judge counts as valid, unless this holds
    for all keys of the range.
    """
    count, expected = len(rows["operations"]), run.key_ranges[number]
    if count != expected:
        raise HistoryError(
            f"the lake has {counted(count, 'operation')} in range {number} of the run's keys, but "
            f"{expected} were appended"
        )
    case = imported_case(*run.case.checkers, independent=False)
    notes: History | None = None
    judged: list[Row] = []
    for key, ops in histories_by_key(rows):
        row = judge_history(checker, History(ops), case, budget, key=key)
        if row.verdict == Verdict.INVALID.value:
            notes = notes_of(rows) if notes is None else notes
            if notes:
                whole = History(sorted([*ops, *notes], key=lambda op: op.index))
                row = judge_history(checker, whole, case, budget, key=key)
        judged.append(row)
    if not all(row.rule in VACUOUS for row in judged):
        for row in judged:
            if row.rule in VACUOUS and row.verdict == Verdict.UNKNOWN.value:
                row.verdict, row.rule, row.signature = Verdict.VALID.value, None, None
    return judged
