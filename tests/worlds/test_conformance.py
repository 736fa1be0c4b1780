"""The conformance suite of environments, in processes and in containers."""

import pytest

from tests.conformance.env_suite import CALM, RESTARTING, in_turn, suite_plan
from tests.worlds.conftest import WORLDS

pytestmark = pytest.mark.parametrize("environment", WORLDS[1:], indirect=True)


@pytest.mark.parametrize("checks", [CALM, RESTARTING], ids=["calm", "restarting"])
def test_suite(environment, checks, tmp_path):
    environment.execute(suite_plan(folder=tmp_path), in_turn(checks))
