"""Writers that are killed again and again, while others compact and vacuum: is every run there?

    python -m bench.results.lake_writers                     # 8 writers, 50 kills, S3, 10 % 503s
    python -m bench.results.lake_writers --local --kills 20  # in a folder python -m
    bench.results.lake_writers --uri s3://BUCKET/new-lake # a store of yours; AWS_* say where

Real runs, simulated here, are repeated under other ids. Each writer is a process that appends its
own runs, and some of its neighbour's as well, a few at a time, and says their keys on its standard
output when `append` has returned. Meanwhile one process compacts and another vacuums with no time
of grace, and at seeded moments one of all these is killed with SIGKILL and started again: a writer
then repeats its last append and goes on. The server is moto's, behind a proxy that answers
one request in ten with 503, half of those after it was done (`tests/support/object_store.py`).

What they leave is judged, then compacted and vacuumed as a whole, at the same server, and judged
again: leftovers of compactions and vacuums that were killed half-way must not harm the next ones.

Exit code 1 if a run that was acknowledged is lost, doubled or not equal to its original row by row,
if `check` finds damage, or after the last vacuum anything at all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.measure import ROOT, machine
from harness.case import Case
from harness.soak import SeedJob, run_seed
from results.facts.problems import Problems
from results.lake.log.files import LOG_FOLDER, merge_of
from results.lake.log.lake import Lake
from results.lake.tables.row_tables import tables_of
from results.lake.tables.schema import schemas
from results.lake.tables.sealed_run import read_source
from results.lake.transfer.run_folders import run_folders
from results.lake.upkeep.compaction import compact
from results.lake.upkeep.soundness import check
from results.lake.upkeep.vacuum import vacuum
from tests.support.object_store import BUCKET, flaky_proxy, options_for, refused_by, s3_server

Tables = dict[str, pa.Table]
APPEND_RUNS = 3
SMALL_BYTES, TARGET_BYTES = 256 << 10, 1 << 20
DEADLINE_S = 1800.0
LABELS = ("nightly", "weekly")
PAUSES = {"compact": 0.5, "vacuum": 15.0}
"""How long upkeep rests, in times of what it took: a vacuum ends every append that is under way."""


# Appended rows -----------------------------------------------------------------------------------


def simulate(store: Path, seeds: int) -> None:
    """Leave some runs in a store."""
    for seed in range(1, seeds + 1):
        case = Case(seed=seed, nemeses=("kill-leader",), time_limit_s=3.0)
        run_seed(SeedJob(case=case, store=str(store), name="real", run_prefix="run-"))


def originals(store: Path) -> list[Tables]:
    """The rows of every run of a store, run by run."""
    folders = sorted(folder for _, _, folder in run_folders(store, Problems()))
    return [tables_of([read_source(folder)]) for folder in folders]


def copy_of(original: Tables, key: str, label: str) -> Tables:
    """The same run under another id and label."""
    return {
        name: table.set_column(
            table.schema.get_field_index("run"), "run", pa.repeat(key, table.num_rows)
        ).set_column(
            table.schema.get_field_index("label"), "label", pa.repeat(label, table.num_rows)
        )
        for name, table in original.items()
    }


def key_of(writer: int, number: int) -> str:
    return f"copy/{writer:02}-{number:04}"


def rows_of(store: Sequence[Tables], key: str) -> Tables:
    """Rows of a key, from which the repeated run and its label follow."""
    writer, number = map(int, key.removeprefix("copy/").split("-"))
    which = writer + number
    return copy_of(store[which % len(store)], key, LABELS[which % len(LABELS)])


def plan(writer: int, writers: int, runs: int) -> list[list[str]]:
    """The appends of a writer: its own runs, and every third of its neighbour's."""
    keys = []
    for number in range(runs):
        keys.append(key_of(writer, number))
        if number % 3 == 0:
            keys.append(key_of((writer + 1) % writers, number))
    return [keys[at : at + APPEND_RUNS] for at in range(0, len(keys), APPEND_RUNS)]


# The processes ------------------------------------------------------------------------------------


def opened(uri: str) -> Lake:
    return Lake.open(uri, create=True)


def write(parsed: argparse.Namespace) -> None:
    """Append from one place of the plan on, and print each append."""
    store, lake = originals(parsed.store), opened(parsed.uri)
    for keys in plan(parsed.writer, parsed.writers, parsed.runs)[parsed.begin :]:
        runs = [rows_of(store, key) for key in keys]
        lake.append({name: pa.concat_tables([run[name] for run in runs]) for name in schemas()})
        print(*keys, flush=True)


