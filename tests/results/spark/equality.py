"""Comparison of two lakes, and of two reports on them, except for times, places and durations.

Runs are matched by name and id, because their keys also contain the day (docs/lake.md).
"""

from __future__ import annotations

import collections
import contextlib
import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from harness.verdict.limits import CHECK_TIME_LIMIT_S
from results.judging.budgets import Budget
from results.judging.pipeline import check
from results.judging.report_runs import ReportRuns
from results.lake.log.lake import Lake
from results.lake.tables.schema import schemas
from results.lake.transfer.folders import ARCHIVE, FOLDERS
from results.questions.engines import DuckEngine
from results.report.report import register

Tables = dict[str, collections.Counter[str]]
"""For each table, how often each row occurs."""
LEFT: Final = "results that were left to judge"
OTHERS: Final = frozenset(
    {
        "batch",
        "run_batch",
        "wall_s",
        "started",
        "first_started",
        "day",
        "versions",
        *("wall_ns", "cpu_ns", "run_wall_ns", "run_cpu_ns", "share"),
        *("bytes", "run_bytes"),
        *("code", "first_code", "last_code", "first_started", "last_started", "first_day"),
        *("last_day", "last_run", "last_place", "runs_since", "below_since"),
    }
)
"""Columns that may differ: times, order, places, digests of code (which depend on Python's patch
version), appends, speed and sizes.
"""
BY_CODE: Final = "code"
"""A dimension whose values are digests of code."""
KEY: Final = re.compile(r"@[0-9a-f]{12}\b")
IN_FOLDERS: Final = ("case.json", "results.json", "logs/")


def rows_of(table: pa.Table) -> collections.Counter[str]:
    """Count rows, without the columns in which two lakes may differ."""
    kept = sorted(name for name in table.column_names if name not in OTHERS)
    rows = table.select(kept).to_pylist()
    for row in rows:
        if row.get("dimension") == BY_CODE:
            row["value"] = BY_CODE
    return collections.Counter(KEY.sub("", repr(list(row.values()))) for row in rows)


def lake_tables(uri: str, options: Mapping[str, str]) -> Tables:
    snapshot = Lake.open(uri, storage_options=options).snapshot()
    return {name: rows_of(snapshot.dataset(name).to_table()) for name in schemas()}


def result_tables(uri: str, options: Mapping[str, str]) -> Tables:
    """Return the tables of a report; `LEFT` has the number of missing results."""
    lake = Lake.open(uri, storage_options=options)
    budget = Budget(cpu_s=CHECK_TIME_LIMIT_S)
    source = ReportRuns(lake.snapshot(), budgets=(budget, budget.larger()))
    with contextlib.closing(source):
        checked = check(source, executor="inline")
        with contextlib.closing(DuckEngine()) as engine:
            register(engine, checked)
            tables = {name: rows_of(engine.sql(f"SELECT * FROM {name}")) for name in checked.tables}
    return {**tables, LEFT: collections.Counter({str(checked.results_new): 1})}


def answers_in(output: Path) -> Tables:
    paths = sorted((output / "answers").iterdir())
    assert paths, f"the report {output} has no answers"
    return {f"answers/{path.stem}": rows_of(pq.read_table(path)) for path in paths}


def folders_of(uri: str, options: Mapping[str, str]) -> Tables:
    """Return the folders of runs that are not valid: names, and the parts that must be equal."""
    place = Lake.open(uri, storage_options=options).place
    counts: collections.Counter[str] = collections.Counter()
    kept: dict[str, bytes] = {}
    for info in place.files.get_file_info(fs.FileSelector(FOLDERS, recursive=True)):
        if info.type == fs.FileType.File:
            with place.files.open_input_stream(info.path) as source:
                kept[info.path] = source.read()
            if info.base_name == ARCHIVE:
                with zipfile.ZipFile(io.BytesIO(kept.pop(info.path))) as archive:
                    folder = info.path.rpartition("/")[0]
                    kept |= {f"{folder}/{name}": archive.read(name) for name in archive.namelist()}
    for path, content in kept.items():
        name = KEY.sub("", path)
        text = content if any(part in name for part in IN_FOLDERS) else b""
        counts[f"{name} {text!r}"] += 1
    return {FOLDERS: counts}


def differences(one: Tables, other: Tables) -> list[str]:
    """Return one line per table that differs, with the first row that only one lake has."""
    lines = []
    for name in sorted(one.keys() | other.keys()):
        first, second = one.get(name, collections.Counter()), other.get(name, collections.Counter())
        if first != second:
            only, alone = sorted((first - second).elements()), sorted((second - first).elements())
            lines.append(
                f"{name}: {len(only)} rows only in the first, {len(alone)} only in the second: "
                f"{(only or [''])[0][:300]} | {(alone or [''])[0][:300]}"
            )
    return lines


def sizes(tables: Tables) -> tuple[int, int]:
    """Return the number of nonempty tables, and the number of rows."""
    counts = [sum(rows.values()) for rows in tables.values()]
    return sum(count > 0 for count in counts), sum(counts)
