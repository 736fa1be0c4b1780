"""Writes the tables of a report (`results.facts.schema`) from a lake, as Parquet files.

The table `chosen` (run, result, batch) lists the results that count, and the table `missing` lists
the results that are absent. Rows of `runs` and `traits` are computed from the lake's own `runs`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from results.facts.schema import COLUMNS, FACT_TABLES, OF_RUNS
from results.judging.pending_results import PendingResults
from results.lake.log.duckdb_views import CODE, STARTED, source_of
from results.lake.log.files import MAIN
from results.lake.log.snapshot import Snapshot
from results.questions.engines import quoted

_RUNS: Final = f"""
    SELECT r.run, r.name, r.label, r.environment, r.target, r.profile, r.workload, r.nemeses,
           r.asked, r.bugs, r.checkers, r.setting, r.seed,
           {STARTED} AS started,
           CASE WHEN r.wall_s >= 0 AND r.wall_s < 1e9
                THEN CAST(trunc(r.wall_s * 1e9) AS BIGINT) END AS wall_ns,
           r.length_ns, r.verdict AS recorded, r.digest, r.lines, r.ops, r.ok, r.fail, r.info,
           r.refused, r.elections, r.faults, r.interrupted,
           {CODE} AS code
    FROM {{source}} r
    WHERE r.run IN (SELECT run FROM chosen)
"""  # noqa: S608
_OF_RUNS: Final = (
    *("run", "name", "label", "environment", "target", "profile", "workload", "nemeses", "asked"),
    *("bugs", "checkers", "setting", "seed", "started", "wall_s", "length_ns", "verdict"),
    *("digest", "lines", "ops", "ok", "fail", "info", "refused", "elections", "faults"),
    *("interrupted", "versions"),
)
_TRAITS: Final = """
    SELECT run, trait, unnest(string_split(texts, '+')) AS value
    FROM (
        SELECT run, unnest(['nemesis', 'bug']) AS trait, unnest([nemeses, bugs]) AS texts
        FROM {source} WHERE run IN (SELECT run FROM chosen)
    ) WHERE texts <> ''
"""
_OF_CHOSEN: Final = "result_id IN (SELECT result_id FROM chosen)"
_OF_TRAITS: Final = ("run", "nemeses", "bugs")


def write_tables(
    ledger: PendingResults, lake: Snapshot, found: Snapshot | None, folder: Path, *, facts: bool
) -> tuple[dict[str, tuple[Path, ...]], dict[str, str]]:
    """Write or find the files of each table; return the files and SQL conditions (`Gathered`).

    The tables of verdicts and facts are files of the result lake, which may also have rows of other
    runs. `ledger` must have the tables `chosen`, `missing`, `listed` and `stand_ins`.
    """
    from results.facts.schema import schema

    paths: dict[str, tuple[Path, ...]] = {}
    counting: dict[str, str] = {}
    chosen = found is not None and ledger.number("SELECT count(*) FROM chosen")
    where = _counting(ledger, found, folder / "beyond.parquet") if found and chosen else ""
    for name in COLUMNS:
        path = folder / f"{name}.parquet"
        kept = name == "verdicts" or (facts and name in FACT_TABLES)
        if found and chosen and kept and (files := found.files(name)):
            paths[name] = tuple(Path(file.uri) for file in files)
            counting[name] = where
        if name == "verdicts" and ledger.number("SELECT count(*) FROM missing"):
            _copy(ledger, _stand_ins(), path)
            paths[name] = (*paths.get(name, ()), path)
            if name in counting:
                counting[name] = f"(here.result_id = '' OR ({where}))"
        elif facts and name in OF_RUNS:
            text, columns = (_RUNS, _OF_RUNS) if name == "runs" else (_TRAITS, _OF_TRAITS)
            source = source_of(ledger.connection, lake, MAIN, columns)
            _copy(ledger, text.format(source=source), path)
            paths[name] = (path,)
        if not paths.get(name):
            pq.write_table(schema(name).empty_table(), path)
            paths[name] = (path,)
    return paths, counting


def _counting(ledger: PendingResults, found: Snapshot, beyond: Path) -> str:
    parts = ["true"]
    if ledger.number(f"SELECT count(*) FROM listed WHERE NOT {_OF_CHOSEN}"):  # noqa: S608
        ids = ledger.rows("SELECT DISTINCT result_id FROM chosen ORDER BY ALL")
        parts.append(f"here.result_id IN ({', '.join(quoted(result_id) for (result_id,) in ids)})")
    listed = ledger.number(f"SELECT sum(results) FROM listed WHERE {_OF_CHOSEN}")  # noqa: S608
    if listed != ledger.number("SELECT count(*) FROM chosen"):
        source = source_of(ledger.connection, found, MAIN, ["run", "batch", "results"])
        ledger.rows(
            f"""
            COPY (
                SELECT run, result_id, batch
                FROM (
                    SELECT run, batch, unnest(results) AS result_id
                    FROM {source} WHERE {found.within("run")}
                )
                ANTI JOIN chosen USING (run, result_id, batch)
                WHERE {_OF_CHOSEN}
            ) TO {quoted(str(beyond))} (FORMAT parquet)
            """  # noqa: S608
        )
        same = " AND ".join(f"b.{name} = here.{name}" for name in ("run", "result_id", "batch"))
        table = f"read_parquet({quoted(str(beyond))})"
        parts.append(f"NOT EXISTS (SELECT 1 FROM {table} b WHERE {same})")  # noqa: S608
    return " AND ".join(parts)


def _copy(ledger: PendingResults, text: str, path: Path) -> None:
    ledger.rows(f"COPY ({text}) TO {quoted(str(path))} (FORMAT parquet, COMPRESSION zstd)")


def _stand_ins() -> str:
    """Return SQL that substitutes rows for missing verdicts, in runs that have any other result."""
    columns = [column for column, _, _ in COLUMNS["verdicts"]]
    selected = ", ".join(
        f'm.run AS "{name}"' if name == "run" else f's."{name}"' for name in columns
    )
    return f"""
        SELECT {selected} FROM missing m JOIN stand_ins s ON s.checker = m.checker
        WHERE m.n IN (SELECT n FROM chosen)
    """  # noqa: S608
