"""Runs the body of the simulated cluster test on real processes and sockets."""

import pytest

from tests.kudu.deploy import deploy
from tests.kudu.test_cluster_sim import every_operation


@pytest.mark.process
@pytest.mark.slow
def test_every_operation_works_in_processes():
    # One master is enough: `tests.worlds` runs several masters, with elections, in processes.
    deploy(every_operation, environment="process", masters=1)
