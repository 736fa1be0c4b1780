"""Compares our linearizability checker with Porcupine v1.3.1: `python -m bench.judging.checkers`.

Each row of the table has a case, its number of operations, our times (in pure Python and on the
native core), Porcupine's time, and the ratios of our times to it. Everything is single-threaded
(Porcupine with GOMAXPROCS=1). Histories are in memory before the clock starts, and the best of five
runs counts. The time of a case is the sum of the best times of its histories. Every verdict is
compared with the expected one.

The driver in `bench/porcupine` runs Porcupine on the same machine. Without a Go toolchain, the
table has Porcupine's times from `porcupine/recorded.csv`, marked "recorded"; they come from Go
1.26.8 on two shared cores of an AMD EPYC. `--record` writes this file.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.judging.histories import Case, History, go_lines, own_cases, supplied_cases
from bench.measure import ROOT, best_s, machine, peaks_mb
from checkers.linearizability import check_operations
from checkers.linearizability.native import SWITCH, is_native, native_status

DRIVER = ROOT / "bench" / "porcupine"
RECORDED = DRIVER / "recorded.csv"
RUNS = 5
ENOUGH_S = 4.0  # once the runs of one history have taken this long in total, start no more
GO_LIMIT_S = 60
GO_MEMORY_GB = 6


@dataclass(frozen=True)
class Time:
    """A time in ms, or why it is missing. `recorded` times were measured on another occasion."""

    ms: float | None
    why: str = ""
    recorded: bool = False

    def __str__(self) -> str:
        if self.ms is None:
            return self.why
        digits = 2 if self.ms < 10 else 1 if self.ms < 1000 else 0
        return f"{self.ms:,.{digits}f}{' (recorded)' if self.recorded else ''}"


def ours(history: History) -> float:
    """Return the best time, in ms, in which our checker judges a history."""

    def check() -> None:
        outcome = check_operations(history.model, history.operations, explained=False)
        assert outcome.result.value == history.expected, f"{history.name}: {outcome.result}"

    return best_s(check, RUNS, clock=time.perf_counter, enough_s=ENOUGH_S) * 1000


def ours_in(case: Case, *, native: bool) -> Time:
    """Return the sum of our times for a case's histories, in pure Python or on the native core."""
    os.environ[SWITCH] = "1" if native else "0"
    if native and not is_native():
        return Time(None, "absent")
    return Time(sum(ours(history) for history in case.histories))


def build_driver(folder: Path) -> Path | str:
    """Build the Go driver; return the program's path, or the reason why it cannot be built."""
    go = shutil.which("go")
    if go is None:
        return "no Go toolchain"
    program = folder / "driver"
    built = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=DRIVER,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        return f"the Go driver could not be built: {built.stderr.strip().splitlines()[-1]}"
    return program


