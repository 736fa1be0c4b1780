"""A checker that kills its worker, shared by all tests with workers."""

import os

import pytest

from tests.support.distributions import installed

PLUGIN = '''
"""Checkers that harm their process, as `crash` of another package would."""
import os, time
from checkers.conduct.crash import CrashChecker

class Deadly(CrashChecker):
    name = "deadly"

    def check(self, history, case, *, time_limit_s):
        from harness.ops import CheckResult, Verdict
        if case.seed == 666 and not os.environ.get("DEADLY_CURED"):
            os._exit(3)
        if case.seed == 667:
            list(range(10**9))
        return CheckResult("deadly", Verdict.VALID, "alive")
'''


@pytest.fixture
def deadly(tmp_path, monkeypatch):
    """Install a package whose checker `deadly` kills its worker for the seed 666."""
    folder = tmp_path / "site"
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{before}")
    points = "[harness.checkers]\ndeadly = deadly_plugins:Deadly\n"
    with installed(folder, monkeypatch, "deadly", PLUGIN, points):
        yield folder
