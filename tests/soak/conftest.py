"""Soaks that a failing test left running are ended."""

import pytest

from tests.soak import commands


@pytest.fixture(autouse=True)
def nobody_stays():
    """Kill whatever `commands.start` started and nobody waited for."""
    yield
    while commands.STARTED:
        process = commands.STARTED.pop()
        if process.poll() is None:
            commands.kill(process)
        for stream in (process.stdout, process.stderr):
            stream.close()