def look_after(parsed: argparse.Namespace) -> None:
    """Compact or vacuum until killed, and say how often."""
    lake = opened(parsed.uri)
    while True:
        begin_s = time.monotonic()
        if parsed.role == "compact":
            compact(lake, small_bytes=SMALL_BYTES, target_bytes=TARGET_BYTES)
        else:
            vacuum(lake, grace_hours=0)
        print("done", flush=True)
        time.sleep(PAUSES[parsed.role] * (time.monotonic() - begin_s))


class Process:
    """One that is started again whenever it was killed."""

    def __init__(self, role: str, words: Sequence[str], environ: dict[str, str]) -> None:
        self.role, self.words, self.environ = role, words, environ
        self.said: list[str] = []
        self.kills = 0
        self.start()

    def start(self) -> None:
        """Begin with the append that was printed last, which is there already."""
        words = [*self.words, "--role", self.role, "--begin", str(max(0, len(self.said) - 1))]
        self.child = subprocess.Popen(
            [sys.executable, "-m", "bench.results.lake_writers", *words],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self.environ,
        )
        self._reader = threading.Thread(target=self._read, args=(self.child, len(self.said)))
        self._reader.start()

    def _read(self, child: subprocess.Popen[str], before: int) -> None:
        """Whole lines only: a torn one says nothing. The first repeats the last one before."""
        assert child.stdout is not None
        for line in child.stdout:
            if not line.endswith("\n"):
                break
            if before and self.role == "write":
                before = 0
                assert line.strip() == self.said[-1]
            else:
                self.said.append(line.strip())

    def end(self) -> int:
        """Kill the writer, and read all its output."""
        self.child.kill()
        return self.wait()

    def wait(self) -> int:
        """Hear it out; its exit code."""
        self._reader.join()
        assert self.child.stdout is not None
        self.child.stdout.close()
        return self.child.wait()


# The exam -----------------------------------------------------------------------------------------


class Found:
    """The fate of the runs."""

    def __init__(self) -> None:
        self.acknowledged = self.lost = self.doubled = self.other = self.damage = 0
        self.left: list[str] = []

    @property
    def kept(self) -> bool:
        """Whether every promise was."""
        return not (self.lost or self.doubled or self.other or self.damage)


def judge(lake: Lake, store: Sequence[Tables], acknowledged: set[str]) -> Found:
    """Compare every run of the lake with its original; damaged runs are not read."""
    result, snapshot = Found(), lake.snapshot()
    result.acknowledged = len(acknowledged)
    findings = check(lake)
    result.damage = sum(finding.damaged for finding in findings)
    result.left = [f"{each.table}: {each.text}" for each in findings if not each.damaged]
    if result.damage:
        return result
    tables = {name: snapshot.dataset(name).to_table() for name in schemas()}
    counts = Counter(tables["runs"]["run"].to_pylist())
    result.lost = sum(counts[key] == 0 for key in acknowledged)
    result.doubled = sum(count > 1 for count in counts.values())
    for key in counts:
        wanted = rows_of(store, key)
        for name, table in tables.items():
            stored = table.filter(pc.equal(table["run"], key)).select(wanted[name].column_names)
            if stored.to_pylist() != wanted[name].to_pylist():
                result.other += 1
                break
    return result


def files_of(lake: Lake) -> int:
    """The number of files of the lake."""
    return sum(len(lake.files(table)) for table in lake.tables)


def merges_of(lake: Lake) -> int:
    """The number of committed merges, by the logs, which list deleted files too."""
    count = 0
    for table in lake.tables:
        log = f"{table}/{LOG_FOLDER}"
        for commit in lake.place.listed(log):
            if commit.name.endswith(".json"):
                with lake.place.files.open_input_stream(f"{log}/{commit.name}") as stream:
                    actions = [json.loads(line) for line in stream.read().splitlines()]
                added = [action["add"]["path"] for action in actions if "add" in action]
                count += sum(merge_of(name) is not None for name in added)
    return count


def tidy(lake: Lake) -> None:
    """Compact and vacuum without other writers: then nothing is left over.

    The first vacuum takes batches of dead writers out of the logs, the second removes their files.
    """
    compact(lake, small_bytes=SMALL_BYTES, target_bytes=TARGET_BYTES)
    for _ in range(2):
        vacuum(lake, grace_hours=0)


