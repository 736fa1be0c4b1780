"""The tables of a report as views over a lake and its results: those of `results.schema`.

Of several results that are the same one counts: of the largest budget, settled before unsettled,
then the newest. `chosen` says which, a row a run and checker; `shadowed` are the others that lie in
the lake, of which there are few or none: whoever reads a table of results leaves those out, and
those of ids that nobody wants. Where the last plan saw that there is nothing else in the lake
(`plain`), neither is asked for. Only these stay in executors' memory; columns of large tables are
read anew by the few that read them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from results.engines import SparkEngine
from results.lake.files import MAIN
from results.lake.judged import FACTS_KEPT
from results.schema import COLUMNS, ddl
from results.spark_lake.frames import lake_frame, listed_frame
from results.spark_lake.planning import EVER, FACTS, Wish, wishes_table
from results.store_scan import PROBLEMS_MAX
from results.units import no_verdict, table_of

if TYPE_CHECKING:
    from results.lake.snapshot import Snapshot
    from results.sources.rowless import Rowless

__all__ = ["Lacking", "LakeEngine", "LakeTables"]

KNOWN_COLUMNS: Final = ("run", "run_batch", "batch", "judged_at", "results", "marks")


RUNS_EVERYWHERE_MAX: Final = 300_000
"""Up to so many runs large tables are joined with them where they are, without a shuffle: the key
and the population of so many take 50 MB of an executor, and of the driver's Java."""


class Lacking(NamedTuple):
    """What could not be had, of the first few runs; and how many results are unsettled.

    `unjudged` counts runs without any result.
    """

    runs: tuple[tuple[str, str], ...]  # run, checker or FACTS
    total: int  # of runs
    unsettled: int
    unjudged: int = 0


