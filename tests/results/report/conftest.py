"""One store of simulated runs, judged and reported once for all tests in this folder.

The tests share the xdist group of the Spark tests, since half of them need Spark.
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
    return report(str(store), executor="inline", baseline="old", label="new")


@pytest.fixture(scope="session")
def oracle(store):
    return AtScale(store)
