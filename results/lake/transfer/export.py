"""Exports runs of a lake to run folders of a store. Their histories keep their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import Dataset
from pyarrow.fs import FileSystem

from harness.errors import HarnessError, UsageError, listed
from harness.store import RunFolder
from results.facts.problems import Problem, Problems
from results.lake.log.lake import Lake
from results.lake.log.snapshot import Snapshot
from results.lake.tables.rebuild import HISTORY_TABLES, case_of, history_of, record_of
from results.lake.transfer.folders import fetch_folder

RUNS_AT_ONCE: Final = 100


def chosen_runs(
    lake: Lake | Snapshot, *, runs: Sequence[str] = (), labels: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the rows of the lake's table `runs` with these keys or labels (default: all rows).

    Raises `UsageError` if the lake lacks a key or a label.
    """
    wanted = None
    for name, values in (("run", runs), ("label", labels)):
        if values:
            matching = pc.field(name).isin(list(values))
            wanted = matching if wanted is None else wanted | matching
    rows: list[dict[str, Any]] = lake.dataset("runs").to_table(filter=wanted).to_pylist()
    there = {value for row in rows for value in (row["run"], row["label"])}
    missing = [value for value in (*runs, *labels) if value not in there]
    if missing:
        raise UsageError(
            f"the lake has no run or label {listed(missing, limit=3)}; give keys of runs from the "
            "column `run`, such as NAME/ID@0123456789ab"
        )
    return sorted(rows, key=lambda row: str(row["run"]))


def export(
    lake: Lake | Snapshot,
    files: FileSystem,
    store: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[int, Problems]:
    """Write the runs of `rows` below `store`; return the number of new runs, and the problems.

    A folder that already has this run, with the same verdict, stays as it is. It is a problem if
    another run has the same id, or if a run's rows do not form a history with the recorded digest.
    """
    problems = Problems()
    written = 0
    rows_of_each = rows_of_runs(lake.dataset, [str(row["run"]) for row in rows])
    for done, (row, tables) in enumerate(zip(rows, rows_of_each, strict=True), 1):
        progress(done)
        try:
            written += _write(row, tables, files, store)
        except (HarnessError, OSError) as error:
            problems.add(Problem(str(row["run"]), "history", str(error)))
    return written, problems


def rows_of_runs(
    dataset: Callable[[str], Dataset], runs: Sequence[str]
) -> Iterator[dict[str, pa.Table]]:
    """Yield each run's rows in the tables of its history; many runs are read at once."""
    for begin in range(0, len(runs), RUNS_AT_ONCE):
        some = list(runs[begin : begin + RUNS_AT_ONCE])
        tables = {
            name: dataset(name).to_table(filter=pc.field("run").isin(some))
            for name in HISTORY_TABLES
        }
        for run in some:
            yield {
                name: table.filter(pc.equal(table["run"], run)) for name, table in tables.items()
            }


def _write(
    row: Mapping[str, Any], rows: Mapping[str, pa.Table], files: FileSystem, store: Path
) -> bool:
    """Write one run to its folder; return `False` if the folder already has this run."""
    case, record = case_of(row), record_of(row)
    final = store / row["name"] / row["id"]
    if final.exists():
        if _is_at(final, row):
            return False
        raise UsageError(f"{str(final)!r} holds another run of this id; choose another --store")
    history = history_of(rows, digest=row["digest"])
    folder = RunFolder(store, row["name"], row["id"], staged=True)
    try:
        folder.write_case(case)
        folder.seal(history, label=row["label"])
        if row["folder"] is not None:
            fetch_folder(files, row["folder"], folder.path)
        if record is not None:
            folder.finish(record)
        folder.publish(latest=False)
    except BaseException:
        folder.discard()
        raise
    return True


def _is_at(folder: Path, row: Mapping[str, Any]) -> bool:
    """Whether a folder holds the run of a row: the same history, day, label and verdict."""
    from results.lake.tables.sealed_run import read_source

    try:
        source = read_source(folder)
    except HarnessError:
        return False
    record = source.about.record
    verdict = None if record is None else record.verdict.value
    return (source.key, verdict) == (row["run"], row["verdict"])
