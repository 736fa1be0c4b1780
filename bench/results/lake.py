"""Measures a lake and its growth: bytes per run, files, runs per CPU second, memory.

    python -m bench.results.lake                            # a soak of 400 seeds, 10^3 to 10^5 runs
    python -m bench.results.lake STORE ... --runs 1000,10000 --local

First the runs of the stores are appended to a lake. They are all different, so this lake shows the
bytes per run. Then, for each size in `--runs`, a lake is filled with copies of these runs under
other names, and compacted. These lakes show files, times and memory; their bytes mean nothing,
since copies compress well. A copy is a link to the same files, so the operating system reads it
from its cache.

The lakes are on an S3-compatible server on loopback (moto), whose own CPU time is not counted; with
`--local`, they are in a folder. CPU time and peak memory are those of the ingesting process, with
all its threads. Some runs of each lake are read back as histories, and their digests are compared.
With 10^5 runs, the bench takes about a quarter of an hour, and some GB in `--scratch`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.measure import ROOT, machine, peaks_mb
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from results.facts.problems import Problems
from results.lake.log.lake import Lake
from results.lake.tables.rebuild import HISTORY_TABLES, history_of
from results.lake.tables.schema import schemas
from results.lake.transfer.folders import writer_to
from results.lake.transfer.ingest import ingest
from results.lake.transfer.run_folders import run_folders
from results.lake.upkeep.compaction import compact

MB: Final = 1_000_000
LARGER: Final = 1_000_000
READ_BACK: Final = 5
CHILD: Final = "from bench.results.lake import {0}\n{0}()"


class Measured(NamedTuple):
    """Measurements of one lake that was filled and compacted."""

    runs: int
    cpu_s: float  # the CPU time of the ingest
    merging_cpu_s: float
    peak_mb: float
    files: int
    bytes_a_run: float


def opened(uri: str) -> Lake:
    return Lake.open(uri, create=True)


def fill() -> None:
    """Ingest a store, and print runs, appends, CPU s and wall s. It gets a process of its own."""
    store, uri = sys.argv[1:]
    lake = opened(uri)
    begin = time.process_time(), time.monotonic()
    counts, problems = ingest(Path(store), lake, writer_to(lake))
    took = time.process_time() - begin[0], time.monotonic() - begin[1]
    assert not problems.total, problems.kept[0]
    print(counts.appended, counts.appends, *took, sep="\n")


def merge() -> None:
    """Compact a lake, and print CPU s and wall s. It gets a process of its own."""
    lake = opened(sys.argv[1])
    begin = time.process_time(), time.monotonic()
    compact(lake)
    print(time.process_time() - begin[0], time.monotonic() - begin[1], sep="\n")


def measured(store: Path, uri: str) -> Measured:
    """Fill a lake, compact it, and print the cost of both."""
    runs, appends, cpu_s, wall_s, peak_mb = peaks_mb(CHILD.format("fill"), str(store), uri)
    print(
        f"{runs:,.0f} runs in {appends:.0f} appends: {runs / cpu_s:.0f} runs per CPU second "
        f"({1000 * cpu_s / runs:.2f} ms per run), {wall_s:.1f} s wall, peak {peak_mb:.0f} MiB"
    )
    _, size = files(uri, "as ingested")
    cpu_more_s, wall_more_s, peak_more_mb = peaks_mb(CHILD.format("merge"), uri)
    print(
        f"compacted: {1000 * cpu_more_s / runs:.2f} ms of CPU per run, {wall_more_s:.1f} s wall, "
        f"peak {peak_more_mb:.0f} MiB"
    )
    count, size = files(uri, "compacted")
    read_back(uri)
    return Measured(int(runs), cpu_s, cpu_more_s, max(peak_mb, peak_more_mb), count, size / runs)


def files(uri: str, when: str) -> tuple[int, int]:
    """Print the number and sizes of each table's files; return the total number and bytes."""
    snapshot = opened(uri).snapshot()
    runs = sum(file.rows for file in snapshot.files("runs"))
    sizes = {table: [file.size_bytes for file in snapshot.files(table)] for table in schemas()}
    count, total = sum(map(len, sizes.values())), sum(map(sum, sizes.values()))
    print(f"{when}: {count} files, {total / runs:,.0f} bytes per run, {total / MB:.1f} MB")
    for table, bytes_of in sizes.items():
        if bytes_of:
            print(
                f"    {table:11} {len(bytes_of):5} files of {min(bytes_of) / MB:.1f} to "
                f"{max(bytes_of) / MB:.1f} MB, {sum(bytes_of) / runs:8,.0f} bytes per run"
            )
    return count, total


