"""One body, three worlds: the environments a test runs in, marked and skipped with a reason."""

import os

import pytest

from harness.plugins import load_plugin

WORLDS = [
    pytest.param("sim"),
    pytest.param("process", marks=[pytest.mark.process, pytest.mark.xdist_group("process")]),
    pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.xdist_group("docker")]),
]


@pytest.fixture(params=WORLDS)
def environment(request):
    """The environment plug-in; skips where it cannot be used, unless CI demands it."""
    plugin = load_plugin("environments", request.param)
    reason = plugin.unavailable()
    if reason is not None:
        if os.environ.get("HARNESS_REQUIRE_DOCKER") == "1":
            pytest.fail(f"{request.param} is required here: {reason}")
        pytest.skip(reason)
    return plugin
