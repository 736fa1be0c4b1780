"""Fixture: the environments in which the tests run, with the marks of the tools that each needs."""

import pytest

from harness.registry import load_plugin

WORLDS = [
    pytest.param("sim"),
    pytest.param("process", marks=[pytest.mark.process, pytest.mark.xdist_group("process")]),
    pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.xdist_group("docker")]),
]


@pytest.fixture(params=WORLDS)
def environment(request):
    return load_plugin("environments", request.param)