class LakeTables:
    """The views of one report; `close` drops them."""

    def __init__(
        self,
        spark: Any,
        snapshot: Snapshot,
        results: Snapshot,
        *,
        runs: str,
        wishes: Sequence[Wish],
        gone: Sequence[tuple[str, str]],
        since: str = "",
        plain: bool = False,
        lost: Sequence[Rowless] = (),
    ) -> None:
        """`runs` is a view with the columns run, batch and kind; `since` is that of `plan_tasks`.

        `gone` are kinds and the checkers of theirs that cannot be had. `plain` says that `results`
        has each result that is wanted once, and no other. `lost` are listed there without a row.
        """
        self.plain = plain
        self._spark = spark
        self._snapshot = snapshot
        self._results = results
        self._mark = uuid.uuid4().hex[:8]
        self._views: list[str] = []
        self._cached: list[Any] = []
        self._runs = runs
        self._wanted_ids = sorted({wish.result_id for wish in wishes})
        if plain:
            return
        self._ids = self._view("ids", spark.createDataFrame(wishes_table(wishes)))
        wanted = sorted({*((wish.kind, wish.checker) for wish in wishes), *gone})
        self._wanted = self._small("wanted", ("kind", "checker"), wanted)
        self._gone = self._small("gone", ("kind", "checker"), gone)
        known = self._view("known", listed_frame(spark, results, lost, columns=KNOWN_COLUMNS))
        listed = self._view("listed", lake_frame(spark, results, MAIN, columns=KNOWN_COLUMNS))
        text = CHOSEN.format(known=known, ids=self._ids, runs=runs, since=since or EVER)
        self._chosen = self._view("chosen", self._keep(spark.sql(text)))
        text = SHADOWED.format(known=listed, ids=self._ids, chosen=self._chosen)
        shadowed = self._keep(spark.sql(text))
        self._shadowed = self._view("shadowed", shadowed) if shadowed.count() else None
        text = LACKING.format(runs=runs, wanted=self._wanted, chosen=self._chosen)
        self._lacking = self._view("lacking", self._keep(spark.sql(text)))

    def _view(self, name: str, frame: Any) -> str:
        """The name of a new view."""
        found = f"harness_{name}_{self._mark}"
        frame.createOrReplaceTempView(found)
        self._views.append(found)
        return found

    def _small(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        import pyarrow as pa

        table = pa.table(
            {
                column: pa.array([row[place] for row in rows], pa.string())
                for place, column in enumerate(columns)
            }
        )
        # Of a table without rows Connect takes no schema but this one.
        return self._view(name, self._spark.createDataFrame(table, ddl(table.schema)))

    def _keep(self, frame: Any) -> Any:
        self._cached.append(frame.cache())
        return frame

    def lacking(self) -> Lacking:
        """What could not be had; of the runs that lack something, the first few."""
        text = FIRST.format(lacking=self._lacking, gone=self._gone, most=PROBLEMS_MAX)
        rows = self._spark.sql(text).toArrow().to_pylist()
        text = COUNTED.format(chosen=self._chosen, lacking=self._lacking)
        (counts,) = self._spark.sql(text).toArrow().to_pylist()
        return Lacking(
            tuple((row["run"], row["checker"]) for row in rows),
            rows[0]["total"] if rows else 0,
            counts["unsettled"],
            counts["unjudged"],
        )

    def frames(self) -> dict[str, Any]:
        """A DataFrame a table of `results.schema.COLUMNS`."""
        return {
            "runs": self._of_lake(RUNS),
            "traits": self._of_lake(TRAITS),
            "verdicts": self._verdicts(),
            **{name: self._of_results(name) for name in FACTS_KEPT},
        }

    def _of_lake(self, text: str) -> Any:
        runs = self._view(
            "lake_runs", lake_frame(self._spark, self._snapshot, MAIN, columns=RUN_COLUMNS)
        )
        chosen = "" if self.plain else f"LEFT SEMI JOIN {self._chosen} c ON c.run = r.run"
        return self._spark.sql(text.format(runs=runs, chosen=chosen))

    def _of_results(self, name: str) -> Any:
        columns = [column for column, _, _ in COLUMNS[name]]
        frame = lake_frame(
            self._spark,
            self._results,
            name,
            columns=[*dict.fromkeys([*columns, "result_id", "batch"])],
        )
        rows = self._view(f"rows_{name}", frame)
        own = ", ".join(f"j.`{column}`" for column in columns)
        if self.plain:
            return self._spark.sql(f"SELECT {own} FROM {rows} j")  # noqa: S608
        ids = ", ".join(f"'{one}'" for one in self._wanted_ids) or "''"
        but = "" if self._shadowed is None else BUT.format(shadowed=self._shadowed)
        return self._spark.sql(ROWS.format(own=own, rows=rows, ids=ids, but=but))

    def _verdicts(self) -> Any:
        """Those that were found, and those that stand in for what could not be had."""
        import pyarrow as pa

        found = self._of_results("verdicts")
        if self.plain:
            return found
        names = self._spark.sql(
            f"SELECT DISTINCT checker FROM {self._lacking} WHERE begun AND checker <> '{FACTS}'"  # noqa: S608
        )
        found_names = names.toArrow().column("checker").to_pylist()
        if not found_names:
            return found
        rows = [table_of([no_verdict(name)], "", "") for name in sorted(found_names)]
        stand_ins = self._view("stand_ins", self._spark.createDataFrame(pa.concat_tables(rows)))
        own = ", ".join(
            "m.run" if column == "run" else f"s.`{column}`" for column, _, _ in COLUMNS["verdicts"]
        )
        return found.unionAll(
            self._spark.sql(STAND_INS.format(own=own, lacking=self._lacking, stand_ins=stand_ins))
        )

    def close(self) -> None:
        """Drop the views and forget what was kept."""
        for frame in self._cached:
            frame.unpersist()
        for name in self._views:
            self._spark.catalog.dropTempView(name)


class LakeEngine(SparkEngine):
    """Answers SQL over the tables of a lake."""

    def __init__(self, session: Any, tables: LakeTables, *, runs: int) -> None:
        """The tables are closed with the engine; `runs` is how many there are."""
        super().__init__(session)
        self._everywhere = runs <= RUNS_EVERYWHERE_MAX
        self._tables = tables
        self._frames: Mapping[str, Any] = tables.frames()

    def register(self, table: str, paths: Sequence[Path]) -> None:
        """The view of that name; it is made of no files."""
        assert not paths
        self._view(table, self._frames[table])

    def keep(self, table: str, text: str) -> None:
        """See `Engine`. What has a row a run goes to every executor, unless that is too large."""
        frame = self._session.sql(text).cache()
        self._cached.append(frame)
        self._view(table, frame.hint("broadcast") if self._everywhere else frame)

    def close(self) -> None:
        """See `Engine`."""
        super().close()
        with contextlib.suppress(Exception):  # the session may be gone
            self._tables.close()


CHOSEN: Final = """
WITH found AS (
    SELECT k.run, k.run_batch, k.batch, k.judged_at, one.result_id, one.mark
    FROM {known} k LATERAL VIEW INLINE(ARRAYS_ZIP(k.results, k.marks)) one AS result_id, mark
),
best AS (
    SELECT f.run, i.checker,
           MAX(STRUCT(
               f.mark = '' OR f.judged_at >= TIMESTAMP '{since}' AS counts, i.level,
               f.mark = '' AS settled, f.judged_at, f.batch, f.result_id, f.mark)) AS row
    FROM found f
    JOIN {runs} r ON r.run = f.run AND r.batch = f.run_batch
    JOIN {ids} i ON i.result_id = f.result_id AND i.kind = r.kind
    GROUP BY f.run, i.checker
)
SELECT run, checker, row.result_id, row.batch, row.mark FROM best
"""
LACKING: Final = """
WITH wanted AS (SELECT kind, COLLECT_LIST(checker) AS checkers FROM {wanted} GROUP BY kind),
there AS (SELECT run, COLLECT_LIST(checker) AS checkers FROM {chosen} GROUP BY run)
SELECT r.run, t.run IS NOT NULL AS begun,
       EXPLODE(ARRAY_EXCEPT(
           w.checkers, COALESCE(t.checkers, CAST(ARRAY() AS ARRAY<STRING>)))) AS checker
FROM {runs} r
JOIN wanted w ON w.kind = r.kind
LEFT JOIN there t ON t.run = r.run
"""
FIRST: Final = """
SELECT run, MIN(checker) AS checker, COUNT(*) OVER () AS total
FROM {lacking}
WHERE checker NOT IN (SELECT checker FROM {gone})
GROUP BY run
ORDER BY run
LIMIT {most}
"""
COUNTED: Final = """
SELECT (SELECT COUNT_IF(mark <> '') FROM {chosen}) AS unsettled,
       (SELECT COUNT(DISTINCT run) FROM {lacking} WHERE NOT begun) AS unjudged
"""
STAND_INS: Final = """
SELECT {own} FROM {lacking} m JOIN {stand_ins} s ON s.checker = m.checker WHERE m.begun
"""
ROWS: Final = """
SELECT {own} FROM {rows} j {but}
WHERE j.result_id IN ({ids})
"""
BUT: Final = """
LEFT ANTI JOIN {shadowed} s ON s.run = j.run AND s.result_id = j.result_id AND s.batch = j.batch
"""
SHADOWED: Final = """
SELECT f.run, f.result_id, f.batch
FROM (SELECT run, batch, EXPLODE(results) AS result_id FROM {known}) f
LEFT SEMI JOIN {ids} i ON i.result_id = f.result_id
LEFT ANTI JOIN {chosen} c ON c.run = f.run AND c.result_id = f.result_id AND c.batch = f.batch
"""
RUN_COLUMNS: Final = (
    *(
        "run",
        "name",
        "label",
        "environment",
        "target",
        "profile",
        "workload",
        "nemeses",
        "asked",
        "bugs",
    ),
    *("checkers", "setting", "seed", "started", "wall_s", "length_ns", "verdict", "digest"),
    *("lines", "ops", "ok", "fail", "info", "refused", "elections", "faults", "interrupted"),
    "versions",
)
RUNS: Final = """
SELECT r.run, r.name, r.label, r.environment, r.target, r.profile, r.workload, r.nemeses, r.asked,
       r.bugs, r.checkers, r.setting, r.seed,
       CONCAT(
           DATE_FORMAT(r.started, 'yyyy-MM-dd'), 'T', DATE_FORMAT(r.started, 'HH:mm:ss'),
           CASE WHEN UNIX_MICROS(r.started) % 1000000 = 0 THEN ''
                ELSE DATE_FORMAT(r.started, '.SSSSSS') END,
           '+00:00') AS started,
       CASE WHEN r.wall_s >= 0 AND r.wall_s < 1e9D THEN CAST(r.wall_s * 1e9D AS BIGINT) END
           AS wall_ns,
       r.length_ns, r.verdict AS recorded, r.digest, r.lines, r.ops, r.ok, r.fail, r.info,
       r.refused, r.elections, r.faults, r.interrupted,
       COALESCE(
           NULLIF(GET_JSON_OBJECT(r.versions, '$.commit'), ''),
           NULLIF(GET_JSON_OBJECT(r.versions, '$.code'), ''),
           CONCAT('harness ', NULLIF(GET_JSON_OBJECT(r.versions, '$.harness'), ''))) AS code
FROM {runs} r
{chosen}
"""
TRAITS: Final = """
WITH own AS (
    SELECT r.run, r.nemeses, r.bugs FROM {runs} r {chosen}
)
SELECT run, 'nemesis' AS trait, EXPLODE(SPLIT(nemeses, '[+]')) AS value
FROM own WHERE nemeses <> ''
UNION ALL
SELECT run, 'bug' AS trait, EXPLODE(SPLIT(bugs, '[+]')) AS value FROM own WHERE bugs <> ''
"""
