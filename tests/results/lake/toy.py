"""A small lake of three tables, in which a run's name determines its rows."""

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from results.lake.log.lake import Lake
from results.lake.log.storage_errors import Patience
from results.lake.upkeep.soundness import check

HEAD = [
    ("target", pa.string()), ("label", pa.string()), ("day", pa.date32()), ("run", pa.string()),
]  # fmt: skip
SCHEMAS = {
    "runs": pa.schema([*HEAD, ("seed", pa.int64()), ("started", pa.timestamp("us", tz="UTC"))]),
    "operations": pa.schema([*HEAD, ("index", pa.int64()), ("texts", pa.list_(pa.string()))]),
    "faults": pa.schema([*HEAD, ("kind", pa.string()), ("length_s", pa.float64())]),
}
DAY = dt.date(2026, 11, 26)
STARTED = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)
QUICK = Patience(sleep=lambda _: None)


def operations_of(run):
    return sum(run.encode()) % 7 + 1


def rows(runs, *, target="kudu", label="nightly", day=DAY):
    """Return the rows that a writer appends for these runs."""
    heads = [{"target": target, "label": label, "day": day, "run": run} for run in runs]
    found = {
        "runs": [{**head, "seed": 7, "started": STARTED} for head in heads],
        "operations": [
            {**head, "index": index, "texts": [head["run"], str(index)]}
            for head in heads
            for index in range(operations_of(head["run"]))
        ],
        "faults": [{**head, "kind": "kill", "length_s": 1.5} for head in heads],
    }
    return {
        table: pa.Table.from_pylist(given, schema=SCHEMAS[table]) for table, given in found.items()
    }


def lake_at(uri, *, schemas=SCHEMAS, version=1, patience=QUICK, **options):
    return Lake.open(
        str(uri), schemas=schemas, version=version, patience=patience, **options, create=True
    )


def contents(lake):
    """Return the visible runs with their operations; fail if tables disagree or rows repeat."""
    snapshot = lake.snapshot()
    runs = snapshot.dataset("runs").to_table()["run"].to_pylist()
    assert sorted(set(runs)) == sorted(runs)
    found = {}
    for row in snapshot.dataset("operations").to_table().to_pylist():
        assert row["texts"] == [row["run"], str(row["index"])]
        found.setdefault(row["run"], []).append(row["index"])
    assert found == {run: list(range(operations_of(run))) for run in runs}
    faults = snapshot.dataset("faults").to_table()["run"].to_pylist()
    assert sorted(faults) == sorted(runs)
    for table in SCHEMAS:  # no run may be in two files
        spread = snapshot.dataset(table).to_table(columns=["run", "batch"])
        assert spread.group_by(["run", "batch"]).aggregate([]).num_rows == len(runs)
    return set(runs)


def damage(lake):
    return [finding for finding in check(lake) if finding.damaged]


def created_at_once(uri, runs, **options):
    """Let one writer per run create the lake at the same time; return the lake."""
    start = threading.Barrier(len(runs))

    def create(run):
        start.wait()
        lake_at(uri, **options).append(rows([run]))

    with ThreadPoolExecutor(len(runs)) as pool:
        list(pool.map(create, runs))
    lake = lake_at(uri, **options)
    assert contents(lake) == set(runs)
    return lake
