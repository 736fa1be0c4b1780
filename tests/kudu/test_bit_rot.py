"""A node of the bundled target that reads a flipped bit exits, or the run is invalid."""

import types

import pytest

from harness.cluster import NodeState
from harness.timeline import faults_of
from targets import checked_file
from targets.kudu.consensus import log as wal
from tests.async_tests import on
from tests.faults.test_runs import run
from tests.kudu.deploy import deploy
from tests.support.waiting import until

ROT = "disk one bitrot=20% every 3s for 1500ms"
SEED = 11  # with this seed, one flipped bit is in an entry that can still be decoded


@pytest.mark.parametrize("node", ["m1", "t1"])
@on(deploy, flags="master_snapshot_every=3,tablet_snapshot_every=1")
async def test_a_flipped_bit_in_any_file_ends_the_node_and_nothing_else_does(deployed, node):
    client = deployed.new_client()
    await deployed.ok(client, "create", name="t")
    await deployed.until_done(client, "is-create-done", "t")
    cluster = deployed.session.cluster
    await cluster.kill(node)
    files = cluster._machine(node).disk.files
    flipped = 0
    for path in sorted(files):
        good = bytes(files[path].visible)
        for at in {0, len(good) // 2, len(good) - 1}:
            files[path].visible[at] ^= 1 << at % 8
            await cluster.start(node)
            await until(lambda: cluster.state(node) is NodeState.DOWN)
            files[path].visible[:] = good  # a start of the node may have replaced the file
            flipped += 1
    assert flipped >= 3 * 4
    await cluster.start(node)
    await deployed.until_converged()
    assert cluster.state(node) is NodeState.RUNNING


def test_exits_over_bit_rot_are_excused():
    history, judgement = run(ROT, SEED, time_limit_s=8.0)
    hit = {node for fault in faults_of(history) for node in fault.targets}
    ended = {op.value["node"] for op in history.facts("node-exit") if not op.value["expected"]}
    assert ended
    assert ended <= hit
    assert judgement.verdict == "valid", judgement


def test_without_checksums_a_replica_believes_what_has_rotted_and_is_blamed(monkeypatch):
    for module in (checked_file, wal):
        monkeypatch.setattr(module, "zlib", types.SimpleNamespace(crc32=lambda *_: 0))
    monkeypatch.setattr("harness.run.phases.CONVERGE_BOUND_S", 5.0)
    _, judgement = run(ROT, SEED, time_limit_s=8.0)
    blamed = {result.checker for result in judgement.results if result.verdict == "invalid"}
    assert "catalog-invariants" in blamed
