"""Removal of soaks that a failed test has left running."""

import pytest

from tests.soak import commands


@pytest.fixture(autouse=True)
def nobody_stays():
    """Kill the processes of `commands.start` that no test has waited for."""
    yield
    while commands.STARTED:
        process = commands.STARTED.pop()
        if process.poll() is None:
            commands.kill(process)
        for stream in (process.stdout, process.stderr):
            stream.close()
