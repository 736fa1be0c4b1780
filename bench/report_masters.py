"""The same report everywhere: DuckDB in this process against Spark under four kinds of master.

    python bench/report_masters.py STORE

Makes the whole report of a copy of `STORE` (checks, facts, SQL, answers) without Spark, by DuckDB;
then on Spark under `local[2]`, `local-cluster[2,1,1024]`, a standalone master and worker (from the
pip package), and a Connect server; each time with all earlier results removed. Compares every table
and every answer, row by row; how long a check took is left out.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MEASURES = {"wall_ns", "cpu_ns"}
START_S_MAX = 120.0


def rows_of(path: Path) -> list[str]:
    """The rows of a Parquet file without what was measured, sorted."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    kept = sorted(name for name in table.column_names if name not in MEASURES)
    return sorted(repr(row) for row in table.select(kept).to_pylist())


def report(store: Path, output: Path, *options: str) -> float:
    """Run the verb as a user does, from nothing; wall seconds."""
    shutil.rmtree(store / ".results", ignore_errors=True)
    begin_s = time.monotonic()
    words = ["report", str(store), "--output", str(output), "--json", *options]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
        text=True,
    )
    if not (output / "report.html").is_file():
        raise SystemExit(f"report {options} made nothing:\n{done.stderr[-3000:]}")
    return time.monotonic() - begin_s


def wait_told(log: Path, process: subprocess.Popen[bytes], pattern: str) -> str:
    """What a program says once it is ready: the group of `pattern` in its log."""
    end_s = time.monotonic() + START_S_MAX
    while time.monotonic() < end_s:
        ended = process.poll() is not None
        if (told := re.search(pattern, log.read_text())) is not None:
            return told[1]
        if ended:
            raise SystemExit(f"{process.args!r} ended with {process.returncode}")
        time.sleep(0.1)
    raise SystemExit(f"{process.args!r} is not ready after {START_S_MAX:g} s")


@contextlib.contextmanager
def daemon(name: str, folder: Path, ready: str, *arguments: str) -> Iterator[str]:
    """One of Spark's own programs, from the pip package, until the block ends.

    It takes ports of its own, and says which: the group of `ready`.
    """
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    path = folder / f"{name}.log"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with path.open("wb") as log:
        process = subprocess.Popen(
            [str(program), *arguments], stdout=log, stderr=log, cwd=folder, env=environment
        )
        try:
            yield wait_told(path, process, ready)
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    names = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
    of_master = (names[0], "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    of_worker = (names[1], "--cores", "2", "--memory", "1g", "--webui-port", "0")
    work = str(folder / "work")
    with (
        daemon("master", folder, r"Starting Spark master at (spark://\S+)", *of_master) as url,
        daemon("worker", folder, "(Successfully registered)", *of_worker, "--work-dir", work, url),
    ):
        yield url


@contextlib.contextmanager
def connect(folder: Path) -> Iterator[str]:
    settings = [
        "spark.connect.grpc.binding.port=0",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.ui.enabled=false",
    ]
    options = [word for setting in settings for word in ("--conf", setting)]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    submit = ("org.apache.spark.deploy.SparkSubmit", "--master", "local[2,3]", *options)
    ready = r"Connect server started at: (127\.0\.0\.1:\d+)"
    with daemon("connect", folder, ready, *submit, "--class", server, "spark-internal") as address:
        yield f"sc://{address}"


def differences(ours: Path, theirs: Path) -> list[str]:
    """Files whose rows are not the same."""
    names = {path.relative_to(ours) for path in ours.glob("*/*.parquet")}
    others = {path.relative_to(theirs) for path in theirs.glob("*/*.parquet")}
    odd = [str(name) for name in sorted(names ^ others)]
    return odd + [
        str(name)
        for name in sorted(names & others)
        if rows_of(ours / name) != rows_of(theirs / name)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        store = folder / "store"
        left_out = shutil.ignore_patterns(".results", ".report")
        shutil.copytree(options.store, store, symlinks=True, ignore=left_out)
        plain = folder / "duckdb"
        took_s = report(store, plain)
        files = list(plain.glob("*/*.parquet"))
        rows = sum(len(rows_of(path)) for path in files)
        print(f"duckdb, in this process    {took_s:6.1f} s  {len(files)} tables, {rows} rows")
        failed = 0
        masters = {
            "local[2]": contextlib.nullcontext("local[2]"),
            "local-cluster[2,1,1024]": contextlib.nullcontext("local-cluster[2,1,1024]"),
            "standalone": standalone(folder),
            "connect": connect(folder),
        }
        for name, running in masters.items():
            with running as url:
                output = folder / name
                took_s = report(store, output, "--spark-master", url)
                odd = differences(plain, output)
            failed += bool(odd)
            print(f"{name:26} {took_s:6.1f} s  {'identical' if not odd else f'DIFFERENT: {odd}'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
