"""Finds by SQL the results that the runs of a report require, but do not have.

The tables are in an in-memory DuckDB, and refer to runs and result ids by numbers:

| table   | one row per                                                                  |
|---------|------------------------------------------------------------------------------|
| these   | run `n` of the report, with its cost and its `part`                          |
| wants   | result that the runs of a part require, with one id per level of budget      |
| gone    | checker that the runs of a part require, but that is not installed           |
| ids     | result id, with its number `c`                                               |
| listed  | result id in the lake, required or not, with its number of results           |
| known   | result `c` of a run `n` in the lake, with its batch                          |
| todo    | result that the lake lacks, at the current level of budget                   |
| tried   | result that was attempted in this report                                     |
| chosen  | required result, with the stored result that counts                          |
| missing | required result without a stored result                                      |

A part is the set of all runs that require the same results. `results.judging.required_results`
determines what a run requires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from harness.store.footer import cost_of
from results.facts.problems import PROBLEMS_MAX, Problem, Problems
from results.judging.chosen_results import MISSING, OF_WANTS, WITHOUT_ROWS
from results.judging.markers import LIMITED
from results.judging.required_results import Kind, Wants
from results.judging.result_ids import range_of
from results.lake.log.duckdb_views import readable, source_of
from results.lake.log.files import MAIN
from results.lake.log.snapshot import Snapshot
from results.lake.tables.sealed_run import TROUBLES

FACTS: Final = -1
"""The `place` of facts in a run's list of required results. Checkers count from 0."""
MEMORY_MAX: Final = "1GB"
"""DuckDB's memory limit. DuckDB spills larger tables to the disk."""
# CPU ns per history line and result, measured with 1,500 operations and 13 checkers
NS_A_LINE: Final = 16_000
AGAIN_FACTOR: Final = 4
Place = tuple[str, int]
"""A run, and the number of a range of its keys; -1 means the whole run, and sorts first."""
OF_RUNS: Final = (
    *("run", "batch", "target", "label", "day", "workload", "lines", "ops", "state"),
    *("case", "key_ranges"),
)
OF_RESULTS: Final = ("run", "run_batch", "batch", "judged_at", "results", "marks")


