"""`harness run --freeze` pauses containers, which users then query and remove."""

import json

import pytest

from harness.environments.docker.engine.labels import RUN_LABEL
from tests.up.support import clusters, left_of

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.xdist_group("docker")]
RUN = "run --env docker --bug NO-LEASE --nemesis partition-leader --seed 1 --time-limit 60 --freeze"


@pytest.fixture
def up(tmp_path):
    with clusters("docker", tmp_path) as commands:
        yield commands


def test_masters_of_a_frozen_cluster_answer_once_they_are_thawed(up, tmp_path):
    from harness.environments.docker.engine.engine import Engine

    errors = up.call(*RUN.split(), "--quiet", "--store", str(tmp_path / "store"), code=1)
    up.clusters["frozen"] = None
    record = json.loads((up.folder("frozen") / "cluster.json").read_text())
    label = f"{RUN_LABEL}={record['run_id']}"
    status = up.call("status", "frozen", "--json")["status"]
    assert {node["state"] for node in status["nodes"]} == {"paused"}, errors
    assert "none can answer" in up.call("kudu", "--cluster", "frozen", "master", "list", code=254)
    up.call("heal", "frozen", record["pause"])
    masters = up.call("kudu", "--cluster", "frozen", "master", "list")
    # NO-LEASE: the leader behind the cut still believes that it leads
    assert masters.count("LEADER") == 2
    up.down("frozen")
    with Engine.connected() as engine:
        assert [*engine.containers(label), *engine.networks(label), *engine.volumes(label)] == []
    assert left_of(record) == []
