import pytest

from harness.environments.docker import DockerEnvironment
from harness.environments.docker.engine.engine import Engine


@pytest.fixture(scope="session")
def engine():
    connected = Engine()
    yield connected
    connected.close()


@pytest.fixture
def environment(engine):  # a shared fixture, so all tests here run on one xdist worker
    return DockerEnvironment()
