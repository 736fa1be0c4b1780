"""The suite that every environment must pass, on processes."""

import pytest

from harness.environments.process import ProcessEnvironment
from tests.conformance.env_suite import CALM, RESTARTING, in_turn, suite_plan

pytestmark = pytest.mark.process


@pytest.mark.parametrize("checks", [CALM, RESTARTING], ids=["calm", "restarting"])
def test_suite(checks, tmp_path):
    ProcessEnvironment().execute(suite_plan(folder=tmp_path), in_turn(checks))
