"""The tables of a report out of a lake: those of `results.schema`, a Parquet file each.

Which results count stands in the table `chosen` (run, result, batch); what could not be had in
`missing`. Rows of `runs` and `traits` follow from the lake's own `runs`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from results.lake.files import MAIN
from results.lake.judged import FACTS_KEPT
from results.lake.trouble import troubles
from results.schema import COLUMNS, FACT_TABLES
from results.sources.readable import source_of

if TYPE_CHECKING:
    from results.lake.files import FileRef
    from results.lake.place import Place
    from results.lake.snapshot import Snapshot

__all__ = ["write_tables"]

_CHUNK: Final = 1 << 20
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
           r.refused, r.elections, r.faults, r.interrupted,
           COALESCE(
               NULLIF(r.versions->>'$.commit', ''), NULLIF(r.versions->>'$.code', ''),
               'harness ' || NULLIF(r.versions->>'$.harness', '')) AS code
    FROM {source} r
    WHERE r.run IN (SELECT run FROM chosen)
"""
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
_OF_TRAITS: Final = ("run", "nemeses", "bugs")
_CHOSEN: Final = """
    SEMI JOIN chosen c ON c.run = j.run AND c.result_id = j.result_id AND c.batch = j.batch
"""
_CHOSEN_BY: Final = ("run", "result_id", "batch")


def write_tables(
    sql: Any,
    lake: Snapshot,
    found: Snapshot | None,
    folder: Path,
    *,
    facts: bool,
    all_chosen: bool,
    whole: bool,
) -> dict[str, tuple[Path, ...]]:
    """Write them with a DuckDB connection that has the tables named above, and `stand_ins`.

    With `all_chosen` there is no result in `found` that is not chosen, which saves the join; files
    that need none are the tables themselves, of a range with the rows of other runs. Those of an
    object store are copied as they are. `whole`: nothing is missing.
    """
    import pyarrow.parquet as pq

    from results.schema import schema

    paths: dict[str, tuple[Path, ...]] = {}
    for name in ("verdicts", *FACT_TABLES):
        kept = name == "verdicts" or (facts and name in FACTS_KEPT)
        as_they_are = all_chosen and kept and (whole or name != "verdicts")
        if as_they_are and found is not None and found.files(name):
            paths[name] = tuple(
                _at_hand(found.place, name, file, folder) for file in found.files(name)
            )
            continue
        path = folder / f"{name}.parquet"
        paths[name] = (path,)
        text = None
        if name == "verdicts":
            text = _verdicts(sql, found, all_chosen=all_chosen)
        elif facts and name in {"runs", "traits"}:
            own, columns = (_RUNS, _OF_RUNS) if name == "runs" else (_TRAITS, _OF_TRAITS)
            text = own.format(source=source_of(sql, lake, MAIN, columns))  # chosen: of the range
        elif facts and name in FACTS_KEPT and found is not None:
            text = _rows(sql, found, name, all_chosen=all_chosen)
        if text is None:
            pq.write_table(schema(name).empty_table(), path)
        else:
            sql.execute(f"COPY ({text}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)").fetchall()
    return paths


def _at_hand(place: Place, table: str, file: FileRef, folder: Path) -> Path:
    """Where a file can be read again and again; to copy it costs less than to read it once."""
    if place.local:
        return Path(file.uri)
    path = folder / table / file.name
    path.parent.mkdir(exist_ok=True)
    with (
        troubles(file.uri),
        place.files.open_input_stream(f"{table}/{file.name}") as source,
        path.open("wb") as copy,
    ):
        shutil.copyfileobj(source, copy, _CHUNK)
    return path


def _rows(sql: Any, found: Snapshot, name: str, *, all_chosen: bool) -> str:
    """The rows of a table that belong to chosen results."""
    columns = ", ".join(f'j."{column}"' for column, _, _ in COLUMNS[name])
    chosen = "" if all_chosen else _CHOSEN
    read = dict.fromkeys([*_CHOSEN_BY, *(column for column, _, _ in COLUMNS[name])])
    source = source_of(sql, found, name, [*read])
    return f"SELECT {columns} FROM {source} j {chosen} WHERE {found.within('j.run')}"  # noqa: S608


def _verdicts(sql: Any, found: Snapshot | None, *, all_chosen: bool) -> str:
    """Those that were found, and of runs that were judged those that stand in for the others."""
    columns = [column for column, _, _ in COLUMNS["verdicts"]]
    own = ", ".join(f'm.run AS "{name}"' if name == "run" else f's."{name}"' for name in columns)
    stand_ins = f"""
        SELECT {own} FROM missing m JOIN stand_ins s ON s.checker = m.checker
        WHERE m.n IN (SELECT n FROM chosen)
    """  # noqa: S608
    if found is None:
        return stand_ins
    return f"{_rows(sql, found, 'verdicts', all_chosen=all_chosen)} UNION ALL {stand_ins}"
