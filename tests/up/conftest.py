import pytest


@pytest.fixture(scope="session")
def engine():
    """A connection to the engine."""
    from harness.environments.docker.engine.engine import (
        Engine,  # which most tests here have no use for
    )

    connected = Engine()
    yield connected
    connected.close()
