"""The suite that every environment must pass, on processes."""

from __future__ import annotations

import pytest

from harness.environments.process import ProcessEnvironment
from tests.conformance.env_suite import CHECKS, suite_plan

pytestmark = pytest.mark.process


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_suite(check, tmp_path):
    ProcessEnvironment().execute(suite_plan(folder=tmp_path), check)
