"""A soak that is killed any number of times gives the same results as an undisturbed one."""

import contextlib
import os
import random
import signal
import time

import pytest

from harness.errors import EXIT_INTERRUPTED, EXIT_INVALID
from tests.soak.commands import (
    LEASELESS,
    alive,
    contents,
    journaled,
    kill,
    results,
    soak,
    start,
    workers_of,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process]

SEEDS = 8
KUDU = (*LEASELESS, "--seeds", f"1..{SEEDS}", "--jobs", "2", "--label", "v1")
ENDLESS = (
    *("--seeds", "1..1000000", "--jobs", "2", "--target", "toy-register"),
    *("--workload", "register", "--nemesis", "none", "--time-limit", "1"),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    store = tmp_path_factory.mktemp("whole")
    code, found, _ = soak(store, *KUDU)
    assert code == EXIT_INVALID
    assert found["seeds"] == SEEDS
    assert 0 < found["verdicts"]["invalid"] < SEEDS
    return contents(store), found


def kill_three_times(store):
    """Kill a soak three times; return whether all kills came before the soak was (nearly) done."""
    rng = random.Random(1)
    kills = 0
    while kills < 3 and journaled(store) < SEEDS - 2:
        process = start(store, *KUDU)
        enough = journaled(store) + rng.randrange(2)
        wait_until(
            lambda process=process, enough=enough: (
                process.poll() is not None
                or (journaled(store) >= enough and workers_of(process.pid))
            )
        )
        # at a random point of a seed: its start, its run, its folder
        time.sleep(rng.uniform(0.0, 0.2))
        workers = workers_of(process.pid)
        if rng.random() < 0.4 and workers:
            with contextlib.suppress(ProcessLookupError):  # the soak had finished
                os.kill(rng.choice(workers), signal.SIGKILL)
            time.sleep(rng.uniform(0.0, 0.2))
        if process.poll() is None:
            workers = workers_of(process.pid)
            kill(process)
            kills += 1
            wait_until(lambda workers=workers: not any(map(alive, workers)))
        else:
            process.communicate()
    return kills == 3


def test_killed_again_and_again_it_comes_to_the_same(tmp_path, whole):
    expected, uninterrupted = whole
    # If this process is paused, the soak may finish first; then try another one.
    stores = (tmp_path / str(number) for number in range(5))
    tmp_path = next((store for store in stores if kill_three_times(store)), None)
    assert tmp_path is not None
    before = journaled(tmp_path)
    code, found, said = soak(tmp_path, *KUDU)
    assert code == EXIT_INVALID
    assert found["done_before"] == before > 0, said
    assert results(found) == results(uninterrupted)
    for name in ("verdicts", "ops", "leader_changes", "simulated_s", "seeds", "exit_code"):
        assert found[name] == pytest.approx(uninterrupted[name])
    assert contents(tmp_path) == expected
    assert list((tmp_path / "n").glob(".*.part")) == []


@pytest.mark.parametrize(
    ("number", "send"),
    [
        (signal.SIGINT, os.kill),
        (signal.SIGINT, os.killpg),  # like a terminal's Ctrl-C
        (signal.SIGTERM, os.kill),
    ],
)
def test_an_interrupt_stops_it_at_once_and_leaves_no_process(tmp_path, number, send):
    process = start(tmp_path, *ENDLESS)
    wait_until(lambda: journaled(tmp_path) >= 2)
    workers = workers_of(process.pid)
    send(process.pid, number)
    out, err = process.communicate(timeout=240)  # the remaining seeds would take a day
    assert process.returncode == EXIT_INTERRUPTED, err.decode()
    assert b"interrupted" in out
    assert b"Traceback" not in err
    assert workers
    assert not any(map(alive, workers))
    done = journaled(tmp_path)
    assert f"{done} of 1000000 seeds".encode() in out
    _, found, _ = soak(
        tmp_path, *ENDLESS, "--jobs", "1", "--stop-after", "1", "--seeds", f"1..{done}"
    )
    # with two workers, the finished seeds need not be the first ones
    assert found["done_before"] >= done - 2


def test_workers_die_with_their_driver_in_the_middle_of_a_seed(tmp_path):
    process = start(tmp_path, *ENDLESS, "--time-limit", "1e6")
    wait_until(lambda: len(workers_of(process.pid)) == 2)
    workers = workers_of(process.pid)
    time.sleep(1.0)  # time for the seed to start; it then runs forever
    kill(process)
    wait_until(lambda: not any(map(alive, workers)))
