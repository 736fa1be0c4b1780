"""The marks of a test that starts Spark, and how its Java runs here."""

import os

import pytest

__all__ = ["spark_test"]

MARKS = (
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),  # twenty seconds of CPU, on whatever else the machine does
)
QUICK = (
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",  # Spark's own classes
    "-Xmn400m",  # little is ever collected
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
    "-Dspark.sql.ui.explainMode=simple",
)
"""For tables of a hundred rows: expressions are evaluated rather than compiled first, and plans, of
which nobody reads the description, are described shortly."""
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(QUICK))


def spark_test(test):
    """Spark is needed (`tests/requirements.py`), takes its time, and runs once a process."""
    for mark in MARKS:
        test = mark(test)
    return test
