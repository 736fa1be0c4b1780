"""The marks of tests that start Spark, and the options of its Java."""

import os

import pytest

__all__ = ["spark_test"]

MARKS = (
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    # a session takes twenty seconds of CPU, and the machine has other load
    pytest.mark.timeout(900),
)
QUICK = (
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",  # do not verify Spark's classes
    "-Xmn400m",  # so large that little garbage is collected
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
    "-Dspark.sql.ui.explainMode=simple",
)
"""Settings for tables of a hundred rows: expressions are interpreted, not compiled, and plans have
short descriptions, which are never read.
"""
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(QUICK))


def spark_test(test):
    """Mark a test that needs Spark, which starts once per process and is slow."""
    for mark in MARKS:
        test = mark(test)
    return test
