"""Real Hive Metastores over a real PostgreSQL: the same operations, failovers, and their races."""

import asyncio
import json

import pytest

from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_VALID
from harness.ops import OpType
from targets.apache_hive import ApacheHiveTarget
from tests.hive.deploy import Deployed, deploy
from tests.hive.test_metastores import every_operation

pytestmark = [pytest.mark.slow, pytest.mark.hive, pytest.mark.xdist_group("hive")]
PROCESS = [pytest.mark.process, pytest.mark.postgres]
ROUNDS = 25


def with_metastores(body, environment="process"):
    deploy(body, environment=environment, profile="hive4", target=ApacheHiveTarget())


@pytest.mark.parametrize(
    "environment",
    [pytest.param("process", marks=PROCESS), pytest.param("docker", marks=pytest.mark.docker)],
)
def test_every_operation_works_as_on_the_bundled_ones(environment):
    with_metastores(every_operation, environment)


@pytest.mark.process
@pytest.mark.postgres
def test_a_killed_metastore_costs_a_failover_and_a_killed_database_nothing_acknowledged():
    async def body(hms: Deployed):
        client = hms.new_client()
        await hms.ok(client, "create", "db1.x", nonce="a")
        await hms.cluster.kill(client._address.node)
        done = await hms.do(client, "alter", "db1.x", nonce="b")
        assert done.type is OpType.OK
        await hms.cluster.kill("db")
        await hms.cluster.start("db")
        for name in ("hms1", "hms2"):
            await hms.cluster.start(name)
        await hms.until_ready()
        assert (await hms.ok(hms.new_client(), "get", "db1.x"))["nonce"] == "b"

    with_metastores(body)


@pytest.mark.process
@pytest.mark.postgres
def test_of_two_drops_at_once_both_are_often_acknowledged():
    async def body(hms: Deployed):
        clients = [hms.new_client() for _ in range(2)]
        both = 0
        for _ in range(ROUNDS):
            await hms.ok(clients[0], "create", "db1.x")
            drops = (hms.do(client, "drop", "db1.x") for client in clients)
            kinds = [done.type for done in await asyncio.gather(*drops)]
            assert OpType.OK in kinds
            both += kinds == [OpType.OK, OpType.OK]
            assert (await hms.ok(clients[0], "get", "db1.x"))["result"] == "no-such-object"
        assert both >= 1

    with_metastores(body)


@pytest.mark.process
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("profile", "code", "verdict"),
    [
        ("hive4", EXIT_VALID, "permitted"),
        # Now and then another race of theirs is convicted before the two drops are.
        pytest.param("strict", EXIT_INVALID, "invalid", marks=pytest.mark.nightly),
    ],
)
def test_a_run_without_any_fault_finds_drops_that_are_acknowledged_twice(
    profile, code, verdict, tmp_path
):
    words = ["run", "--env", "process", "--target", "apache-hive", "--profile", profile]
    words += ["--nemesis", "none", "--time-limit", "20", "--store", str(tmp_path), "--name", "t"]
    assert main(words) == code
    results = json.loads((tmp_path / "t" / "latest" / "results.json").read_bytes())
    found = {each["checker"]: each for each in results["checkers"]}
    judged = found["linearizable-hms"]
    assert judged["verdict"] == verdict
    assert found["hms-invariants"]["verdict"] == "valid"
    if verdict == "permitted":
        assert judged["details"]["permitted"]["drop-twice"] >= 1
        return
    both = [line for line in judged["explanation"] if " dropped " in line]
    assert len({line.split(" dropped ")[1].split()[0] for line in both}) == 1, judged["explanation"]
    assert len(both) >= 2
