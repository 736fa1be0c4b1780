"""The suite that every environment must pass, on containers."""

import pytest

from tests.conformance.env_suite import CHECKS, suite_plan

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_suite(environment, check, tmp_path):
    environment.execute(suite_plan(folder=tmp_path), check)
