"""Local processes pass the suite that every environment passes."""

from __future__ import annotations

import pytest

from harness.environments.process import ProcessEnvironment
from tests.conformance.env_suite import CHECKS, suite_plan


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_env_and_cluster(check, tmp_path):
    ProcessEnvironment().execute(suite_plan(folder=tmp_path), check)
