"""Results that are listed, and of which no row is there: somebody removed it, or a disk lost it.

The lake's results list what is known of a run; the rows lie in other tables. Every result has some:
a verdict at least one, and the facts of a run with operations those of `ops`. One without would
count as known, and its run as valid for want of a verdict; so it is as good as not listed. DuckDB
compares them by their hashes, in three columns of two tables, which takes 0.5 s of CPU for the
results of 10^5 runs: less than a job of Spark, whose driver asks here as well.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from results.lake.log.duckdb_views import readable, source_of
from results.lake.log.files import BATCH, KEY, MAIN

if TYPE_CHECKING:
    from results.lake.log.snapshot import Snapshot

__all__ = ["TEXT", "Rowless", "rowless"]

TEXT: Final = "results are listed, and their rows are gone; they are found again"
"""What is said of a run that has some."""

WITH_ROWS: Final = ("verdicts", "ops")
MEMORY_MAX: Final = "1GB"
"""What does not fit goes to the disk."""
_TRIPLE: Final = (KEY, BATCH, "result_id")


class Rowless(NamedTuple):
    """One that has no row: of which run and batch of it, and in which batch it is listed.

    `again`: it is listed in another batch as well, with rows.
    """

    run: str
    run_batch: str
    batch: str
    result_id: str
    again: bool


def rowless(lake: Snapshot, found: Snapshot, ids: Sequence[str] | None = None) -> list[Rowless]:
    """Those among the results `found` about the runs of `lake`, as a rule none.

    With `ids`, others are not looked at. Of runs without operations nothing is said: a checker of
    keys has nothing to say of them either. Raises `InfrastructureError` for what cannot be read.
    """
    import duckdb
    import pyarrow as pa

    within = found.within(KEY)

    def there() -> str:
        rows = [
            f"SELECT DISTINCT {_hash()} AS h FROM {source_of(sql, found, table, _TRIPLE)} "  # noqa: S608
            f"WHERE {within}"
            for table in WITH_ROWS
            if found.tables.get(table)
        ]
        return " UNION ALL ".join(rows) or "SELECT CAST(0 AS UBIGINT) AS h WHERE false"

    with tempfile.TemporaryDirectory(prefix="harness-") as spilled, readable(lake.place.uri):
        config: Any = {"temp_directory": spilled, "memory_limit": MEMORY_MAX}
        with contextlib.closing(duckdb.connect(config=config)) as sql:
            # Whatever has rows is listed: where there are as many of both, they are the same.
            listings = source_of(sql, found, MAIN, [KEY, "results"])
            text = EQUAL.format(listings=listings, there=there(), within=within)
            if sql.execute(text).fetchall() == [(True,)]:
                return []
            if ids is not None:
                sql.register("ids", pa.table({"result_id": pa.array(ids, pa.string())}))
            text = LOST.format(
                listings=source_of(sql, found, MAIN, [KEY, "run_batch", BATCH, "results"]),
                listed=_hash("l."),
                there=there(),
                within=within,
                wanted="" if ids is None else "WHERE result_id IN (SELECT result_id FROM ids)",
            )
            sql.register("lake_runs", lake.dataset(MAIN))
            return [Rowless(*row) for row in sql.execute(text).fetchall()]


EQUAL: Final = """
SELECT COALESCE((SELECT sum(len(results)) FROM {listings} WHERE {within}), 0)
     = (SELECT count(*) FROM ({there}))
"""
LOST: Final = """
WITH listed AS MATERIALIZED (
    SELECT * FROM (SELECT run, run_batch, batch, unnest(results) AS result_id FROM {listings}
                   WHERE {within})
    {wanted}
),
there AS ({there}),
lost AS (
    SELECT l.* FROM listed l ANTI JOIN there t ON t.h = {listed}
),
again AS (
    SELECT DISTINCT l.run, l.run_batch, l.result_id
    FROM (SELECT * FROM listed SEMI JOIN lost USING (run, run_batch, result_id)) l
    ANTI JOIN lost o ON o.run = l.run AND o.batch = l.batch AND o.result_id = l.result_id
)
SELECT l.run, l.run_batch, l.batch, l.result_id, a.run IS NOT NULL
FROM lost l
JOIN lake_runs r ON r.run = l.run AND r.batch = l.run_batch
LEFT JOIN again a
ON a.run = l.run AND a.run_batch = l.run_batch AND a.result_id = l.result_id
WHERE r.ops > 0
ORDER BY ALL
"""


def _hash(prefix: str = "") -> str:
    return f"hash({', '.join(prefix + name for name in _TRIPLE)})"
