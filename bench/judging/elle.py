"""Measures the checks of transactions by Elle's method.

Usage: `python -m bench.judging.elle [--planted ANOMALY] [TRANSACTIONS ...]`.

Histories come from a simulated, strictly serializable store. `PROCESSES` processes execute
transactions of one to four micro-operations on ten keys. Some keys are more popular, and a key is
replaced by a fresh one after `WRITES_MAX` writes. A transaction takes effect at one moment between
its call and its end. Parsing (from Python objects to columns) is timed separately from checking.
Memory is the peak of the process minus its memory before the columns were made.

`--planted` adds one anomaly. `skew` is a write skew of two transactions in the middle of the
history. `stale` is a last transaction that does not see the write of the first one; so all
transactions are in one strongly connected component.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.measure import best_s
from checkers.elle.check import ElleResult, check_columns, request
from checkers.elle.infer.append import infer_append
from checkers.elle.infer.columns import Columns, Transaction, columns_of
from checkers.elle.infer.register import RegisterOptions, infer_register
from harness.soak.result import memory_bytes_max

PROCESSES = 10
LIVE_KEYS = 10
WRITES_MAX = 256
Mop = tuple[str, Any, Any]
KINDS = ("list-append", "rw-register")
LINES_MAX = 12
PLANTED = ("none", "skew", "stale")
GENERATED_ALONE_MAX = 1_000_000
"""The maximum number of transactions that are generated to measure generation alone. The time for
more transactions is extrapolated, since it is linear.
"""
NOISE_SHARE = 0.1
"""If parsing takes less than this share of the generation time, the table says "in the noise"."""


def transactions(count: int, *, lists: bool, seed: int = 1) -> Iterator[Transaction]:
    """Generate a strictly serializable history; transactions are in the order of their effects."""
    rng = random.Random(seed)
    live = list(range(LIVE_KEYS))
    fresh = LIVE_KEYS
    written = dict.fromkeys(live, 0)
    content: dict[int, list[int]] = {key: [] for key in live}
    popularity = [2.0**-rank for rank in range(LIVE_KEYS)]
    free_at = [0] * PROCESSES
    now = 0
    for _ in range(count):
        mops = []
        for _ in range(rng.randint(1, 4)):
            place = rng.choices(range(LIVE_KEYS), popularity)[0]
            key = live[place]
            if rng.random() < 0.5:
                mops.append(("r", key, list(content[key]) if lists else _last(content[key])))
                continue
            if written[key] >= WRITES_MAX:
                del content[key], written[key]
                live[place] = key = fresh
                fresh += 1
                content[key], written[key] = [], 0
            written[key] += 1
            mops.append(("append" if lists else "w", key, written[key]))
            content[key].append(written[key])
        # The process that has waited longest acts now. Its call lies before this moment, and its
        # end after it.
        now += 10
        process = min(range(PROCESSES), key=free_at.__getitem__)
        call = max(free_at[process] + 1, now - rng.randint(1, 10 * PROCESSES // 2))
        end = max(call, now) + rng.randint(1, 10 * PROCESSES // 2)
        free_at[process] = end
        now = max(now, call)
        yield Transaction(mops, call=call, end=end, process=process)


def planted(count: int, anomaly: str, *, lists: bool) -> Iterator[Transaction]:
    """Generate the same history plus an anomaly. Processes of its own execute its transactions."""
    write = "append" if lists else "w"
    nothing: list[int] | None = [] if lists else None
    value: list[int] | int = [1] if lists else 1

    def short(mops: Sequence[Mop], call: int, process: int) -> Transaction:
        return Transaction(mops, call=call, end=call + 2, process=PROCESSES + process)

    if anomaly == "stale":
        yield short([(write, "planted", 1)], -9, 0)
        yield short([("r", "planted", value)], -6, 0)
    latest = 0
    for number, txn in enumerate(transactions(count, lists=lists)):
        yield txn
        latest = max(latest, txn.end or 0)
        if anomaly == "skew" and number == count // 2:
            yield short([("r", "left", nothing), (write, "right", 1)], txn.call, 0)
            yield short([("r", "right", nothing), (write, "left", 1)], txn.call + 1, 1)
            yield short([("r", "left", value), ("r", "right", value)], txn.call + 9, 2)
    if anomaly == "stale":
        yield short([("r", "planted", nothing)], latest + 9, 0)


def _last(values: list[int]) -> int | None:
    return values[-1] if values else None


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _check(columns: Columns, kind: str) -> tuple[ElleResult, float]:
    models = request(("strict-serializable",), (), time_limit_s=600.0)
    began = time.process_time()
    if kind == "list-append":
        result = check_columns(columns, infer_append, models)
    else:
        options = RegisterOptions(linearizable_keys=True)
        result = check_columns(columns, lambda these: infer_register(these, options), models)
    return result, time.process_time() - began


def measure(kind: str, count: int, anomaly: str) -> None:
    """Measure one history and print its row: the best of three runs, or one run if it is large."""
    lists = kind == "list-append"
    before = _resident_bytes()
    alone = min(count, GENERATED_ALONE_MAX)
    making = best_s(lambda: [None for txn in planted(alone, anomaly, lists=lists) if not txn], 1)
    generating = (
        making * count / alone
    )  # Parsing can only be timed together with generation, whose time is subtracted below.
    wall_began = time.monotonic()
    began = time.process_time()
    columns = columns_of(
        planted(count, anomaly, lists=lists), writes_are="append" if lists else "w"
    )
    parsing = time.process_time() - began - generating
    is_noise = parsing < NOISE_SHARE * generating
    gc.collect()
    runs = [_check(columns, kind) for _ in range(3 if count <= 200_000 else 1)]
    wall = time.monotonic() - wall_began
    result, took = min(runs, key=lambda run: run[1])
    per_txn = (memory_bytes_max() - before) / count
    print(
        f"| {kind} | {count:,} | {result.verdict.value} | "
        f"{'in the noise' if is_noise else f'{count / parsing:,.0f}'} | {took:.2f} | "
        f"{count / took:,.0f} | {columns.nbytes / count:,.0f} | {per_txn:,.0f} | {wall:.0f} |",
        flush=True,
    )
    for name, cases in result.anomalies.items():
        print(f"\n{name}, {result.counts[name]} found; the first:")
        print(*(f"    {line}" for line in cases[0].text[:LINES_MAX]), sep="\n", flush=True)
        if len(cases[0].text) > LINES_MAX:
            print(f"    and {len(cases[0].text) - LINES_MAX} lines more", flush=True)


def main() -> None:
    """Print the table. Each row is measured in a new process, because it shows peak memory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("transactions", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--planted", choices=PLANTED, default="none", help="add an anomaly")
    parser.add_argument(
        "--kind", choices=KINDS, action="append", help="check only this kind of history"
    )
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.row:
        measure(asked.kind[0], asked.transactions[0], asked.planted)
        return
    print(f"One process of {os.cpu_count()} cores, CPU seconds, all checks, strict-serializable\n")
    titles = "kind | transactions | verdict | parsing, txn/s | checking, s | checking, txn/s"
    titles += " | columns, B/txn | peak, B/txn | wall, s"
    print(f"| {titles} |\n{'|---' * (titles.count('|') + 1)}|", flush=True)
    for kind in asked.kind or KINDS:
        for count in asked.transactions:
            row = ["--row", "--kind", kind, "--planted", asked.planted, str(count)]
            subprocess.run([sys.executable, "-m", "bench.judging.elle", *row], check=True)


if __name__ == "__main__":
    main()
