"""Measures `harness serve LAKE` with 10^5 runs: the time of each page, and memory.

    python -m bench.results.serve_lake                    # 100,000 runs in a folder
    python -m bench.results.serve_lake --runs 1000000 --s3
    python -m bench.results.serve_lake --lake URI         # an existing lake

The bench makes the lake from copies of the runs of two small soaks, one of them with a bug switched
on. The copies have other ids, seeds, labels, days and versions of the code. Each append has some
thousands of them, and finally the lake is compacted. Only the first `--histories` runs have
operations and events: lists, groups and trends never read these, and the page of a run only reads
those of its own run.

The server is a process of its own, and requests are HTTP on loopback. `first` is the time of the
first request for a kind of page, and `warm` is the median of five later requests. CPU is the
server's CPU time for one of the later requests.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import pyarrow as pa

from bench.measure import ROOT, machine
from bench.results.lake import lakes
from harness.environments import procfs
from results.facts.problems import Problems
from results.lake.log.lake import Lake
from results.lake.tables.row_tables import tables_of
from results.lake.tables.sealed_run import read_source
from results.lake.transfer.run_folders import run_folders
from results.lake.upkeep.compaction import compact

DAYS: Final = 60
LABELS: Final = ("v1", "v2", "v3")
LAST_DAY: Final = dt.datetime(2026, 11, 26, tzinfo=dt.UTC)
WARM: Final = 5
CLIENT_S: Final = 600.0


def soaked(store: Path, seeds: int) -> Path:
    """Run two soaks, one of them with a bug, with simulated runs of ten seconds, into `store`."""
    words = ("soak", "--env", "sim", "--time-limit", "10")
    any_two = ("--nemesis", "any", "--draw", "2")
    for more in (("--bug", "NO-LEASE", "--nemesis", "partition-leader"), any_two):
        subprocess.run(
            [sys.executable, "-m", "harness", *words, *more, "--seeds", f"1..{seeds}", "--store",
             str(store), "--quiet"],
            cwd=ROOT, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    return store


def filled(uri: str, store: Path, runs: int, histories: int) -> None:
    """Make a lake of `runs` runs at `uri`, with one append per day and label."""
    folders = [folder for _, _, folder in run_folders(store, Problems())]
    tables = tables_of([read_source(folder) for folder in folders])
    lake = Lake.open(uri, create=True)
    appends = [(day, label) for day in range(DAYS) for label in LABELS]
    ends = [runs * (number + 1) // len(appends) for number in range(len(appends))]
    for (day, label), first, last in zip(appends, [0, *ends], ends, strict=False):
        if last > first:
            rest = min(last, max(first, histories))
            began = LAST_DAY - dt.timedelta(days=DAYS - 1 - day)
            lake.append(again(tables, first, rest, label, began, whole=True))
            lake.append(again(tables, rest, last, label, began, whole=False))
    compact(lake)


def again(
    tables: dict[str, pa.Table], first: int, last: int, label: str, began: dt.datetime, *,
    whole: bool,
) -> dict[str, pa.Table]:  # fmt: skip
    """Make rows of the runs with numbers from `first` to `last`, as copies of the soaks' runs.

    With `whole`, they include operations and events.
    """
    main = tables["runs"]
    numbers = list(range(first, last))
    source = [index % len(main) for index in numbers]
    name, run = ([main[key][index].as_py() for index in source] for key in ("name", "run"))
    ids = [f"soak-{label}-seed-{index}" for index in numbers]
    keys = [f"{n}/{i}@{key[-12:]}" for n, i, key in zip(name, ids, run, strict=True)]
    code = f"{began.toordinal() // 7:012x}"
    changed: dict[str, Any] = {
        "run": keys, "id": ids, "seed": numbers, "label": [label] * len(numbers),
        "day": [began.date()] * len(numbers),
        "started": [began + dt.timedelta(seconds=(index % 86_400)) for index in numbers],
        "versions": [json.dumps({"harness": "1", "code": code})] * len(numbers),
    }  # fmt: skip
    repeated = {"runs": replaced(main.take(pa.array(source, pa.int64())), changed)}
    if not whole:
        return repeated
    for table, rows in tables.items():
        if table != "runs":
            parts = [
                replaced(part, {column: [value[at]] * len(part) for column, value in changed.items()
                               if column in ("run", "label", "day")})
                for at, key in enumerate(run)
                for part in [of_run(rows, key)]
            ]  # fmt: skip
            repeated[table] = pa.concat_tables([rows.slice(0, 0), *parts])
    return repeated


def of_run(rows: pa.Table, run: str) -> pa.Table:
    """Return the rows of one run. After the first call, they are cached."""
    import pyarrow.compute as pc

    key = (id(rows), run)
    if key not in _OWN:
        _OWN[key] = rows.filter(pc.equal(rows["run"], run))
    return _OWN[key]


_OWN: Final[dict[tuple[int, str], pa.Table]] = {}


def replaced(rows: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """Replace the values of some columns."""
    for name, values in columns.items():
        place = rows.column_names.index(name)
        kind = rows.schema.field(name).type
        rows = rows.set_column(place, rows.schema.field(name), pa.array(values, kind))
    return rows


@contextlib.contextmanager
def served(uri: str) -> Iterator[tuple[int, int]]:
    """Run a server; once it has read the lake, yield its port and process id."""
    begin_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "serve", uri, "--port", "0"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2].strip("/\n"))
        print(f"the server answers after {time.monotonic() - begin_s:.1f} s")
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def asked(port: int, path: str) -> tuple[float, bytes]:
    """Request a page; return the time in ms, and the page's body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CLIENT_S)
    with contextlib.closing(connection):
        begin_s = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        took_ms = (time.perf_counter() - begin_s) * 1000
    assert answer.status == 200, (path, body[:2_000])
    return took_ms, body


