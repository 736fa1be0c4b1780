"""The suite that every environment must pass, on containers."""

import secrets

import msgspec
import pytest

from tests.conformance.env_suite import CHECKS, suite_plan

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_suite(environment, check, tmp_path):
    plan = msgspec.structs.replace(
        suite_plan(folder=tmp_path), run_id=f"suite-{secrets.token_hex(4)}"
    )
    environment.execute(plan, check)
