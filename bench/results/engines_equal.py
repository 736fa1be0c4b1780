"""A report on a lake by DuckDB and by every kind of Spark: are all tables and answers the same?

    python -m bench.results.engines_equal                       # 300 runs, half of them with a bug
    python -m bench.results.engines_equal --seeds 12 --engines duckdb,connect
    python -m bench.results.engines_equal --lake FOLDER         # runs of yours

Each engine judges all runs of a copy of its own and answers all questions, in a process of its own:

| engine        | judges                      | answers                               |
|---------------|-----------------------------|---------------------------------------|
| duckdb        | a pool of processes         | DuckDB                                |
| local         | `local[2]`                  | the same                              |
| local-cluster | `local-cluster[2,1,1024]`   | the same                              |
| standalone    | a master, two executors     | the same                              |
| connect       | a Spark Connect server      | the same                              |

What it stored of its results is then gathered by DuckDB, with nothing left to judge. All tables and
answers are compared with the answers of `duckdb`, row by row, without durations. Exit code 1 where
any row differs.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bench.measure import ROOT, machine
from bench.results.lake_equal import LEFT, Tables, answers_in, differences, result_tables, sizes
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from results.judging.result_lake import RESULTS
from tests.support.spark_programs import connect_server, spark_programs, standalone_cluster

LOCAL: Final = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYTHONPATH": str(ROOT),
}
TWO_EXECUTORS: Final = {"PYSPARK_SUBMIT_ARGS": "--conf spark.executor.cores=1 pyspark-shell"}
DUCKDB: Final = "duckdb"


def harness(*words: object, **environ: str) -> Any:
    """The JSON object of a command, which must not fail otherwise than by verdicts."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", *map(str, words), "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, **LOCAL, **environ},
    )  # fmt: skip
    if done.returncode not in {EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN}:
        raise RuntimeError(f"{words} ended with {done.returncode}: {done.stderr[-3000:]}")
    return json.loads(done.stdout)


def make_lake(lake: Path, seeds: int) -> dict[str, int]:
    """Half the seeds with a bug, half without; the verdicts of all."""
    counts: dict[str, int] = {}
    half = seeds // 2
    for label, bug, first, last in (
        ("bugs", ("--bug", "NO-LEASE"), 1, half),
        ("clean", (), half + 1, seeds),
    ):
        soak = harness(
            *("soak", "--store", lake.with_name("store"), "--lake", lake, "--label", label),
            *("--seeds", f"{first}..{last}", "--name", label, "--time-limit", 5, *bug),
            *("--nemesis", "any", "--draw", 3, "--reporters", "none"),
        )
        for verdict, count in soak["verdicts"].items():
            counts[verdict] = counts.get(verdict, 0) + count
    return counts


@contextlib.contextmanager
def local_spark(master: str, _: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Spark that the report starts itself."""
    yield master, {}


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """A cluster of two executors."""
    with spark_programs(folder) as start:
        yield standalone_cluster(start, folder / "work", **LOCAL), TWO_EXECUTORS


@contextlib.contextmanager
def connect(folder: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """A Connect server on two cores."""
    with spark_programs(folder) as start:
        yield connect_server(start, "local[2,3]", **LOCAL), {}


Opening = Callable[[Path], contextlib.AbstractContextManager[tuple[str, Mapping[str, str]]]]
ENGINES: Final[Mapping[str, Opening | None]] = {
    DUCKDB: None,
    "local": functools.partial(local_spark, "local[2]"),
    "local-cluster": functools.partial(local_spark, "local-cluster[2,1,1024]"),
    "standalone": standalone,
    "connect": connect,
}


def judged_before(lake: Path) -> Callable[[str, list[str]], list[str]]:
    """Filter of a copy of a lake that drops all results, so that all is judged again."""
    return lambda place, _: [RESULTS] if Path(place) == lake else []


def judged_by(name: str, lake: Path, folder: Path) -> tuple[Tables, float]:
    """All tables and answers of an engine, and the seconds that its report took."""
    folder.mkdir()
    copy = shutil.copytree(lake, folder / "lake", ignore=judged_before(lake))
    opening = ENGINES[name]
    report = ("report", copy, "--output", folder / "answers")
    begin_s = time.monotonic()
    if opening is None:
        harness(*report, "--engine", DUCKDB)
        took_s = time.monotonic() - begin_s
    else:
        with opening(folder) as (url, environ):
            begin_s = time.monotonic()
            harness(*report, "--spark-master", url, **environ)
            took_s = time.monotonic() - begin_s
    return answers_in(folder / "answers") | result_tables(str(copy), {}), took_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--lake", type=Path, help="instead: runs of a lake in this folder")
    parser.add_argument("--engines", default=",".join(ENGINES), help="the first is the measure")
    parsed = parser.parse_args()
    print(f"{'machine':14} {machine()}")
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        lake = parsed.lake or Path(scratch) / "lake"
        if parsed.lake is None:
            print(f"{'runs':14} {parsed.seeds}: {make_lake(lake, parsed.seeds)}", flush=True)
        measure: Tables | None = None
        for name in parsed.engines.split(","):
            result, took_s = judged_by(name, lake, Path(scratch) / name)
            count, rows = sizes(result)
            measure = measure or result
            unlike = differences(measure, result)
            if result[LEFT] != {"0": 1}:
                unlike.append(f"{name}: {LEFT}: {', '.join(result[LEFT])}")
            wrong += len(unlike)
            word = "equal" if not unlike else "DIFFERENT"
            print(f"{name:14} {took_s:.0f} s, {count} tables, {rows} rows: {word}", flush=True)
            for line in unlike:
                print(f"WRONG: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