@contextlib.contextmanager
def place(parsed: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, dict[str, str], Any]]:
    """The address of the lake, its direct options, and the proxy that others use."""
    if parsed.local:
        yield str(scratch / "lake"), {}, None
    elif parsed.uri:
        yield parsed.uri, {}, None
    else:
        with s3_server() as server, flaky_proxy(server, seed=parsed.seed) as proxy:
            yield f"s3://{BUCKET}/lake", options_for(server), proxy


def kill_them(processes: Sequence[Process], parsed: argparse.Namespace) -> None:
    """At random moments end one that still works, and start it again, until the writers are done.

    Raises `RuntimeError` where one ends otherwise, or the writers are not done in time.
    """
    rng, left = random.Random(parsed.seed), parsed.kills
    writers = [process for process in processes if process.role == "write"]
    total = sum(len(plan(n, parsed.writers, parsed.runs)) for n in range(parsed.writers))
    deadline_s = time.monotonic() + DEADLINE_S
    moments = sorted(rng.uniform(0.0, 0.9) for _ in range(left))  # of the whole work
    while any(process.child.poll() is None for process in writers):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the writers are not done after {DEADLINE_S:.0f} s")
        time.sleep(rng.uniform(0.0, 0.1))
        for process in processes:
            if process.child.poll() not in {None, 0}:
                raise RuntimeError(f"{process.role} ended with {process.child.returncode}")
        done = sum(len(process.said) for process in writers) / total
        if left and done >= moments[parsed.kills - left]:
            print(f"{done:.0%} appended, {left} kills left", file=sys.stderr, flush=True)
            victim = rng.choice([each for each in processes if each.child.poll() is None])
            victim.end()
            victim.kills += 1
            left -= 1
            victim.start()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--runs", type=int, default=20, help="of each writer")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=4, help="real runs, which are repeated")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and the 503s")
    parser.add_argument("--local", action="store_true", help="in a folder")
    parser.add_argument("--uri", help="at another store")
    for name in ("--role", "--store"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    for name in ("--begin", "--writer"):
        parser.add_argument(name, type=int, default=0, help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.role is not None:
        parsed.store = Path(parsed.store)
        (write if parsed.role == "write" else look_after)(parsed)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        return exam(parsed, Path(scratch))


def exam(parsed: argparse.Namespace, scratch: Path) -> int:
    """Run everything, judge, and print the table."""
    from bench.results import lake_equal

    store = scratch / "store"
    simulate(store, parsed.seeds)
    with place(parsed, scratch) as (uri, options, proxy):
        environ = {**os.environ, **(options_for(proxy) if proxy else {})}
        words = [
            *("--uri", uri, "--store", str(store)),
            *("--writers", str(parsed.writers), "--runs", str(parsed.runs)),
        ]
        begin_s = time.monotonic()
        writers = [
            Process("write", [*words, "--writer", str(number)], environ)
            for number in range(parsed.writers)
        ]
        others = [Process(role, words, environ) for role in PAUSES]
        try:
            kill_them([*writers, *others], parsed)
        finally:
            codes = [process.end() for process in (*writers, *others)][: len(writers)]
        took_s = time.monotonic() - begin_s
        lake, runs = lake_equal.opened(uri, options), originals(store)
        appended = {key for process in writers for line in process.said for key in line.split()}
        result, merges, count = judge(lake, runs, appended), merges_of(lake), files_of(lake)
        if result.kept:
            tidy(lake_equal.opened(uri, options_for(proxy) if proxy else options))
            result = judge(lake, runs, appended)
        after = files_of(lake)
        refused = refused_by(proxy) if proxy else 0
    kills = Counter(dict.fromkeys(("write", *PAUSES), 0))
    for process in (*writers, *others):
        kills[process.role] += process.kills
    upkeep = [f"{process.role} whole {len(process.said)} times" for process in others]
    upkeep.append(f"{merges} merges committed")
    for name, value in {
        "machine": machine(),
        "lake": f"{uri}, {parsed.seeds} real runs repeated under other ids",
        "killed": f"{kills.total()}: {', '.join(f'{kills[role]} {role}' for role in kills)}",
        "refused": f"{refused} requests",
        "upkeep": ", ".join(upkeep),
        "took": f"{took_s:.0f} s",
        "files": f"{count}; {after} after upkeep of all",
        "acknowledged": result.acknowledged,
        "lost": result.lost,
        "doubled": result.doubled,
        "not equal": result.other,
        "damage": result.damage,
        "left over": "; ".join(result.left) or 0,
    }.items():
        print(f"{name:14} {value}")
    complete = not any(codes) and kills.total() == parsed.kills
    return 0 if result.kept and not result.left and complete else 1


if __name__ == "__main__":
    sys.exit(main())