def _limit_memory() -> None:
    most = GO_MEMORY_GB << 30
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def porcupine(program: Path, case: Case, folder: Path) -> Time:
    """Return the sum of Porcupine's times for the histories of a case, judged by one process."""
    paths = []
    for number, history in enumerate(case.histories):
        path = folder / f"{number}.tsv"
        path.write_text("\n".join(go_lines(history)) + "\n")
        paths.append(str(path))
    ended = subprocess.run(
        [str(program), f"-runs={RUNS}", f"-enough={ENOUGH_S}s", f"-limit={GO_LIMIT_S}s", *paths],
        env={**os.environ, "GOMAXPROCS": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_limit_memory,
    )
    if ended.returncode:
        if "out of memory" in ended.stderr or "cannot allocate" in ended.stderr:
            return Time(None, f"out of memory (> {GO_MEMORY_GB} GB)")
        raise RuntimeError(f"the Go driver failed on {case.name}: {ended.stderr[-500:]}")
    total = 0.0
    for line, history in zip(ended.stdout.splitlines(), case.histories, strict=True):
        report = json.loads(line)
        if report["result"] == "Unknown":
            return Time(None, f"> {GO_LIMIT_S * 1000:,} (undecided)")
        assert report["result"] == history.expected, f"{history.name}: {report}"
        total += report["best_ms"]
    return Time(total)


def recorded() -> dict[str, Time]:
    """Read Porcupine's times from `recorded.csv`, by case."""
    with RECORDED.open(newline="") as lines:
        return {
            row["case"]: Time(float(row["ms"]), recorded=True)
            if row["ms"]
            else Time(None, f"{row['why']} (recorded)", recorded=True)
            for row in csv.DictReader(lines)
        }


def ratio(mine: Time, theirs: Time) -> str:
    """Format our time divided by Porcupine's; if our time is shorter, as `1/n`."""
    if mine.ms is None or theirs.ms is None:
        return "decided" if mine.ms is not None else "-"
    times = theirs.ms / mine.ms
    return f"1/{times:,.1f}" if times >= 1 else f"{1 / times:.1f}x"


def added(times: Iterable[Time]) -> Time:
    """Add several times. The sum is missing if any of them is missing."""
    times = list(times)
    if any(each.ms is None for each in times):
        return Time(None, "incomplete")
    total = sum(each.ms for each in times if each.ms is not None)
    return Time(total, recorded=any(each.recorded for each in times))


def table(rows: list[tuple[str, ...]]) -> str:
    """Format rows in columns: the first aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


CHECK_ONE = """
from tests.checkers.conformance.formats import load, rows
from checkers.linearizability import check_operations
[row] = [row for row in rows() if row.file == sys.argv[1]]
model, operations = load(row)
note_peak()
check_operations(model, operations)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="only cases with this text in their name")
    parser.add_argument(
        "--record", action="store_true", help="write Porcupine's best times to recorded.csv"
    )
    options = parser.parse_args()
    cases = [c for c in (*supplied_cases(), *own_cases()) if options.only in c.name]
    print(f"{machine()}, one core used (column cores); {native_status()}")
    head = ("case", "ops", "pure ms", "native ms", "Porcupine ms", "pure", "native", "cores")
    rows: list[tuple[str, ...]] = [head]
    times: dict[str, tuple[Time, Time, Time]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        driver = build_driver(folder)
        if isinstance(driver, str):
            print(f"{driver}: Porcupine's times are recorded ones")
        old = recorded() if RECORDED.exists() else {}
        for case in cases:
            if isinstance(driver, Path):
                theirs = porcupine(driver, case, folder)
            else:
                theirs = old.get(case.name, Time(None, "not recorded"))
            mine = (ours_in(case, native=False), ours_in(case, native=True))
            times[case.name] = (*mine, theirs)
            rows.append(_row(case.name, case.operations, times[case.name]))
    supplied = [case for case in cases if case.supplied]
    if len(supplied) > 1:
        name = "the supplied set as a whole"
        columns = zip(*(times[case.name] for case in supplied), strict=True)
        pure, native, theirs = (added(column) for column in columns)
        rows.append(_row(name, sum(c.operations for c in supplied), (pure, native, theirs)))
    print(table(rows))
    biggest = "catalog/n10000_c16_k20_x0_b0"
    if biggest in times:
        os.environ[SWITCH] = "1"
        before, peak = peaks_mb(CHECK_ONE, f"generated/{biggest}.tsv")
        print(f"{biggest}: the process had {before:.0f} MB with the history, {peak:.0f} MB at peak")
    if options.record:
        _record(times)


def _row(name: str, operations: int, times: tuple[Time, Time, Time]) -> tuple[str, ...]:
    pure, native, theirs = times
    cells = (str(pure), str(native), str(theirs), ratio(pure, theirs), ratio(native, theirs))
    return (name, f"{operations:,}", *cells, "1")


def _record(times: dict[str, tuple[Time, Time, Time]]) -> None:
    """Record new times if they are better: other load on a machine can only make times longer."""
    kept = recorded() if RECORDED.exists() else {}
    for name, (_, _, theirs) in times.items():
        old = kept.get(name)
        if old is None or old.ms is None or (theirs.ms is not None and theirs.ms < old.ms):
            kept[name] = theirs
    with RECORDED.open("w", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(("case", "ms", "why"))
        for name, row in kept.items():
            why = row.why.removesuffix(" (recorded)")
            writer.writerow((name, "" if row.ms is None else f"{row.ms:.3f}", why))


if __name__ == "__main__":
    main()
