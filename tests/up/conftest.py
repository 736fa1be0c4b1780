import pytest


@pytest.fixture(scope="session")
def engine():
    # imported here, because most tests in this folder do not need it
    from harness.environments.docker.engine.engine import Engine

    connected = Engine()
    yield connected
    connected.close()
