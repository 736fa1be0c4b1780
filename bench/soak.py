"""A soak that is killed again and again against one that is not: the same, seed by seed?

    python bench/soak.py                                # 40 seeds, killed 3 times
    python bench/soak.py --seeds 1..2000 --kills 5      # what the project claims

Both soaks run all nemeses for 30 simulated seconds a seed. The driver of the second is killed with
SIGKILL at seeded moments, a worker now and then as well, and the same command goes on. Printed are
wall and CPU time, memory at most by quarters of the soak (it must be flat), bytes a run.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import msgspec

from harness.environments import procfs

NEMESES = "partition-leader,partition-halves,partition-random-node,kill-leader,pause-leader"
MEASURES = {"wall_s", "cpu_s", "memory_bytes", "kept_bytes", "run", "replay"}
MIB = 1024 * 1024


def command(store: Path, options: argparse.Namespace) -> list[str]:
    return [
        sys.executable,
        *("-P", "-m", "harness"),
        *("soak", "--env", "sim", "--seeds", options.seeds, "--nemesis", options.nemesis),
        *("--time-limit", "30", "--jobs", str(options.jobs), "--store", str(store)),
        *("--name", "n", "--reporters", "none", "--json"),
    ]


def lines_of(store: Path) -> int:
    """The number of journaled results."""
    return sum(path.read_bytes().count(b"\n") - 1 for path in store.glob("n/.soak/*.log"))


def finish(store: Path, options: argparse.Namespace) -> dict[str, object]:
    done = subprocess.run(command(store, options), stdout=subprocess.PIPE, check=False)
    report: dict[str, object] = msgspec.json.decode(done.stdout)
    return report


def kill_on_the_way(store: Path, options: argparse.Namespace) -> list[int]:
    """Start it and kill it, at seeded numbers of journaled seeds; these numbers."""
    rng = random.Random(options.kills)
    first, last = map(int, options.seeds.split(".."))
    at = sorted(rng.sample(range(1, last - first + 1), options.kills))
    seen = []
    for count in at:
        process = subprocess.Popen(command(store, options), stdout=subprocess.DEVNULL)
        while lines_of(store) < count and process.poll() is None:
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.5))
        if rng.random() < 0.5:
            for worker in procfs.family(process.pid)[1:2]:
                os.kill(worker, signal.SIGKILL)
            time.sleep(rng.uniform(0.0, 0.5))
        process.kill()
        process.wait()
        seen.append(lines_of(store))
    return seen


def digest_of(store: Path) -> dict[str, int]:
    """Checksums of all histories of a store."""
    return {
        path.parent.name: zlib.crc32(path.read_bytes())
        for path in sorted(store.glob("n/*/history.parquet"))
        if not path.parent.is_symlink()
    }


def memory_by_quarters(store: Path) -> str:
    """The most a worker held, by quarters of the journal."""
    (path,) = store.glob("n/.soak/*.log")
    held = [
        msgspec.json.decode(line[9:])["memory_bytes"] for line in path.open("rb").readlines()[1:]
    ]
    quarter = max(1, len(held) // 4)
    parts = [max(held[at : at + quarter]) / MIB for at in range(0, quarter * 4, quarter)]
    return ", ".join(f"{part:.0f}" for part in parts)


def comparable(report: dict[str, object]) -> list[dict[str, object]]:
    results: list[dict[str, object]] = report["results"]  # type: ignore[assignment]
    return [{k: v for k, v in result.items() if k not in MEASURES} for result in results]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1..40")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--nemesis", default=NEMESES)
    parser.add_argument("--store", type=Path, help="keep the two stores here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.store or Path(scratch)
        begin_s = time.monotonic()
        killed_at = kill_on_the_way(root / "killed", options)
        killed = finish(root / "killed", options)
        killed_s = time.monotonic() - begin_s
        whole = finish(root / "whole", options)
        same = comparable(killed) == comparable(whole)
        same_store = digest_of(root / "killed") == digest_of(root / "whole")
        print(
            f"killed after journaled seeds {killed_at}; then done before: {killed['done_before']}"
        )
        print(f"results equal seed by seed: {same}; stores equal: {same_store}")
        for name, report, wall_s in (
            ("whole", whole, found_wall(whole)),
            ("killed", killed, killed_s),
        ):
            print(
                f"{name:7} {report['seeds']} seeds {report['verdicts']}: {wall_s:.0f} s wall, "
                f"{report['cpu_s']:.0f} CPU s, {report['simulated_s']:.0f} simulated s; "
                f"{report['passing_run_bytes']:.0f} bytes a passing run, "
                f"{report['store_bytes'] / MIB:.1f} MiB in all"  # type: ignore[operator]
            )
            print(
                f"        memory: driver {report['driver_memory_bytes_max'] / MIB:.0f} MiB, "  # type: ignore[operator]
                f"workers by quarters {memory_by_quarters(root / name)} MiB"
            )
    return 0 if same and same_store else 1


def found_wall(report: dict[str, object]) -> float:
    return float(report["wall_s"])  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
