import pytest


@pytest.fixture(scope="session")
def engine():
    from harness.environments.docker.engine.engine import (
        Engine,  # most tests here do not need it
    )

    connected = Engine()
    yield connected
    connected.close()
