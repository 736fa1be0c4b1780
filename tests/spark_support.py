"""The marks of a test that starts Spark."""

import pytest

__all__ = ["spark_test"]

MARKS = (
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),  # twenty seconds of CPU, on whatever else the machine does
)


def spark_test(test):
    """Spark is needed (`tests/requirements.py`), takes its time, and runs once a process."""
    for mark in MARKS:
        test = mark(test)
    return test
