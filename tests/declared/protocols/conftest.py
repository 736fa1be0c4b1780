"""Skips the tests of a protocol whose driver is not installed."""

import pytest

DRIVERS = {"postgres": "psycopg", "mysql": "aiomysql", "zookeeper": "kazoo"}


@pytest.fixture(autouse=True)
def _driver(request):
    parameters = getattr(request.node, "callspec", None)
    name = parameters.params.get("name") if parameters else None
    if name in DRIVERS:
        pytest.importorskip(DRIVERS[name])
