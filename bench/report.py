"""What a report costs beside a plain loop: `python -m bench.report [--operations N]`.

Makes a store of register histories over many keys (10 M operations, each two lines of a history, in
100,000 keys: 20 runs of 5,000 keys in 4 buckets; kept in a temporary folder for the next time), and
judges every key with `linearizable-register`:

* by a plain loop over the same files, with the same checker and nothing else: no stored
  results, no rows;
* by `check` of the store's lake, in this process and in a pool of 2; each twice without results,
  and once more with everything known. The ingest is timed apart.

Before those it extracts the facts of all runs in a pool of 2, and says how large a worker grew.

CPU seconds are those of the whole process tree, Java's with it, from /proc. Every table of verdicts
is compared with the loop's counts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from harness.case import Case  # noqa: E402
from harness.environments import procfs  # noqa: E402
from harness.ops import Verdict  # noqa: E402
from harness.registry import load_plugin  # noqa: E402
from harness.store import RunFolder, RunRecord  # noqa: E402
from harness.store.buckets import lat_buckets  # noqa: E402
from harness.store.keyed import bucket_of, write_bucket  # noqa: E402
from harness.store.parquet import schema_of  # noqa: E402
from results.judging.budgets import Budget  # noqa: E402
from results.judging.columns import read_columns  # noqa: E402
from results.judging.lake_source import LakeSource  # noqa: E402
from results.judging.pipeline import check  # noqa: E402
from results.judging.result_lake import RESULTS  # noqa: E402
from results.lake.log.lake import Lake  # noqa: E402
from results.lake.tables.schema import SCHEMA_VERSION, schemas  # noqa: E402
from results.lake.transfer.store_lake import lake_of_store  # noqa: E402
from results.questions.engines import DuckEngine  # noqa: E402
from results.report.report import register  # noqa: E402

CHECKER = "linearizable-register"
KEYS_A_RUN = 5_000
OPERATIONS_A_KEY = 100  # two lines each
SLOTS = 5
BUCKETS = 4
STALE_KEYS = 2  # keys of each run that are not linearizable
FORMAT = 2  # of the generated store


def make_run(store: Path, number: int, keys: int) -> None:
    """One run: every key a linearizable history of its own, but for `STALE_KEYS`."""
    rng = np.random.default_rng(number)
    lines = key_lines(rng, keys)
    order = np.argsort(lines["time"], kind="stable")
    lines["index"] = np.empty(len(order), np.int64)
    lines["index"][order] = np.arange(len(order))
    names = np.array([f'"k{n}"' for n in range(keys)])
    place = np.array([bucket_of(str(name), BUCKETS) for name in names])
    folder = RunFolder(store, "registers", f"run-{number:04d}")
    folder.write_case(Case(seed=number, workload="register", workload_options={"cas_percent": 20}))
    (folder.path / "history").mkdir()
    # Keys sort as text, whatever their numbers.
    rank = np.empty(keys, np.int64)
    rank[np.argsort(names)] = np.arange(keys)
    sort = np.lexsort((lines["index"], rank[lines["key"]], place[lines["key"]]))
    table = table_of(lines, names, sort)
    ends = np.cumsum(np.bincount(place[lines["key"]], minlength=BUCKETS))
    for bucket, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        part = table.slice(int(begin), int(end - begin))
        write_bucket(folder.path / "history", part, bucket, BUCKETS, run=folder.run_id, seed=number)
    record = RunRecord(
        run=folder.run_id,
        environment="sim",
        started="2026-01-01T00:00:00+00:00",
        wall_s=1.0,
        verdict=Verdict.UNKNOWN,
        digest="",
        ops=len(sort),
        versions={},
    )
    folder.finish(record)


def key_lines(rng: np.random.Generator, keys: int) -> dict[str, Any]:
    """All lines of all keys, unsorted. Operations take effect in the order of their numbers."""
    shape = (OPERATIONS_A_KEY, keys)
    kind = rng.choice(3, shape, p=[0.5, 0.4, 0.1])  # read, write, cas
    lost = (rng.random(shape) < 0.01) & (kind != 0)
    effective = ~lost | (rng.random(shape) < 0.5)
    moment = (np.arange(OPERATIONS_A_KEY)[:, None] + 0.5) * 1e6 + rng.integers(0, 10**9, keys)
    reach = (SLOTS / 2 - 0.6) * 1e6  # a slot's next operation begins after this one ended
    call = moment - rng.random(shape) * reach
    end = moment + rng.random(shape) * reach
    slot = np.arange(OPERATIONS_A_KEY) % SLOTS
    process = np.zeros(shape, np.int64)
    state = np.zeros(keys, np.int64)  # 0 is null
    asked, answered = np.empty(shape, object), np.empty(shape, object)
    mismatch = np.zeros(shape, bool)
    retired = np.zeros((SLOTS, keys), np.int64)
    stale = rng.choice(keys, min(STALE_KEYS, keys), replace=False)
    for n in range(OPERATIONS_A_KEY):
        process[n] = np.arange(keys) * 1000 + slot[n] + SLOTS * retired[slot[n]]
        retired[slot[n]] += lost[n]
        new, old = n + 1, np.where(rng.random(keys) < 0.7, state, np.maximum(state - 1, 1))
        read = state.copy()
        if n == OPERATIONS_A_KEY - 1:
            kind[n, stale], lost[n, stale] = 0, False
            read[stale] = 777  # nobody ever wrote it
        mismatch[n] = (kind[n] == 2) & (old != state)
        texts = [
            ("{}", '{"value":null}' if value == 0 else f'{{"value":{value}}}')
            if what == 0
            else (f'{{"value":{new}}}', "{}")
            if what == 1
            else (
                f'{{"new":{new},"old":{"null" if before == 0 else before}}}',
                '{"result":"mismatch"}' if wrong else "{}",
            )
            for what, value, before, wrong in zip(
                kind[n].tolist(), read.tolist(), old.tolist(), mismatch[n].tolist(), strict=True
            )
        ]
        asked[n] = [text for text, _ in texts]
        answered[n] = [
            "null" if gone else text for (_, text), gone in zip(texts, lost[n], strict=True)
        ]
        changes = effective[n] & ((kind[n] == 1) | ((kind[n] == 2) & ~mismatch[n]))
        state = np.where(changes, new, state)
    outcome = np.where(lost, 3, np.where(mismatch, 2, 1))
    both = {
        "key": np.broadcast_to(np.arange(keys), shape),
        "process": process,
        "f": kind,
    }
    lines = {name: np.concatenate([part.ravel()] * 2) for name, part in both.items()}
    lines["time"] = np.concatenate([call.ravel(), end.ravel()]).astype(np.int64) + 10**7
    lines["type"] = np.concatenate([np.zeros(shape, np.int64).ravel(), outcome.ravel()])
    lines["value"] = np.concatenate([asked.ravel(), answered.ravel()])
    lines["took"] = np.concatenate([np.full(shape, -1).ravel(), (end - call).ravel()]).astype(
        np.int64
    )
    return lines


def table_of(lines: dict[str, Any], names: Any, sort: Any) -> pa.Table:
    """The lines in the order of `sort` as a table of a sealed history."""
    rows = len(sort)
    schema = schema_of()
    kind = lines["type"][sort]
    done = kind > 0
    took = lines["took"][sort]
    attempts = pa.ListArray.from_arrays(
        pa.array(np.zeros(rows + 1, np.int32)),
        pa.nulls(0, schema.field("attempts").type.value_type),
    )
    columns = {
        "index": lines["index"][sort],
        "time": lines["time"][sort],
        "process": lines["process"][sort],
        "type": pa.array(["invoke", "ok", "fail", "info"]).take(pa.array(kind)),
        "f": pa.array(["read", "write", "cas"]).take(pa.array(lines["f"][sort])),
        "value": pa.array(lines["value"][sort], pa.string()),
        "error": pa.array([None, None, None, "TIMED_OUT: no answer"], pa.string()).take(
            pa.array(kind)
        ),
        "node": pa.array(["n1", "n2", "n3", None], pa.string()).take(
            pa.array(np.where(done & (kind != 3), lines["key"][sort] % 3, 3))
        ),
        "attempts": attempts,
        "key": pa.array(names[lines["key"][sort]], pa.string()),
        "lat_bucket": pa.array(lat_buckets(took), pa.int32(), mask=~done),
    }
    return pa.table(columns, schema=schema)


def plain_loop(store: Path) -> Counter[str]:
    """Every key judged by the same checker, from the same files, and nothing written."""
    checker = load_plugin("checkers", CHECKER)
    case = Case(seed=1, workload="register")
    found: Counter[str] = Counter()
    for path in sorted(store.glob("registers/run-*/history/bucket-*.parquet")):
        for columns in read_columns(path, 0, pq.read_metadata(path).num_row_groups):
            judged = checker.check_columns(columns, case)
            found["valid"] += int(judged.valid.sum())
            alone = np.flatnonzero(~judged.valid).tolist()
            for history in columns.histories(alone):
                found[checker.check(history, case, time_limit_s=120.0).verdict.value] += 1
    return found


def tree_cpu_s() -> float:
    """CPU seconds of this process and all below it, with those that ended and were waited for."""
    return procfs.computed_s(procfs.family(os.getpid()))


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """The answer, wall seconds and CPU seconds."""
    cpu, wall = tree_cpu_s(), time.perf_counter()
    answer = work()
    return answer, time.perf_counter() - wall, tree_cpu_s() - cpu


def make_store(operations: int) -> Path:
    """The store, made or kept from the last time."""
    runs = max(1, round(operations / (KEYS_A_RUN * OPERATIONS_A_KEY)))
    keys = min(KEYS_A_RUN, max(10, operations // OPERATIONS_A_KEY))
    folder = Path(tempfile.gettempdir()) / f"harness-bench-report-{FORMAT}-{runs}x{keys}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        for number in range(runs):
            make_run(folder / "store", number, keys)
            print(f"run {number + 1} of {runs} made", file=sys.stderr)
        (folder / "complete").touch()
    return folder / "store"


def report(
    uri: str, executor: str, *, checkers: tuple[str, ...] = (CHECKER,), facts: bool = False
) -> tuple[Any, Counter[str]]:
    """`check` of a lake over some checkers; how many verdicts there are of each kind."""
    snapshot = Lake.open(uri, schemas=schemas(), version=SCHEMA_VERSION).snapshot()
    budgets = (Budget(), Budget().larger())
    runs = LakeSource(snapshot, budgets=budgets, checkers=checkers, facts=facts, slots=2)
    with contextlib.closing(runs), contextlib.closing(DuckEngine()) as engine:
        checked = check(runs, executor=executor, jobs=2 if executor == "pool" else None)
        register(engine, checked)
        counts = engine.sql("SELECT verdict, count(*) AS n FROM verdicts GROUP BY verdict")
        return checked, Counter({row["verdict"]: row["n"] for row in counts.to_pylist()})


def extracted(uri: str) -> int:
    """The facts of all runs by two workers; the peak of the larger one in MiB."""
    forget(uri)
    checked, _ = report(uri, "pool", checkers=(), facts=True)
    assert checked.problems == (), checked.problems[:3]
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024


def forget(uri: str) -> None:
    """Remove all results."""
    shutil.rmtree(Path(uri) / RESULTS, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--operations", type=int, default=10_000_000, help="of all histories, two lines each"
    )
    parser.add_argument("--executors", default="inline,pool")
    parser.add_argument("--facts", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    (store, wall, cpu) = timed(lambda: make_store(options.operations))
    files = list(store.glob("registers/run-*/history/*.parquet"))
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"store: {len(files)} files, {size:.0f} MB (made in {wall:.0f} s)")
    expected, wall, base = timed(lambda: plain_loop(store))
    print(f"{'':24}{'wall s':>8}{'CPU s':>8}{'ratio':>7}")
    print(f"{'plain loop':24}{wall:8.2f}{base:8.2f}{1.0:7.2f}   {dict(expected)}")
    lake, wall, cpu = timed(lambda: lake_of_store(store))
    print(f"{'ingest':24}{wall:8.2f}{cpu:8.2f}{cpu / base:7.2f}   {lake.problems.kept[:3] or ''}")
    if options.facts:
        peak, wall, cpu = timed(lambda: extracted(lake.uri))
        print(f"{'facts, pool':24}{wall:8.2f}{cpu:8.2f}{cpu / base:7.2f}   {peak} MiB a worker")
    for executor in filter(None, options.executors.split(",")):
        forget(lake.uri)
        for name in (executor, f"{executor}, once more", f"{executor}, all known"):
            if name.endswith("once more"):
                forget(lake.uri)
            (checked, counts), wall, cpu = timed(lambda who=executor: report(lake.uri, who))
            share = f"{cpu / base:7.2f}"
            print(f"{name:24}{wall:8.2f}{cpu:8.2f}{share}   {checked.problems[:3] or ''}")
            assert counts == expected, counts


if __name__ == "__main__":
    main()
