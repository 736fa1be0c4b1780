"""The tables of a report out of a lake: those of `results.schema`, a Parquet file each.

Which results count stands in the table `chosen` (run, result, batch); what could not be had in
`missing`. Rows of `runs` and `traits` follow from the lake's own `runs`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from results.lake.judged import FACTS_KEPT
from results.schema import COLUMNS, FACT_TABLES

if TYPE_CHECKING:
    from results.lake.snapshot import Snapshot

__all__ = ["write_tables"]

_RUNS: Final = """
    SELECT r.run, r.name, r.label, r.environment, r.target, r.profile, r.workload, r.nemeses,
           r.asked, r.bugs, r.checkers, r.setting, r.seed,
           strftime(r.started AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S')
               || CASE WHEN epoch_us(r.started) % 1000000 = 0 THEN ''
                       ELSE strftime(r.started AT TIME ZONE 'UTC', '.%f') END
               || '+00:00' AS started,
           CASE WHEN r.wall_s >= 0 AND r.wall_s < 1e9
                THEN CAST(trunc(r.wall_s * 1e9) AS BIGINT) END AS wall_ns,
           r.length_ns, r.verdict AS recorded, r.digest, r.lines, r.ops, r.ok, r.fail, r.info,
           r.refused, r.elections, r.faults, r.interrupted
    FROM lake_runs r
    WHERE r.run IN (SELECT run FROM chosen)
"""
_TRAITS: Final = """
    SELECT run, 'nemesis' AS trait, unnest(string_split(nemeses, '+')) AS value
    FROM lake_runs WHERE nemeses <> '' AND run IN (SELECT run FROM chosen)
    UNION ALL
    SELECT run, 'bug' AS trait, unnest(string_split(bugs, '+')) AS value
    FROM lake_runs WHERE bugs <> '' AND run IN (SELECT run FROM chosen)
"""


def write_tables(sql: Any, found: Snapshot | None, folder: Path, *, facts: bool) -> dict[str, Path]:
    """Write them with a DuckDB connection that has the tables named above, and `stand_ins`."""
    import pyarrow.parquet as pq

    from results.schema import schema

    paths: dict[str, Path] = {}
    for name in ("verdicts", *FACT_TABLES):
        path = paths[name] = folder / f"{name}.parquet"
        text = None
        if name == "verdicts":
            text = _verdicts(sql, found)
        elif facts and name in {"runs", "traits"}:
            text = _RUNS if name == "runs" else _TRAITS
        elif facts and name in FACTS_KEPT and found is not None:
            text = _rows(sql, found, name)
        if text is None:
            pq.write_table(schema(name).empty_table(), path)
        else:
            sql.execute(f"COPY ({text}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)").fetchall()
    return paths


def _rows(sql: Any, found: Snapshot, name: str) -> str:
    """The rows of a table that belong to chosen results."""
    sql.register(f"judged_{name}", found.dataset(name))
    columns = ", ".join(f'j."{column}"' for column, _, _ in COLUMNS[name])
    return f"""
        SELECT {columns} FROM judged_{name} j
        SEMI JOIN chosen c
        ON c.run = j.run AND c.result_id = j.result_id AND c.batch = j.batch
    """  # noqa: S608


def _verdicts(sql: Any, found: Snapshot | None) -> str:
    """Those that were found, and of runs that were judged those that stand in for the others."""
    columns = [column for column, _, _ in COLUMNS["verdicts"]]
    own = ", ".join(f'm.run AS "{name}"' if name == "run" else f's."{name}"' for name in columns)
    stand_ins = f"""
        SELECT {own} FROM missing m JOIN stand_ins s ON s.checker = m.checker
        WHERE m.n IN (SELECT n FROM chosen)
    """  # noqa: S608
    return stand_ins if found is None else f"{_rows(sql, found, 'verdicts')} UNION ALL {stand_ins}"
