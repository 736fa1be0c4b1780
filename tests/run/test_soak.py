"""Workers come and go, disks fill up: every seed has its result, and no verdict is lost."""

import asyncio
import itertools
import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from harness.case import Case
from harness.errors import EXIT_CRASH, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from harness.soak import CRASH, SeedJob, SeedResult, exit_code_of, run_seed, soak

BUG = Case(
    seed=4,
    nemeses=("partition-leader",),
    bugs=("NO-LEASE",),
    interval_s=5.0,
    duration_s=3.0,
    time_limit_s=15.0,
)


def result(verdict):
    return SeedResult(seed=1, verdict=verdict, reason="")


def toys(*seeds, time_limit_s=1.0):
    base = Case(seed=0, target="toy-register", workload="register", time_limit_s=time_limit_s)
    return iter([msgspec.structs.replace(base, seed=seed) for seed in seeds])


def children():
    """The processes that this one started and that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return sorted(found)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([], EXIT_UNKNOWN),
        (["valid"], EXIT_VALID),
        (["valid", "unknown"], EXIT_UNKNOWN),
        (["unknown", CRASH], EXIT_CRASH),
        ([CRASH, "invalid", "valid"], EXIT_INVALID),
    ],
)
def test_the_worst_seed_decides(verdicts, code):
    for order in itertools.permutations(verdicts):
        assert exit_code_of(result(verdict) for verdict in order) == code


def test_a_store_that_takes_nothing_does_not_change_a_verdict(tmp_path):
    (tmp_path / "file").write_text("no folder")
    kept = run_seed(SeedJob(BUG, str(tmp_path / "store"), "soak"))
    lost = run_seed(SeedJob(BUG, str(tmp_path / "file"), "soak"))
    assert (kept.verdict, lost.verdict) == ("invalid", "invalid")
    assert kept.digest == lost.digest
    assert Path(kept.run, "history.parquet").exists()
    assert lost.run is None
    assert "not kept" in lost.reason


def test_a_killed_worker_costs_its_seed_and_no_other():
    before = children()  # other tests of this process may have left some, such as a server

    def kill_at_first(found):
        if found.seed == 1:
            (worker,) = [child for child in children() if child not in before]
            os.kill(worker, signal.SIGKILL)
        return True

    async def main():
        return await soak(toys(1, 2, 3), jobs=1, store=None, name="s", on_result=kill_at_first)

    results = asyncio.run(main())
    assert [found.seed for found in results] == [1, 2, 3]
    assert sorted(found.verdict for found in results) == [CRASH, "valid", "valid"]
    (crashed,) = [found for found in results if found.verdict == CRASH]
    assert "-9" in crashed.reason or "broke" in crashed.reason


def test_a_cancelled_soak_leaves_no_worker():
    before = children()

    async def main():
        cases = toys(*range(100), time_limit_s=1e6)
        task = asyncio.create_task(
            soak(cases, jobs=2, store=None, name="s", on_result=lambda _: True)
        )
        async with asyncio.timeout(20.0):
            while len(children()) < len(before) + 2:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)
        begin_s = time.monotonic()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return time.monotonic() - begin_s

    # A busy worker is killed; only an idle one is given time to end by itself.
    assert asyncio.run(main()) < 4.0
    assert [child for child in children() if child not in before] == []


def test_enough_is_enough():
    async def main():
        return await soak(
            toys(*range(50)), jobs=1, store=None, name="s", on_result=lambda found: found.seed < 2
        )

    assert [found.seed for found in asyncio.run(main())] == [0, 1, 2]
