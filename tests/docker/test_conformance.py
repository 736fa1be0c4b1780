"""The suite that every environment must pass, on containers."""

import pytest

from tests.conformance.env_suite import CALM, RESTARTING, in_turn, suite_plan

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize("checks", [CALM, RESTARTING], ids=["calm", "restarting"])
def test_suite(environment, checks, tmp_path):
    environment.execute(suite_plan(folder=tmp_path), in_turn(checks))