def memory_mb(pid: int) -> tuple[float, float]:
    """Return the memory of a process in MiB, now and at its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(fields["VmRSS"]) / 1024, int(fields["VmHWM"]) / 1024


def pages(port: int) -> dict[str, list[str]]:
    """Return the paths of the pages to request, by kind of page."""
    data = json.loads(asked(port, "/api/runs?verdict=invalid&sort=started")[1])
    (signature, *_) = [group["signature"] for group in data["signatures"]]
    keys = [run["key"] for run in data["runs"]]
    last = max(1, data["total"] // 128)
    pairs = list(itertools.pairwise(keys))
    return {
        "list": ["/"],
        "list, page in the middle": [f"/?page={last // 2}"],
        "filter: label and verdict": ["/?label=v2&verdict=invalid"],
        "filter: seeds and a nemesis": ["/?seed=1000..50000&nemesis=kill-leader"],
        "search in all texts": ["/?q=kill+v2"],
        "sort by lines": ["/?sort=-ops"],
        "sort by run": ["/?sort=run"],
        "signature": [f"/?{urlencode({'signature': signature})}"],
        "matrix: nemesis, workload": ["/matrix"],
        "matrix: signature, day": ["/matrix?down=signature&across=day"],
        "trends by day": ["/trends?by=day"],
        "trends by code": ["/trends?by=code"],
        "trends by label": ["/trends?by=label"],
        "compare two labels": ["/compare?label=v1&label=v3"],
        "one run, other ones": [f"/run/{quote(key)}/" for key in keys[:6]],
        "one run, again": [f"/run/{quote(keys[0])}/"],
        "page of a run": [f"/run/{quote(keys[0])}/report.html"],
        "compare two runs, other ones": [
            f"/compare?{urlencode([('run', a), ('run', b)])}" for a, b in pairs[6:18:2]
        ],
        "compare two runs, again": [f"/compare?{urlencode([('run', keys[0]), ('run', keys[1])])}"],
    }


def measured(uri: str) -> None:
    """Serve a lake and print a table of times."""
    with served(uri) as (port, pid):
        now, most = memory_mb(pid)
        print(f"memory at the start: {now:.0f} MiB, peak {most:.0f} MiB\n")
        print(f"| {'page':30} | first ms | warm ms | CPU ms | kB |\n|{'-' * 32}|---|---|---|---|")
        for name, paths in pages(port).items():
            first_ms, body = asked(port, paths[0])
            others = itertools.islice(itertools.cycle(paths[1:] or paths), WARM)
            before_s = procfs.computed_s([pid])
            warm_ms = statistics.median(asked(port, path)[0] for path in others)
            took_ms = (procfs.computed_s([pid]) - before_s) * 1000 / WARM
            print(
                f"| {name:30} | {first_ms:8.0f} | {warm_ms:7.0f} | {took_ms:6.0f} | "
                f"{len(body) / 1000:.0f} |"
            )
        now, most = memory_mb(pid)
        print(f"\nmemory after all requests: {now:.0f} MiB, peak {most:.0f} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument(
        "--seeds", type=int, default=20, help="number of seeds of each soak (default: 20)"
    )
    parser.add_argument(
        "--histories", type=int, default=2_000, help="number of runs with operations"
    )
    parser.add_argument(
        "--s3", action="store_true", help="put the lake on an S3 server on loopback"
    )
    parser.add_argument("--lake", help="serve this lake instead of a new one")
    parser.add_argument("--keep", type=Path, help="make the lake in this folder, and keep it")
    options = parser.parse_args()
    print(machine())
    if options.lake:
        measured(options.lake)
        return 0
    with tempfile.TemporaryDirectory(prefix="serve-lake-") as made:
        scratch = Path(made)
        store = soaked(scratch / "soak", options.seeds)
        with lakes(not options.s3, options.keep or scratch) as below:
            begin_s = time.monotonic()
            filled(f"{below}/lake", store, options.runs, options.histories)
            print(
                f"{options.runs:,} runs, copies of two soaks; a lake of "
                f"them took {time.monotonic() - begin_s:.0f} s"
            )
            measured(f"{below}/lake")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    sys.exit(main())
