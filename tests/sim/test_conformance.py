"""The simulation passes the conformance suite of environments, with any seed and knobs."""

import pytest

from harness.environments.sim import SimEnvironment
from tests.conformance.env_suite import CHECKS, suite_plan

KNOBS = [{}, {"latency": "tail", "disk_ms_max": 50.0}, {"cpu_us": 0.0, "retransmit": 0.0}]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_env_and_cluster(check):
    for seed, knobs in enumerate(KNOBS):
        SimEnvironment().execute(suite_plan(seed=seed, knobs=knobs), check)
