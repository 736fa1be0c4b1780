"""A hundred replays, each in a fresh interpreter with a hash seed of its own, stop in one state.

`python -m tests.replay.test_same_state RUN MOMENT [COUNT]` does so for any run.
"""

import collections
import json
import os
import subprocess
import sys

import pytest

from tests.replay.conftest import TAKEN_OVER

COUNT = 100


def states_of(run, moment, count):
    """How often each state came, by its digest and the trace's."""
    states = collections.Counter()
    for number in range(count):
        words = ["replay", str(run), "--until", moment, "--json", "--quiet"]
        environment = {**os.environ, "PYTHONHASHSEED": str(number), "PADDING": "x" * number * 61}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "harness", *words],
            env=environment,
            capture_output=True,
            check=True,
        )
        state = json.loads(done.stdout)
        states[state["state_sha256"], state["trace_digest"], state["differs_at"]] += 1
    return states


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
