"""Measures reports on a lake by DuckDB and by Spark, and the size from which Spark is cheaper.

    python -m bench.results.lake_report                        # a soak of 40 seeds; 400, 2,000 runs
    python -m bench.results.lake_report LAKE --checks 400,2000 --known 2000,100000

`LAKE` is a lake of actual runs, which is only read. The bench makes lakes of other sizes from
copies of its rows under other names (`again-00001-...`). So histories and results have realistic
sizes, although few of them are distinct. Lakes for `--known` contain only the table `runs` and the
results, because a report whose results are all known reads no other table.

* **checks**: no results are known. Measures the pool, Spark, and a plain loop in one process. The
  loop reads each run, judges it and extracts its facts, but neither plans nor stores anything. The
  last lines are the costs of the pool and of Spark relative to the loop.
* **report**: all results are known. Measures `harness report LAKE --engine ...`.

Each measurement is a command of its own, on two cores. CPU time is that of the whole tree of
processes, including Java, and including orphans, which the bench adopts and waits for. Peaks of
memory are those of the driver (the process that was started) and of Java, which with `local[2]`
contains all executors.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench.measure import ROOT, machine, processor_time
from bench.results.lake import opened, soaked

if TYPE_CHECKING:
    import pyarrow as pa

MASTER: Final = "local[2]"
SET_CHILD_SUBREAPER: Final = 36  # the number of PR_SET_CHILD_SUBREAPER for prctl(2)
RUNS_AN_APPEND: Final = 5_000
CHECKS: Final = "checks, all new"
CHILD: Final = """
import sys
from harness.soak.result import memory_bytes_max
from bench.results import lake_report
getattr(lake_report, sys.argv[1])(*sys.argv[2:])
sys.stderr.write(f"\\npeak {memory_bytes_max()}\\n")
"""


class Cost(NamedTuple):
    """The cost of a command."""

    wall_s: float
    cpu_s: float
    driver_mb: float
    java_mb: float


def cost_of(*words: str) -> Cost:
    """Run a function of this module in a process; wait for it and all processes that it starts."""
    begin_s = time.monotonic()
    java_mb, wall_s, code = 0.0, 0.0, 0
    with processor_time() as spent_s:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, *words], cwd=ROOT, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stderr is not None
        errors = child.stderr.read()
        while True:
            try:
                pid, status, used = os.wait4(-1, 0)
            except ChildProcessError:
                break
            if pid == child.pid:
                wall_s, code = time.monotonic() - begin_s, os.waitstatus_to_exitcode(status)
            else:
                java_mb = max(java_mb, used.ru_maxrss / 1024)
    cpu_s = spent_s()
    peak = [line for line in errors.splitlines() if line.startswith("peak ")]
    if code or not peak:
        raise SystemExit(f"{' '.join(words)} failed:\n{errors[-4000:]}")
    return Cost(wall_s, cpu_s, int(peak[-1].split()[1]) / 2**20, java_mb)


# Measured commands, each in a process of its own --------------------------------------------------


def plain_loop(uri: str) -> None:
    """Judge every run of a lake with all its checkers, and extract its facts; store nothing."""
    from results.facts.extraction import extract
    from results.judging.budgets import Budget
    from results.judging.result_ids import Registry
    from results.judging.staged_results import run_of
    from results.judging.verdict_rows import judge_history
    from results.lake.log.files import MAIN
    from results.lake.log.run_streams import runs_in
    from results.lake.tables.rebuild import HISTORY_TABLES, history_of

    snapshot = opened(uri).snapshot()
    tables = (MAIN, *HISTORY_TABLES)
    files = {name: tuple(file.name for file in snapshot.files(name)) for name in tables}
    registry, budget = Registry(), Budget()
    schemas = {name: snapshot.schemas[name] for name in tables}
    for _, rows in runs_in(snapshot.place, schemas, files, sorted(snapshot.known())):
        (row,) = rows[MAIN].to_pylist()
        run = run_of(row)
        history = history_of({name: rows[name] for name in HISTORY_TABLES}, digest=row["digest"])
        for name in registry.checkers_of(run.case):
            judge_history(name, history, run.case, budget)
        extract(run, history)


def checks(uri: str, executor: str) -> None:
    """Judge the new runs of a lake, and store the results."""
    from results.judging.budgets import Budget
    from results.judging.pipeline import check
    from results.judging.report_runs import ReportRuns
    from results.spark.driver import SparkLake
    from results.spark.session import get_spark

    lake = opened(uri)
    snapshot, budgets = lake.snapshot(), (Budget(), Budget().larger())
    if executor == "spark":
        work = SparkLake(get_spark(MASTER), lake, snapshot, budgets=budgets)
        progress = work.check()
    else:
        source = ReportRuns(snapshot, budgets=budgets, slots=2)
        progress = check(source, executor=executor, jobs=2)
        source.close()
    assert progress.results_new, progress
    assert not progress.problems_total, progress


def report(uri: str, engine: str, output: str) -> None:
    """Make a report on a lake whose results are all known."""
    from harness.cli import main as harness

    words = ["--spark-master", MASTER] if engine == "spark" else []
    code = harness(["report", uri, "--engine", engine, "--output", output, *words])
    assert code in {0, 1, 2}, code


# Lakes -------------------------------------------------------------------------------------------


def repeat(source: str, uri: str, count: str, results: str) -> None:
    """Make a lake of `count` copies of runs in `source`, with results if `results` is "yes"."""
    from results.judging.result_lake import ResultLake
    from results.lake.upkeep.compaction import compact

    with_results = results == "yes"
    lake, origin = opened(uri), opened(source).snapshot()
    names = ["runs"] if with_results else [*origin.tables]
    append(lake, {name: origin.dataset(name).to_table() for name in names}, int(count), {})
    compact(lake)
    if not with_results:
        return
    source_results = ResultLake.beside(source, {})
    assert source_results is not None, "the source has no results yet"
    snapshot = source_results.snapshot()
    there = lake.snapshot().dataset("runs").to_table(["run", "batch"])
    batches = dict(zip(there["run"].to_pylist(), there["batch"].to_pylist(), strict=True))
    beside = ResultLake.beside(uri, {}, create=True)
    assert beside is not None
    append(beside, whole({name: snapshot.dataset(name).to_table() for name in snapshot.tables}),
           int(count), batches)  # fmt: skip
    compact(beside)


def whole(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Merge the rows of each run in the main table of results to one row."""
    import pyarrow as pa

    rows: dict[str, dict[str, Any]] = {}
    for row in tables["runs"].to_pylist():
        merged = rows.setdefault(row["run"], {**row, "results": [], "marks": []})
        merged["results"] += row["results"]
        merged["marks"] += row["marks"]
    return {**tables, "runs": pa.Table.from_pylist([*rows.values()], tables["runs"].schema)}


