"""Processes that append to a lake, compact it and vacuum it, and a check of the result.

A few real runs are repeated under other ids. A writer appends its own runs and some runs of its
neighbour, the next writer, in small batches. It prints the keys of a batch once `append` has
returned.
"""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness.case import Case
from harness.soak import SeedJob, run_seed
from results.facts.problems import Problems
from results.lake.log.lake import Lake
from results.lake.tables.row_tables import tables_of
from results.lake.tables.schema import schemas
from results.lake.tables.sealed_run import read_source
from results.lake.transfer.run_folders import run_folders
from results.lake.upkeep.compaction import compact
from results.lake.upkeep.soundness import check
from results.lake.upkeep.vacuum import vacuum

APPEND_RUNS = 3
SMALL_BYTES, TARGET_BYTES = 256 << 10, 1 << 20
DEADLINE_S = 1800.0
LABELS = ("nightly", "weekly")
PAUSES = {"compact": 0.5, "vacuum": 15.0}
"""The pause after each upkeep, as a multiple of its duration.

A vacuum ends all running appends, so its pause is long.
"""


def simulate(store, seeds):
    for seed in range(1, seeds + 1):
        case = Case(seed=seed, nemeses=("kill-leader",), time_limit_s=3.0)
        run_seed(SeedJob(case=case, store=str(store), name="real", run_prefix="run-"))


def originals(store):
    """Return the rows of each run in a store."""
    folders = sorted(folder for _, _, folder in run_folders(store, Problems()))
    return [tables_of([read_source(folder)]) for folder in folders]


def copy_of(original, key, label):
    copies = dict(original)
    for column, value in (("run", key), ("label", label)):
        for name, table in copies.items():
            place = table.schema.get_field_index(column)
            copies[name] = table.set_column(place, column, pa.repeat(value, table.num_rows))
    return copies


def key_of(writer, number):
    return f"copy/{writer:02}-{number:04}"


def rows_of(store, key):
    """Return the rows for a key; the key determines which original run they repeat."""
    number = sum(map(int, key.removeprefix("copy/").split("-")))
    return copy_of(store[number % len(store)], key, LABELS[number % len(LABELS)])


def plan(writer, writers, runs):
    """Plan a writer's appends: its own runs, and every third run of its neighbour."""
    keys = []
    for number in range(runs):
        keys.append(key_of(writer, number))
        if number % 3 == 0:
            keys.append(key_of((writer + 1) % writers, number))
    return [keys[at : at + APPEND_RUNS] for at in range(0, len(keys), APPEND_RUNS)]


# --- processes -----------------------------------------------------------------------------------


def write(uri, store, begin, *numbers):
    """Execute the plan from one position on, and print each append."""
    runs, lake = originals(Path(store)), Lake.open(uri, create=True)
    for keys in plan(*map(int, numbers))[int(begin) :]:
        rows = [rows_of(runs, key) for key in keys]
        lake.append({name: pa.concat_tables([run[name] for run in rows]) for name in schemas()})
        print(*keys, flush=True)


def look_after(role, uri):
    lake = Lake.open(uri, create=True)
    while True:
        begin_s = time.monotonic()
        if role == "compact":
            compact(lake, small_bytes=SMALL_BYTES, target_bytes=TARGET_BYTES)
        else:
            vacuum(lake, grace_hours=0)
        time.sleep(PAUSES[role] * (time.monotonic() - begin_s))


class Process:
    """A process that is restarted after each kill."""

    def __init__(self, environ, role, uri, *words):
        self.environ, self.role, self.uri, self.words = environ, role, uri, words
        self.lines = []
        self.start()

    def start(self):
        """Start the process again.

        A writer begins with the last append that it printed, which may exist already.
        """
        words = [self.role, self.uri]
        if self.role == "write":
            store, *numbers = self.words
            words += [store, max(0, len(self.lines) - 1), *numbers]
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.results.lake.writers", *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
            env=self.environ,
        )
        self._reader = threading.Thread(target=self._read, args=(self.child, len(self.lines)))
        self._reader.start()

    def _read(self, child, before):
        """Read whole lines, and ignore a torn one.

        The first line after a restart repeats the last one before it.
        """
        for line in child.stdout:
            if not line.endswith("\n"):
                break
            if before:
                before = 0
                assert line.strip() == self.lines[-1]
            else:
                self.lines.append(line.strip())

    def end(self):
        """Kill the process, read all its output, and return its exit code."""
        self.child.kill()
        self._reader.join()
        self.child.stdout.close()
        return self.child.wait()


def kill_some(writers, upkeep, appends, kills):
    """Kill and restart running processes at seeded moments, until the writers are done.

    Raises `RuntimeError` if a process exits for another reason, or if the writers take too long.
    """
    rng, processes = random.Random(1), [*writers, *upkeep]
    deadline_s = time.monotonic() + DEADLINE_S
    moments = sorted((rng.uniform(0.0, 0.9) for _ in range(kills)), reverse=True)
    while any(process.child.poll() is None for process in writers):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the writers are not done after {DEADLINE_S:.0f} s")
        time.sleep(rng.uniform(0.0, 0.1))
        for process in processes:
            if process.child.poll() not in {None, 0}:
                raise RuntimeError(f"{process.role} ended with {process.child.returncode}")
        if moments and sum(len(each.lines) for each in writers) >= moments[-1] * appends:
            moments.pop()
            victim = rng.choice([each for each in processes if each.child.poll() is None])
            victim.end()
            victim.start()
    assert not moments


# --- checks of the result ------------------------------------------------------------------------


def judge(lake, store, acknowledged):
    """Return the numbers of lost runs by kind of loss, and the leftovers.

    Damaged runs are not read. All other runs are compared with their originals.
    """
    findings = check(lake)
    left = [f"{each.table}: {each.text}" for each in findings if not each.damaged]
    if damage := sum(finding.damaged for finding in findings):
        return Counter(damage=damage), left
    snapshot = lake.snapshot()
    tables = {name: snapshot.dataset(name).to_table() for name in schemas()}
    counts = Counter(tables["runs"]["run"].to_pylist())
    losses = Counter(
        lost=sum(counts[key] == 0 for key in acknowledged),
        doubled=sum(count > 1 for count in counts.values()),
    )
    for key in counts:
        for name, rows in rows_of(store, key).items():
            stored = tables[name].filter(pc.equal(tables[name]["run"], key))
            if stored.select(rows.column_names).to_pylist() != rows.to_pylist():
                losses["other"] += 1
                break
    return +losses, left


def tidy(lake):
    """Compact and vacuum while nothing else writes. This removes all leftovers.

    The first vacuum removes batches of dead writers from the logs, the second their files.
    """
    compact(lake, small_bytes=SMALL_BYTES, target_bytes=TARGET_BYTES)
    for _ in range(2):
        vacuum(lake, grace_hours=0)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(*sys.argv[2:])
    else:
        look_after(*sys.argv[1:])
