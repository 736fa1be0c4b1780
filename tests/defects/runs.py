"""Runs of tests with a planted defect, each in a separate pytest process."""

import re
import sys
from pathlib import Path

from tests.defects.defects import Defect
from tests.support.programs import run_program

ROOT = Path(__file__).parents[2]
OPTIONS = ("-q", "-x", "-n0", "--order-seed=0", "-p", "no:cacheprovider")
ALL_PASSED, SOME_FAILED = 0, 1


def noticed_by(defect: Defect, *tests: str) -> str | None:
    tier = "not nightly" if defect.heavy else "quick"
    done = run_program(
        sys.executable, "-m", "pytest", *OPTIONS, f"--timeout={defect.limit_s}", "-m", tier,
        "-p", "tests.defects.plugin", *(tests or defect.tests),
        cwd=ROOT, HARNESS_DEFECT=defect.name,
    )  # fmt: skip
    if done.returncode == ALL_PASSED:
        return None
    assert done.returncode == SOME_FAILED, done.stdout[-2000:] + done.stderr[-2000:]
    first = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    assert first is not None, done.stdout[-2000:]
    return first[1]
