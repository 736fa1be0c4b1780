"""Chooses which of several stored results counts for a run.

A run has several results after a change of a checker's version or of the budget, after two
concurrent reports, or after a retry of an unsettled result (left unknown by a budget or a crash).
The result with the largest budget is preferred, then a settled result, then the newest.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import pyarrow as pa

from results.lake.log.storage_errors import require

BEST_FIRST: Final = "k.unsettled, k.judged_at DESC, k.batch"
"""The SQL order of the results `k` of one checker for one run. The first result counts."""

OF_WANTS: Final = f"""
    WITH ranked AS (
        SELECT t.n, t.run, w.place, k.c, k.batch, k.unsettled,
               row_number() OVER (
                   PARTITION BY t.n, w.place ORDER BY k.ignored, k.c = w.first, {BEST_FIRST}
               ) AS number
        FROM these t
        JOIN wants w ON w.part = t.part
        JOIN known k ON k.n = t.n AND (k.c = w.first OR k.c = w.second)
    )
    SELECT r.n, r.run, r.place, i.result_id, r.batch, r.unsettled
    FROM ranked r JOIN ids i ON i.c = r.c
    WHERE r.number = 1
"""  # noqa: S608
"""SQL that chooses, for each required result, the stored result that counts.

The SQL reads the tables of `results.judging.pending_results`.
"""

MISSING: Final = """
    SELECT t.n, t.run, w.checker, false AS gone
    FROM these t JOIN wants w ON w.part = t.part
    ANTI JOIN chosen c ON c.n = t.n AND c.place = w.place
    UNION ALL
    SELECT t.n, t.run, g.checker, true FROM these t JOIN gone g ON g.part = t.part
"""
"""SQL for the required results without a stored result, and for checkers not installed (`gone`)."""

WITHOUT_ROWS: Final = """
    SELECT count(*) FROM chosen
    SEMI JOIN (SELECT n FROM these WHERE ops > 0) USING (n)
    ANTI JOIN {source} USING (run, batch, result_id)
    WHERE place <> ?
"""
"""SQL that counts the chosen verdicts without a row in `source`, among runs with operations.

Facts are no verdicts: the parameter is their `place`, which is left out.
"""

_COUNTING: Final = f"""
    WITH checkers AS (SELECT DISTINCT result_id, checker FROM verdicts),
    listed AS (
        SELECT *, mark <> '' AS unsettled FROM (
            SELECT run, run_batch, batch, judged_at,
                   unnest(results) AS result_id, unnest(marks) AS mark
            FROM results
        )
    )
    SELECT k.run, k.result_id, k.batch,
           r.run IS NOT NULL AND 1 = row_number() OVER (
               PARTITION BY k.run, c.checker, split_part(k.result_id, '.', 2)
               ORDER BY r.run IS NULL, {BEST_FIRST}
           ) AS counts
    FROM listed k
    LEFT JOIN runs r ON r.run = k.run AND r.batch = k.run_batch
    LEFT JOIN checkers c ON c.result_id = k.result_id
"""  # noqa: S608


def counting(*, runs: Any, results: Any, verdicts: Any) -> pa.Table:
    """Return one row per result in the result lake: run, id, batch, and whether it counts.

    `runs` are rows of the lake. `results` and `verdicts` are rows of its result lake. All are Arrow
    tables or datasets.
    """
    inputs = {"runs": runs, "results": results, "verdicts": verdicts}
    with contextlib.closing(require("duckdb").connect()) as connection:
        for name, rows in inputs.items():
            connection.register(name, rows)
        counts: pa.Table = connection.sql(_COUNTING).to_arrow_table()
    return counts