class PendingResults:
    """The DuckDB tables that plan one report. The module's docstring lists them."""

    def __init__(self, snapshot: Snapshot, problems: Problems, scratch: Path) -> None:
        """Open an in-memory DuckDB that spills to the folder `scratch`."""
        import duckdb

        self.problems = problems
        self._snapshot = snapshot
        self.connection = duckdb.connect(
            config={
                "temp_directory": str(scratch / "spilled"),
                "memory_limit": MEMORY_MAX,
                "preserve_insertion_order": "false",
            }
        )
        self.ids: list[str] = []
        self.rows("SET TimeZone = 'UTC'")
        self.rows("CREATE TABLE tried (n INTEGER, c INTEGER)")
        self.rows("CREATE TABLE ignored (batch VARCHAR)")

    def rows(self, sql: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement and fetch all rows, since a connection has only one open result."""
        with readable(self._snapshot.place.uri):
            rows: list[tuple[Any, ...]] = self.connection.execute(sql, list(given)).fetchall()
        return rows

    def number(self, sql: str, given: Sequence[Any] = ()) -> int:
        """Return the single integer of a query's result; 0 for null."""
        ((number,),) = self.rows(sql, given)
        return int(number or 0)

    def table(self, name: str, columns: Mapping[str, tuple[str, Sequence[Any]]]) -> None:
        """Create a small table. `columns` maps each name to its SQL type and values."""
        types: dict[str, pa.DataType] = {"string": pa.string(), "int32": pa.int32()}
        table = pa.table(
            {key: pa.array(values, types[kind]) for key, (kind, values) in columns.items()}
        )
        self.connection.register("given", table)
        self.rows(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM given')  # noqa: S608
        self.connection.unregister("given")

    # Stored results ------------------------------------------------------------------------------

    def read_runs(self) -> None:
        batches = [file.batch for file in self._snapshot.files("operations") if file.batch]
        self.table("alone", {"batch": ("string", batches)})
        base = cost_of(1, 0)
        source = source_of(self.connection, self._snapshot, MAIN, OF_RUNS)
        self.rows(
            f"""
            CREATE TABLE these AS
            SELECT CAST(row_number() OVER (ORDER BY run) AS INTEGER) AS n, *,
                   CAST(-1 AS INTEGER) AS part,
                   CASE WHEN batch IN (SELECT batch FROM alone) THEN batch ELSE '' END AS home
            FROM (  -- without the cases, which are most of the bytes
                SELECT run, batch, target, label, day, workload, lines, ops, state,
                       CAST(len(key_ranges) AS INTEGER) AS key_ranges,
                       COALESCE(CAST("case"->'$.checkers' AS VARCHAR), '[]') AS others,
                       lines * (CAST(? AS BIGINT) + CAST(? AS BIGINT)
                           * COALESCE(TRY_CAST("case"->>'$.concurrency' AS BIGINT), 10)) AS cost
                FROM {source}
                WHERE {self._snapshot.within("run")}
            )
            """,  # noqa: S608
            [base, cost_of(1, 1) - base],
        )
        for state, (kind, text) in TROUBLES.items():
            self.complain(kind, text, "SELECT run FROM these WHERE state = ?", [state])

    def complain(self, kind: str, text: str, runs: str, given: Sequence[Any] = ()) -> None:
        """Report one problem for each run of a query; keep the first few, and count all."""
        kept = self.rows(f"{runs} ORDER BY run LIMIT {PROBLEMS_MAX}", given)
        for (run,) in kept:
            self.problems.add(Problem(run, kind, text))
        if len(kept) == PROBLEMS_MAX:
            total = self.number(f"SELECT count(*) FROM ({runs})", given)  # noqa: S608
            self.problems.total += total - len(kept)

    def read_wants(self, wanted: Callable[[Kind], Wants]) -> None:
        """Create the tables `wants`, `gone` and `ids`."""
        kinds = self.rows(
            "SELECT workload, others, key_ranges FROM these GROUP BY ALL ORDER BY ALL"
        )
        wants: list[tuple[int, int, str | None, int, int | None, int | None]] = []
        gone: list[tuple[int, str]] = []
        for part, kind in enumerate(kinds):
            of_kind = "workload = ? AND others = ? AND key_ranges = ?"
            self.rows(f"UPDATE these SET part = ? WHERE {of_kind}", [part, *kind])  # noqa: S608
            of_part = "SELECT run FROM these WHERE part = ?"
            results = wanted(Kind(*kind))
            if results.trouble:
                self.complain("checker", results.trouble, of_part, [part])
            for name, text in results.gone:
                gone.append((part, name))
                self.complain("checker", text, of_part, [part])
            for place, (name, ids) in enumerate(results.checks):
                first, *more = map(self._id, ids)
                second = more[0] if more else None
                wants.append((part, place, name, first, second, range_of(ids[0])))
            if results.facts is not None:
                wants.append((part, FACTS, None, self._id(results.facts), None, None))
        names_of = ("part", "place", "checker", "first", "second", "key_range")
        kinds_of = ("int32", "int32", "string", "int32", "int32", "int32")
        columns = list(zip(*wants, strict=True)) or [()] * len(names_of)
        typed = zip(kinds_of, columns, strict=True)
        self.table("wants", dict(zip(names_of, typed, strict=True)))
        self.table(
            "gone",
            {
                "part": ("int32", [part for part, _ in gone]),
                "checker": ("string", [name for _, name in gone]),
            },
        )
        self.table("ids", {"c": ("int32", range(len(self.ids))), "result_id": ("string", self.ids)})

    def _id(self, result_id: str) -> int:
        if result_id not in self.ids:
            self.ids.append(result_id)
        return self.ids.index(result_id)

    def read_known(self, found: Snapshot | None) -> None:
        """Create the tables `listed` and `known` from the result lake; empty without `found`."""
        if found is None:
            self.rows("CREATE OR REPLACE TABLE listed (result_id VARCHAR, results BIGINT)")
            self.rows(
                "CREATE OR REPLACE TABLE known (n INTEGER, c INTEGER, batch VARCHAR, judged_at "
                "TIMESTAMPTZ, unsettled BOOLEAN, limited BOOLEAN, ignored BOOLEAN)"
            )
            return
        within = found.within("run")
        source = source_of(self.connection, found, MAIN, ["run", "results"])
        self.rows(
            f"""
            CREATE OR REPLACE TABLE listed AS
            SELECT result_id, count(*) AS results
            FROM (SELECT unnest(results) AS result_id FROM {source} WHERE {within}) GROUP BY ALL
            """  # noqa: S608
        )
        source = source_of(self.connection, found, MAIN, OF_RESULTS)
        self.rows(
            f"""
            CREATE OR REPLACE TABLE known AS
            SELECT t.n, i.c, k.batch, k.judged_at, k.mark <> '' AS unsettled, k.mark = ? AS limited,
                   k.mark <> '' AND k.batch IN (SELECT batch FROM ignored) AS ignored
            FROM (
                SELECT run, run_batch, batch, judged_at,
                       unnest(results) AS result_id, unnest(marks) AS mark
                FROM {source} WHERE {within}
            ) k
            JOIN ids i ON i.result_id = k.result_id
            JOIN these t ON t.run = k.run AND t.batch = k.run_batch
            """,  # noqa: S608
            [LIMITED],
        )

    def ignore_unsettled(self, before: str = "infinity") -> None:
        """Make later calls treat unsettled results that were judged before `before` as missing."""
        self.rows(
            "INSERT INTO ignored SELECT DISTINCT batch FROM known "
            "WHERE unsettled AND judged_at < CAST(? AS TIMESTAMPTZ)",
            [before],
        )

    # Pending results -----------------------------------------------------------------------------

    def read_todo(self) -> tuple[int, int]:
        """Create the table `todo`; return the numbers of required and of finished results."""
        self.rows(
            """
            CREATE OR REPLACE TABLE todo AS
            WITH state AS (
                SELECT n, c, bool_and(limited) AS limited FROM known WHERE NOT ignored GROUP BY n, c
            ),
            levels AS (
                SELECT t.n, w.place, w.first, w.second, w.key_range,
                       CASE WHEN one.n IS NULL THEN 1
                            WHEN one.limited AND w.second IS NOT NULL AND two.n IS NULL THEN 2
                       END AS level
                FROM these t
                JOIN wants w ON w.part = t.part
                LEFT JOIN state one ON one.n = t.n AND one.c = w.first
                LEFT JOIN state two ON two.n = t.n AND two.c = w.second
            )
            SELECT n, place, level, key_range,
                   CASE level WHEN 1 THEN first ELSE second END AS c
            FROM levels
            WHERE level IS NOT NULL
            """
        )
        wanted = self.number("SELECT count(*) FROM these t JOIN wants w ON w.part = t.part")
        gone = self.number("SELECT count(*) FROM these t JOIN gone g ON g.part = t.part")
        settled = wanted - self.number("SELECT count(*) FROM todo")
        self.rows("DELETE FROM todo WHERE (n, c) IN (SELECT (n, c) FROM tried)")
        return wanted + gone, settled

    def skip(self, above: int, first: Place, end: Place | None) -> None:
        """Delete from `todo` all work at or below budget level `above`, or outside `[first, end)`.

        If `end` is `None`, the range has no end.
        """
        self.rows("DELETE FROM todo WHERE level <= ?", [above])
        self.rows(
            """
            DELETE FROM todo USING these t
            WHERE t.n = todo.n AND (
                (t.run, COALESCE(key_range, -1)) < (?, ?)
                OR ? AND (t.run, COALESCE(key_range, -1)) >= (?, ?)
            )
            """,
            [*first, end is not None, *(end or first)],
        )

    def ranges(self, size_of: Callable[[int], int]) -> list[tuple[Any, ...]]:
        """Cut pending work into ranges of runs, each with a cost of about `size_of(total)`.

        Each row has the first run and its key range; the numbers of runs, of results, and of
        results retried with a larger budget; and the cost in CPU ns. A run or key range that costs
        more, or whose earlier attempt was cut short, is a range of its own.
        """
        self.rows(
            f"""
            CREATE OR REPLACE TABLE lacking AS
            SELECT run, keys, results, again,
                   lines * (1 + results + {AGAIN_FACTOR} * again) * {NS_A_LINE} AS cost
            FROM (
                SELECT t.run, COALESCE(o.key_range, -1) AS keys,
                       greatest(CASE WHEN o.key_range IS NULL THEN t.lines
                                     ELSE t.lines // t.key_ranges END, 1) AS lines,
                       count(*) AS results, count(*) FILTER (o.level > 1) AS again
                FROM todo o JOIN these t ON t.n = o.n
                GROUP BY t.run, t.lines, t.key_ranges, o.key_range
            )
            """  # noqa: S608
        )
        size = size_of(self.number("SELECT CAST(sum(cost) AS BIGINT) FROM lacking"))
        return self.rows(
            """
            WITH sized AS (SELECT *, cost >= ? OR again > 0 AS alone FROM lacking),
            placed AS (
                SELECT *, sum(cost) OVER so_far // ? AS slice,
                       count(*) FILTER (alone) OVER so_far AS number
                FROM sized
                WINDOW so_far AS (ORDER BY run, keys ROWS UNBOUNDED PRECEDING)
            )
            SELECT first(run ORDER BY run, keys) AS run, first(keys ORDER BY run, keys) AS keys,
                   count(DISTINCT run), CAST(sum(results) AS BIGINT), CAST(sum(again) AS BIGINT),
                   CAST(sum(cost) AS BIGINT)
            FROM placed
            GROUP BY slice, number, alone
            ORDER BY 1, 2
            """,
            [size, size],
        )

    def cost_left(self) -> int:
        return self.number(
            "SELECT CAST(sum(cost) AS BIGINT) FROM these WHERE n IN (SELECT n FROM todo)"
        )

    def cut(self, *, cost: int, runs: int, lines: int) -> list[tuple[Any, ...]]:
        """Cut the pending work into pieces within the limits `cost`, `runs` and `lines`.

        A single run may exceed the limits. Each row has target, label and day; level of budget;
        numbers of result ids; runs; batches of the runs; lines and cost. The runs of a piece are
        neighbours in the same files and lack the same results.
        """
        return self.rows(
            """
            WITH work AS (
                SELECT n, level, list(c ORDER BY place) AS cs,
                       CASE WHEN key_range IS NULL THEN 1 ELSE t.key_ranges END AS ranges
                FROM todo JOIN these t USING (n)
                GROUP BY n, level, key_range, ranges
            ),
            cut AS (
                SELECT t.* REPLACE (t.lines // w.ranges AS lines, t.cost // w.ranges AS cost),
                       w.level, w.cs,
                       CAST(floor(sum(greatest(
                           t.cost / w.ranges / CAST(? AS DOUBLE), 1 / CAST(? AS DOUBLE),
                           t.lines / w.ranges / CAST(? AS DOUBLE)
                       )) OVER (
                           PARTITION BY t.target, t.label, t.day, w.level, w.cs, t.home
                           ORDER BY t.run ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                       ) - 1e-9) AS BIGINT) AS piece
                FROM work w JOIN these t ON t.n = w.n
            )
            SELECT target, label, day, level, cs, list(run ORDER BY run) AS runs,
                   list(DISTINCT batch) AS batches, CAST(sum(lines) AS BIGINT) AS lines,
                   CAST(sum(cost) AS BIGINT) AS cost
            FROM cut
            GROUP BY target, label, day, level, cs, home, piece
            ORDER BY min(run), level
            """,
            [cost, runs, lines],
        )

    def checkers_of_ids(self) -> dict[int, str]:
        """Map the number of each result id to its checker; ids of facts are left out."""
        return dict(
            self.rows(
                """
                SELECT DISTINCT first, checker FROM wants WHERE checker IS NOT NULL
                UNION SELECT DISTINCT second, checker FROM wants WHERE second IS NOT NULL
                """
            )
        )

    def note_tried(self) -> None:
        """Record everything in `todo` as attempted."""
        self.rows("INSERT INTO tried SELECT n, c FROM todo")

    # Results that count --------------------------------------------------------------------------

    def choose(self) -> None:
        """Create the tables `chosen` and `missing`. A result of the largest budget is preferred."""
        self.rows(f"CREATE OR REPLACE TABLE chosen AS {OF_WANTS}")
        self.rows(f"CREATE OR REPLACE TABLE missing AS {MISSING}")

    def verdicts_without_rows(self, found: Snapshot) -> int:
        """Count the chosen verdicts that the result lake lists, but whose row is missing.

        Runs without operations do not count, because a checker of independent keys makes no row for
        them.
        """
        source = source_of(self.connection, found, "verdicts", ("run", "batch", "result_id"))
        return self.number(WITHOUT_ROWS.format(source=source), [FACTS])

    def forget(self) -> None:
        """Drop the tables that only `choose` uses. Later calls make them again."""
        for name in ("listed", "known", "todo", "chosen", "missing"):
            self.rows(f'DROP TABLE IF EXISTS "{name}"')

    def close(self) -> None:
        self.connection.close()
