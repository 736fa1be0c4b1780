"""Shrinks the failure of every bug switch: `python -m bench.targets.shrinking OUT [BUG ...]`.

Each line has the faults, operations, CPU seconds and trials of one switch; then come the medians
and the five worst switches. The folder `OUT` keeps the shrunk cases, their sizes and all trials. So
after an interrupt, the same command continues; with a higher `--cpu`, it also continues switches
that reached the limit. With `--hash-seeds N`, every shrunk case finally runs under N other values
of `PYTHONHASHSEED`, and must fail each time in the same way and with the same history.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.targets.switches import found_switches
from harness.case import Case, load_case
from harness.errors import UsageError
from harness.soak.result import SeedJob
from harness.soak.seed import run_seed
from harness.trials.shrink import shrink
from harness.trials.trials import Kind, Trials, kinds_of
from results.exam.rows import Row

CPU_S: Final = 60.0
WORST: Final = 5
CASE: Final = ".case.json"


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a shrunk case. `operations` is `None` if it still needs a generator."""

    bug: str
    kind: str
    faults_before: int
    faults: int
    operations: int | None
    history: int
    cpu_s: float
    trials: int
    exhausted: bool

    def line(self) -> str:
        """The size as one line of a table."""
        ops = f"({self.history})" if self.operations is None else str(self.operations)
        limit = "  limit" if self.exhausted else ""
        return (
            f"{self.bug:24} {self.kind:44} {self.faults_before:3} -> {self.faults:2} faults "
            f"{ops:>6} ops {self.cpu_s:6.1f} CPU s {self.trials:4} trials{limit}"
        )


def main() -> int:
    """Shrink, print the table, and replay; return 1 if a switch or a replay does not fail."""
    parser = argparse.ArgumentParser(prog="bench.targets.shrinking", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("bugs", nargs="*", metavar="BUG", help="switches (default: all)")
    parser.add_argument("--cpu", type=float, default=CPU_S)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--hash-seeds", type=int, default=0, metavar="N")
    parser.add_argument("--replay", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    parsed.out.mkdir(parents=True, exist_ok=True)
    if parsed.replay:
        sys.stdout.write(json.dumps(_replayed(parsed.out)))
        return 0
    sizes, missing = [], []
    for row, case in found_switches(parsed.bugs or None):
        size = _size_of(row, case, parsed)
        sizes += [] if size is None else [size]
        missing += [row.name] if size is None else []
        _say(size.line() if size is not None else f"{row.name:24} did not fail")
    if sizes:
        _summarize(sizes)
    same = _same_under_hash_seeds(parsed.out, parsed.hash_seeds)
    return 0 if same and not missing else 1


def _size_of(row: Row, case: Case, parsed: argparse.Namespace) -> Size | None:
    """Shrink the failure of one switch, or read the size that an earlier call stored."""
    file = parsed.out / f"{row.name}.json"
    if file.is_file():
        stored = msgspec.json.decode(file.read_bytes(), type=Size)
        if not stored.exhausted or stored.cpu_s >= parsed.cpu:
            return stored
    memory = parsed.out / f"{row.name}.jsonl"
    with Trials(jobs=parsed.jobs, cpu_s_max=parsed.cpu, memory=memory) as trials:
        try:
            shrunk = shrink(trials, case, Kind(row.expected, ""))
        except UsageError as error:
            _say(f"{row.name}: {error}")
            return None
    size = Size(
        bug=row.name,
        kind=str(shrunk.kind),
        faults_before=len(shrunk.start.faults or ()),
        faults=shrunk.faults,
        operations=shrunk.operations,
        history=shrunk.result.ops,
        cpu_s=shrunk.cpu_s,
        trials=shrunk.runs,
        exhausted=shrunk.exhausted,
    )
    (parsed.out / f"{row.name}{CASE}").write_bytes(shrunk.case.encode())
    file.write_bytes(msgspec.json.encode(size))
    return size


def _summarize(sizes: Sequence[Size]) -> None:
    counted = [s.history if s.operations is None else s.operations for s in sizes]
    faults = statistics.median(size.faults for size in sizes)
    _say(
        f"\n{len(sizes)} switches, median: {faults:g} faults, {statistics.median(counted):g} "
        f"operations, {statistics.median(size.cpu_s for size in sizes):.1f} CPU s; "
        f"{sum(size.operations is None for size in sizes)} keep their generator, "
        f"{sum(size.exhausted for size in sizes)} reached the limit of CPU time"
    )
    _say("the five worst:")
    worst = sorted(zip(counted, sizes, strict=True), key=lambda each: (-each[0], each[1].bug))
    for _, size in worst[:WORST]:
        _say(f"  {size.line()}")


def _same_under_hash_seeds(out: Path, count: int) -> bool:
    """Replay all shrunk cases in an interpreter per hash seed; print the cases that differ."""
    wanted = {
        file.name.removesuffix(".json"): msgspec.json.decode(file.read_bytes(), type=Size).kind
        for file in sorted(out.glob("*.json"))
        if not file.name.endswith(CASE)
    }
    digests: dict[str, set[str]] = {bug: set() for bug in wanted}
    same = True
    for number in range(1, count + 1):
        done = subprocess.run(
            [sys.executable, "-m", "bench.targets.shrinking", str(out), "--replay"],
            env={**os.environ, "PYTHONHASHSEED": str(number)},
            stdout=subprocess.PIPE,
            check=True,
        )
        for bug, (kinds, digest) in json.loads(done.stdout).items():
            digests[bug].add(digest)
            if wanted[bug] not in kinds:
                same = False
                _say(f"{bug}: under hash seed {number} it fails with {kinds}")
    differing = [bug for bug, found in digests.items() if len(found) > 1]
    if count:
        _say(
            f"{len(wanted)} shrunk cases under {count} hash seeds: "
            f"{'all fail alike' if same else 'NOT all fail alike'}, "
            f"histories differ: {', '.join(differing) or 'none'}"
        )
    return same and not differing


def _replayed(out: Path) -> dict[str, tuple[list[str], str | None]]:
    """Run all shrunk cases in this process; return the kinds of failures and the digest of each."""
    found = {}
    for file in sorted(out.glob(f"*{CASE}")):
        job = SeedJob(case=load_case(file), store=None, name="shrinking", run_prefix="")
        result = run_seed(job)
        found[file.name.removesuffix(CASE)] = ([str(k) for k in kinds_of(result)], result.digest)
    return found


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
