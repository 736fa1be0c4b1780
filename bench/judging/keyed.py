"""Measures all steps from an EDN file with independent keys to the verdicts.

Usage: `python -m bench.judging.keyed [--keys N] [--store FOLDER]`.

Writes a history of registers in EDN like those of `jepsen.independent`, with 100 operations per
key, of which two keys are not linearizable. Imports it, adds it to a lake, and judges every key in
two ways:

* by a plain loop over the stored history, with the same checker, one key after another;
* by a report on a lake without results: once in a pool of two workers, and once on Spark
  `local[2]`, whose start is timed separately. A second, identical report judges nothing, so its
  time is the cost of the questions and the page.

CPU seconds are those of the whole process tree, Java included, from /proc. The report's verdict
about each key is compared with the loop's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import ROOT
from harness.case import imported_case
from harness.environments import procfs
from harness.independent import split
from harness.store import load_run
from harness.verdict.judge import checkers_of
from results.judging.result_lake import ResultLake
from results.report.report import report

OPERATIONS_A_KEY = 100
PROCESSES_A_KEY = 5
KEYS_AT_ONCE = 20
STALE_KEYS = 2


def write_edn(path: Path, keys: int) -> None:
    """Write the history to `path`. Each group of clients works on one key after another."""
    rng = random.Random(1)
    lines = []
    for group in range(KEYS_AT_ONCE):
        now = rng.randrange(1000)
        clients = [group * PROCESSES_A_KEY + n for n in range(PROCESSES_A_KEY)]
        for key in range(group, keys, KEYS_AT_ONCE):
            now = key_lines(lines, rng, key, clients, now)
    lines.sort(key=lambda line: line[:2])
    with path.open("w", encoding="ascii") as file:
        for index, (time_ns, _, process, kind, f, value) in enumerate(lines):
            file.write(
                f"{{:type :{kind}, :f :{f}, :value [{value}], :process {process}, "
                f":time {time_ns}, :index {index}}}\n"
            )


def key_lines(lines: list[Any], rng: random.Random, key: int, clients: list[int], now: int) -> int:
    """Add the lines of one key; return the time at which its last operation ends."""
    value = 0
    free = [now] * len(clients)
    for number in range(OPERATIONS_A_KEY):
        slot = number % len(clients)
        begin = max(free[slot], now) + rng.randrange(1, 50_000)
        now = max(begin + rng.randrange(1, 200_000), now + 1)
        free[slot] = now + rng.randrange(1, 200_000)
        f = rng.choices(("read", "write", "cas"), (5, 4, 1))[0]
        old, new, kind = rng.randrange(5), rng.randrange(5), "ok"
        process = clients[slot]
        asked, answer = "nil", str(value)
        if f == "read" and key < STALE_KEYS and number > OPERATIONS_A_KEY - 10:
            answer = "777"  # a value that no operation wrote
        elif f == "write":
            asked = answer = str(new)
            if lost := rng.random() < 0.01:
                kind = "info"
                clients[slot] += KEYS_AT_ONCE * PROCESSES_A_KEY
            if not lost or rng.random() < 0.5:
                value = new
        elif f == "cas":
            asked = answer = f"[{old} {new}]"
            kind = "ok" if old == value else "fail"
            value = new if old == value else value
        lines.append((begin, 0, process, "invoke", f, f"{key} {asked}"))
        lines.append((free[slot], 1, process, kind, f, f"{key} {answer}"))
    return max(free)


def plain_loop(run: Path) -> dict[str, str]:
    """Judge every key of a run with the report's checker; return the verdicts by key."""
    stored = load_run(run)
    (checker,) = checkers_of(stored.case)
    case = imported_case(*stored.case.checkers, independent=False)
    return {
        json.dumps(key): checker.check(part, case, time_limit_s=120.0).verdict.value
        for key, part in split(stored.history).items()
    }


def harness(*arguments: str) -> str:
    """Run the harness in a new process; return its stdout. The exit code 1 is not an error."""
    words = [
        sys.executable,
        "-c",
        "from harness.cli import main; raise SystemExit(main())",
        *arguments,
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        raise SystemExit(f"harness {' '.join(arguments)}: {done.returncode}\n{done.stderr}")
    return done.stdout


def timed(what: str, work: Callable[[], Any], base: float | None = None) -> tuple[Any, float]:
    """Do `work` and print its times; return its result and its CPU seconds."""

    def cpu_s() -> float:
        return procfs.computed_s(procfs.family(os.getpid()))

    cpu, wall = cpu_s(), time.perf_counter()
    answer = work()
    cpu, wall = cpu_s() - cpu, time.perf_counter() - wall
    share = "" if base is None else f"{cpu / base:7.2f}"
    print(f"{what:44}{wall:9.1f}{cpu:9.1f}{share}", flush=True)
    return answer, cpu


def verdicts_of(lake: Path) -> dict[str, str]:
    """Read the verdicts by key from the results in a lake."""
    results = ResultLake.beside(str(lake), {})
    assert results is not None
    rows = results.dataset("verdicts").to_table(["key", "verdict"]).to_pylist()
    verdicts = {row["key"]: row["verdict"] for row in rows}
    assert len(verdicts) == len(rows), "a key has two verdicts"
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keys", type=int, default=10_000, help="number of keys, with 100 operations each"
    )
    parser.add_argument("--executors", default="pool,spark")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="harness-bench-keyed-") as folder:
        measure(Path(folder), options.keys, options.executors.split(","))


def measure(folder: Path, keys: int, executors: list[str]) -> None:
    file, store = folder / "history.edn", folder / "store"
    write_edn(file, keys)
    size = file.stat().st_size / 1e6
    print(f"{keys * OPERATIONS_A_KEY:,} operations on {keys:,} keys, {size:.0f} MB of EDN")
    print(f"{'':44}{'wall s':>9}{'CPU s':>9}{'ratio':>7}")
    timed("import", lambda: harness("import", str(file), "--store", str(store)))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"{'':4}peak of its memory: {peak} MiB")
    (run,) = (path for path in (store / "imported").iterdir() if not path.is_symlink())
    lake = folder / "lake"
    timed("ingest", lambda: harness("ingest", str(store), "--lake", str(lake)))
    expected, base = timed("plain loop", lambda: plain_loop(run))
    print(f"{'':4}{dict(Counter(expected.values()))}")
    for name in executors:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(lake / "results")
        asked: dict[str, Any] = {"executor": "pool", "jobs": 2}
        if name == "spark":
            from results.spark.session import get_spark

            asked = {"spark_master": "local[2]"}
            timed("start of Spark", lambda: get_spark("local[2]"))

        def again(asked: dict[str, Any] = asked) -> None:
            report(str(lake), output=folder / "page", **asked)

        _, cpu = timed(f"report, {name}", again, base)
        assert verdicts_of(lake) == expected, "other verdicts than the plain loop's"
        _, repeated = timed(f"report, {name}, all known", again)
        print(f"{'':4}{'judging':40}{'':9}{cpu - repeated:9.1f}{(cpu - repeated) / base:7.2f}")


if __name__ == "__main__":
    main()