def read_back(uri: str) -> None:
    """Read some runs of a lake; raise `HistoryError` if a history does not match its digest."""
    import pyarrow.compute as pc

    snapshot = opened(uri).snapshot()
    rows = snapshot.dataset("runs").to_table(["run", "digest"]).to_pylist()
    for row in rows[:: max(1, len(rows) // READ_BACK)][:READ_BACK]:
        is_run = pc.field("run") == row["run"]
        history_of(
            {name: snapshot.dataset(name).to_table(filter=is_run) for name in HISTORY_TABLES},
            digest=row["digest"],
        )


def repeated(folders: Sequence[Path], store: Path, count: int) -> Path:
    """Make a store with `count` runs, whose files are links to the files in `folders`."""
    for number in range(count):
        again, place = divmod(number, len(folders))
        run = store / f"again-{again:05}" / folders[place].name
        run.mkdir(parents=True)
        for path in folders[place].iterdir():
            if path.is_file():
                os.link(path, run / path.name)
    return store


def soaked(store: Path, seeds: int, *options: str) -> Path:
    """Run a soak with simulated runs of ten seconds; return its store."""
    words = ("soak", "--env", "sim", "--workload", "ddl", "--nemesis", "any", "--draw", "3")
    more = ("--time-limit", "10", "--seeds", f"1..{seeds}", "--store", str(store), "--quiet")
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words, *more, *options], cwd=ROOT, check=False
    )
    if done.returncode not in {EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN}:
        raise RuntimeError(f"the soak ended with {done.returncode}")
    return store


@contextlib.contextmanager
def lakes(local: bool, scratch: Path) -> Iterator[str]:
    """Yield a URI for new lakes: a folder, or a bucket on a server that runs during the block.

    The server's address is in environment variables.
    """
    if local:
        yield str(scratch / "lakes")
        return
    from tests.support.object_store import BUCKET, options_for, s3_server

    with s3_server() as endpoint:
        os.environ |= options_for(endpoint)
        yield f"s3://{BUCKET}"


def growth(points: Sequence[Measured]) -> None:
    """Print the cost per run in lakes of different sizes, and an estimate for `LARGER` runs."""
    for less, more in itertools.pairwise(points):
        ratio = (more.cpu_s / more.runs) / (less.cpu_s / less.runs)
        merging = (more.merging_cpu_s / more.runs) / (less.merging_cpu_s / less.runs)
        print(
            f"with {more.runs:,} runs, a run costs {ratio:.2f} times as much as with {less.runs:,} "
            f"(its compaction {merging:.2f} times); {more.files} files instead of {less.files}"
        )
    last, times = points[-1], LARGER / points[-1].runs
    print(
        f"so {LARGER:,} runs would take {last.cpu_s * times / 3600:.1f} h of CPU, plus "
        f"{last.merging_cpu_s * times / 3600:.1f} h for compaction, and at most "
        f"{last.files * times:,.0f} files (fewer, since small tables fill their files first)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "stores", nargs="*", type=Path, help="stores with runs (default: a new soak's)"
    )
    parser.add_argument("--seeds", type=int, default=400, help="number of seeds of the new soak")
    parser.add_argument("--runs", default="1000,10000,100000", help="numbers of copied runs")
    parser.add_argument("--local", action="store_true", help="put lakes into a folder")
    parser.add_argument("--scratch", type=Path, help="folder for copies, on the stores' disk")
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="lake-bench-") as made:
        scratch = Path(made)
        stores = options.stores or [soaked(scratch / "soak", options.seeds)]
        folders = [folder for store in stores for _, _, folder in run_folders(store, Problems())]
        with lakes(options.local, scratch) as below:
            print(f"\ndistinct: {len(folders):,} runs of {', '.join(map(str, stores))}")
            points = [measured(repeated(folders, scratch / "0", len(folders)), f"{below}/distinct")]
            for count in [int(word) for word in options.runs.split(",") if word]:
                print(f"\nrepeated: {count:,} runs, copied from these {len(folders):,}")
                store = repeated(folders, scratch / str(count), count)
                points.append(measured(store, f"{below}/runs-{count}"))
                shutil.rmtree(store)
    print(f"\n{machine()}")
    print(f"distinct runs: {points[0].bytes_a_run:,.0f} bytes per run")
    if points[1:]:
        growth(points[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
