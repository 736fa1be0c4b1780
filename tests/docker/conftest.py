import pytest

from harness.environments.docker import DockerEnvironment, build_image
from harness.environments.docker.engine import Engine
from harness.errors import InfrastructureError


@pytest.fixture(scope="session")
def engine():
    """A connection to the engine, which then has the node image."""
    try:
        connected = Engine()
        connected.ping()
    except InfrastructureError as error:
        pytest.skip(f"no Docker engine: {error}")
    build_image(print)
    yield connected
    connected.close()


@pytest.fixture
def environment(engine):
    return DockerEnvironment()