def append(
    lake: Any, tables: Mapping[str, pa.Table], count: int, batches: Mapping[str, str]
) -> None:
    """Append copies of the runs in `tables` to a lake until it has `count` runs.

    `batches` maps each judged run to its batch.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    distinct = tables["runs"]["run"].to_pylist()
    parts: dict[str, list[pa.Table]] = {name: [] for name in tables}
    waiting = 0
    for number, begin in enumerate(range(0, count, len(distinct))):
        kept = pa.array(distinct[: count - begin])
        prefix = f"again-{number:05}-"
        for name, table in tables.items():
            filtered = len(kept) < len(distinct)
            part = table.filter(pc.is_in(table["run"], kept)) if filtered else table
            part = part.drop_columns(["batch"])
            for column in {"run", "name"} & {*part.column_names}:
                made = pc.binary_join_element_wise(prefix, part[column], "")
                part = part.set_column(part.column_names.index(column), column, made)
            if name == "runs" and batches:
                judged = pa.array([batches[run] for run in part["run"].to_pylist()])
                part = part.set_column(part.column_names.index("run_batch"), "run_batch", judged)
            parts[name].append(part)
        waiting += len(kept)
        if waiting >= RUNS_AN_APPEND or begin + len(kept) >= count:
            lake.append({name: pa.concat_tables(some) for name, some in parts.items()})
            parts, waiting = {name: [] for name in tables}, 0


def judged_lake(scratch: Path, seeds: int) -> str:
    """Make a lake of simulated runs of ten seconds, with results; return its URI."""
    uri = str(scratch / "lake")
    soaked(scratch / "store", seeds, "--lake", uri)
    words = ("report", uri, "--executor", "inline", "--output", str(scratch / "report"))
    subprocess.run([sys.executable, "-m", "harness", *words], cwd=ROOT,
                   stdout=subprocess.DEVNULL, check=False)  # fmt: skip
    return uri


# The table ---------------------------------------------------------------------------------------


def measured(options: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, int, str, Cost]]:
    """Yield each measurement: its name, the number of runs, the engine, and the cost."""
    origin = options.lake or judged_lake(scratch, options.seeds)
    for count in options.checks:
        for who in ("loop", "pool", "spark"):
            uri = str(scratch / f"checks-{count}-{who}")
            cost_of("repeat", origin, uri, str(count), "no")
            words = ("plain_loop", uri) if who == "loop" else ("checks", uri, who)
            yield CHECKS, count, who, cost_of(*words)
    for count in options.known:
        uri = str(scratch / f"known-{count}")
        cost_of("repeat", origin, uri, str(count), "yes")
        for who in ("duckdb", "spark"):
            output = str(scratch / f"report-{count}-{who}")
            yield "report, all known", count, who, cost_of("report", uri, who, output)


def times_the_loop(costs: Mapping[str, Mapping[int, Cost]], sizes: Iterable[int]) -> str:
    """Format the costs of pool and Spark relative to the loop, by number of runs."""
    return "\n".join(
        f"checks of {runs:,} new runs, CPU time relative to the loop: "
        + ", ".join(
            f"{who} {costs[who][runs].cpu_s / costs['loop'][runs].cpu_s:.2f}"
            for who in ("pool", "spark")
        )
        for runs in sizes
    )


def break_even(duckdb: Mapping[int, Cost], spark: Mapping[int, Cost]) -> str:
    """Say from which number of runs on Spark takes less CPU time than DuckDB.

    The estimate assumes that both have a fixed cost, and a cost per run.
    """
    sizes = sorted(duckdb)
    if len(sizes) < 2:
        return "no break-even: this needs measurements of two sizes"
    less, more = sizes[0], sizes[-1]
    slope = {
        name: (costs[more].cpu_s - costs[less].cpu_s) / (more - less)
        for name, costs in (("duckdb", duckdb), ("spark", spark))
    }
    start = {
        name: costs[less].cpu_s - slope[name] * less
        for name, costs in (("duckdb", duckdb), ("spark", spark))
    }
    text = ", ".join(
        f"{name} {start[name]:.1f} s plus {1e6 * slope[name]:.0f} us per run" for name in slope
    )
    if slope["spark"] >= slope["duckdb"]:
        more_cores = slope["spark"] / slope["duckdb"]
        return (
            f"{text}: Spark never breaks even on one machine, but in the long run with "
            f"{more_cores:.1f} times the cores"
        )
    at = (start["spark"] - start["duckdb"]) / (slope["duckdb"] - slope["spark"])
    return f"{text}: break-even at {at:,.0f} runs"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def sizes(text: str) -> list[int]:
        return [int(word) for word in text.split(",") if word]

    parser.add_argument("lake", nargs="?", help="a lake of real runs (default: of a new soak)")
    parser.add_argument("--seeds", type=int, default=40, help="number of seeds of the new soak")
    parser.add_argument("--checks", type=sizes, default=[400, 2000], help="(default: 400,2000)")
    parser.add_argument("--known", type=sizes, default=[200, 1000], help="(default: 200,1000)")
    parser.add_argument("--scratch", type=Path, help="folder for temporary lakes")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    if ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise SystemExit("prctl(2) failed: this process cannot adopt orphaned processes")
    print(machine())
    print(f"{'':18}{'runs':>8} {'by':8}{'wall s':>8}{'CPU s':>8}{'driver MiB':>11}{'Java MiB':>9}")
    costs: dict[str, dict[int, Cost]] = {}
    checks: dict[str, dict[int, Cost]] = {}
    first: dict[tuple[str, int], float] = {}
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="lake-report-") as made:
        for what, runs, who, cost in measured(options, Path(made)):
            (checks if what == CHECKS else costs).setdefault(who, {})[runs] = cost
            ratio = cost.cpu_s / first.setdefault((what, runs), cost.cpu_s)
            print(
                f"{what:18}{runs:8,} {who:8}{cost.wall_s:8.1f}{cost.cpu_s:8.1f}"
                f"{cost.driver_mb:11.0f}{cost.java_mb:9.0f}   {ratio:.2f} x", flush=True,
            )  # fmt: skip
    listed = {who: {n: costs[who][n] for n in options.known} for who in ("duckdb", "spark")
             if options.known}  # fmt: skip
    print(times_the_loop(checks, options.checks))
    print(f"{break_even(**listed) if listed else ''}\n{machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
