"""The suite that every environment must pass, on containers."""

import secrets

import msgspec
import pytest

from harness.cluster import Capability
from harness.environments.docker import DockerEnvironment
from tests.conformance.env_suite import CHECKS, check_clocks, suite_plan

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_suite(environment, check, tmp_path):
    if check is check_clocks:
        assert Capability.CLOCK_SKEW not in DockerEnvironment.capabilities
        pytest.skip("containers share the machine's clock, and the environment says so")
    plan = msgspec.structs.replace(
        suite_plan(folder=tmp_path), run_id=f"suite-{secrets.token_hex(4)}"
    )
    environment.execute(plan, check)
