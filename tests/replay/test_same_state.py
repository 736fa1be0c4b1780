"""A hundred replays in fresh interpreters with different hash seeds stop in the same state.

`python -m tests.replay.test_same_state RUN MOMENT [COUNT]` does this for any run.
"""

import collections
import concurrent.futures
import json
import os
import subprocess
import sys

import pytest

from tests.replay.conftest import TAKEN_OVER

COUNT = 100


def state_under(hash_seed, run, moment):
    """Return the digests of the state and of the trace, and the first op that differs."""
    words = ["replay", str(run), "--until", moment, "--json", "--quiet"]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PADDING": "x" * hash_seed * 61}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", *words],
        env=environment,
        capture_output=True,
        check=True,
    )
    state = json.loads(done.stdout)
    return state["state_sha256"], state["trace_digest"], state["differs_at"]


def states_of(run, moment, count):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return collections.Counter(
            pool.map(lambda seed: state_under(seed, run, moment), range(count))
        )


@pytest.mark.slow
def test_three_hash_seeds(run_folder):
    assert len(states_of(run_folder, TAKEN_OVER, 3)) == 1


@pytest.mark.nightly
def test_a_hundred_hash_seeds(run_folder):
    assert len(states_of(run_folder, TAKEN_OVER, COUNT)) == 1


if __name__ == "__main__":
    count = int(sys.argv[3]) if len(sys.argv) > 3 else COUNT
    for (digest, trace, differs_at), times in states_of(*sys.argv[1:3], count).items():
        print(f"{times} of {count}: state {digest}, trace {trace}, differs at {differs_at}")
