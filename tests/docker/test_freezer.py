"""Freezing a container on a loaded host: the engine may need a second try."""

import docker.errors
import pytest

from harness.environments.docker.engine.engine import _FREEZER_TRIES, ContainerState, Engine
from harness.errors import InfrastructureError


class Loaded:
    """An engine that cannot freeze anything the first `failures` times."""

    base_url = "http+docker://localhost"

    def __init__(self, failures):
        self.failures, self.calls = failures, 0

    def pause(self, container):
        self.calls += 1
        if self.calls <= self.failures:
            raise docker.errors.APIError("500", explanation="unable to freeze")


def engine(failures):
    found = Engine.__new__(Engine)
    found._api, found._tails = Loaded(failures), {}
    found.state = lambda _container: ContainerState(
        running=True, paused=False, exit_code=0, ports={}
    )
    return found


@pytest.mark.parametrize("failures", [0, 1, _FREEZER_TRIES - 1])
def test_a_freeze_is_tried_again(failures):
    loaded = engine(failures)

    assert loaded.pause("c") is True
    assert loaded._api.calls == failures + 1


def test_a_freeze_that_never_takes_is_an_infrastructure_error():
    loaded = engine(99)

    with pytest.raises(InfrastructureError, match="unable to freeze"):
        loaded.pause("c")
    assert loaded._api.calls == _FREEZER_TRIES
