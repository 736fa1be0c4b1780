"""The suite that every environment must pass, on processes."""

from __future__ import annotations

import pytest

from harness.cluster import Capability
from harness.environments.process import ProcessEnvironment
from tests.conformance.env_suite import CHECKS, check_clocks, suite_plan

pytestmark = pytest.mark.process


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_suite(check, tmp_path):
    if check is check_clocks:
        assert Capability.CLOCK_SKEW not in ProcessEnvironment.capabilities
        pytest.skip("processes share the machine's clock, and the environment says so")
    ProcessEnvironment().execute(suite_plan(folder=tmp_path), check)
