"""One store of simulated runs, judged and reported once, for all tests here.

They are of the group of those that need Spark, which share a worker: half of these need it too.
"""

import pytest

from results.report.report import report
from tests.results.report.oracle_at_scale import AtScale
from tests.results.report.stores import make_store


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="session")
def reported(store):
    """Summary, answers and page."""
    return report(str(store), executor="inline", baseline="old", label="new")


@pytest.fixture(scope="session")
def oracle(store):
    return AtScale(store)
