"""Random schedules of the Raft core with changes of its membership, at their promises.

    python -m bench.targets.raft_schedules --schedules 10000   counts of all events python -m
    bench.targets.raft_schedules --first 4711 --schedules 1 one schedule again python -m
    bench.targets.raft_schedules --mutants --schedules 2000 how often each broken core is noticed

A schedule (`tests/consensus/member_schedule.py`) is 1,500 random steps, after which the group is
left in peace and must serve again. It is checked against I1 (one leader per term), I2 (logs match,
and all apply the same at an index) and I3 (a new leader has all that was
committed before). A broken promise is printed with its seed and ends the command with 1; with
`--mutants` a core that no schedule notices does. `tests/consensus/test_core_random.py` runs 500 and
every mutant.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from bench.measure import machine
from targets.kudu.consensus.raft_core import RaftCore
from tests.consensus.member_schedule import STEPS, MemberSchedule
from tests.consensus.mutants import MUTANTS

BROKEN_MAX = 20
"""Violations that are printed; more would add nothing."""


def run_schedules(make: type[RaftCore], seeds: range, tally: Counter[str]) -> list[str]:
    """Run the schedules of `seeds` and add what happened to `tally`; returns the violations."""
    broken = []
    for seed in seeds:
        schedule = MemberSchedule(seed, make=make)
        try:
            schedule.run(STEPS)
            schedule.settle()
        except Exception as error:  # noqa: BLE001  a broken core breaks in any way
            broken.append(f"seed {seed}: {type(error).__name__}: {error}")
        tally.update(schedule.totals())
    return broken


def run_mutants(seeds: range) -> int:
    """Say of each broken core which schedule notices it first, and how many do."""
    unnoticed = 0
    for make in MUTANTS:
        begin_s = time.process_time()
        broken = run_schedules(make, seeds, Counter())
        cpu_s = time.process_time() - begin_s
        first = broken[0] if broken else "never noticed"
        print(f"{make.__name__:22} {len(broken):5} of {len(seeds)} {cpu_s:7.1f} s  {first[:90]}")
        unnoticed += not broken
    return unnoticed


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    parser.add_argument("--mutants", action="store_true", help="run broken cores instead")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.schedules)
    print(machine())
    if asked.mutants:
        return min(1, run_mutants(seeds))
    tally: Counter[str] = Counter()
    begin_s = time.process_time()
    broken = run_schedules(RaftCore, seeds, tally)
    cpu_s = time.process_time() - begin_s
    print(f"{'':24} {'in all':>12} {'a schedule':>12} {'a CPU second':>14}")
    for name, count in {"schedules": len(seeds), **tally}.items():
        print(f"{name:24} {count:12,} {count / len(seeds):12.2f} {count / cpu_s:14,.0f}")
    for line in broken[:BROKEN_MAX]:
        print(line)
    print(f"{cpu_s:.1f} CPU s; {len(broken)} schedules broke a promise")
    return min(1, len(broken))


if __name__ == "__main__":
    raise SystemExit(main())
