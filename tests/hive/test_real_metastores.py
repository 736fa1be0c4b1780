"""Real Hive Metastores over a real PostgreSQL carry out operations, failovers and races."""

import asyncio
import json

import pytest

from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_VALID
from harness.ops import OpType
from harness.run.operations import restore
from targets.apache_hive import ApacheHiveTarget
from tests.hive.deploy import Deployed, deploy
from tests.hive.test_membership import both_of_the_first_list_go
from tests.hive.test_metastores import every_operation

pytestmark = [pytest.mark.slow, pytest.mark.hive, pytest.mark.xdist_group("hive")]
PROCESS = [pytest.mark.process, pytest.mark.postgres]
ROUNDS = 25
PATIENCE = {"connect_timeout_ms": 10_000, "socket_timeout_ms": 10_000}
"""A limit for busy machines, on which Java needs seconds for first-time work."""


def with_metastores(body, environment="process", **options):
    deploy(
        body,
        environment=environment,
        profile="hive4",
        target=ApacheHiveTarget(),
        **PATIENCE,
        **options,
    )


def judged(folder, code, *words):
    """Run a case and check that its exit code is in `code`. Return its results by checker."""
    words = ["run", "--env", "process", "--target", "apache-hive", *words]
    assert main([*words, "--store", str(folder), "--name", "t"]) in code
    results = json.loads((folder / "t" / "latest" / "results.json").read_bytes())
    return {each["checker"]: each for each in results["checkers"]}


async def a_killed_metastore_costs_a_failover_and_a_killed_database_nothing(hms: Deployed):
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


async def both_of_two_concurrent_drops_are_often_acknowledged(hms: Deployed):
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


async def two_concurrent_renames_often_leave_a_mixed_name(hms: Deployed):
    clients = [hms.new_client() for _ in range(2)]
    mixed = 0
    for _ in range(ROUNDS):
        await hms.ok(clients[0], "create", "db1.x")
        renames = zip(clients, ("db2.x", "db1.y"), strict=True)
        await asyncio.gather(*(hms.do(client, "rename", "db1.x", new) for client, new in renames))
        (name,) = (await hms.ok(clients[0], "list"))["tables"]
        assert name in {"db2.x", "db1.y", "db2.y"}
        mixed += name == "db2.y"
        await hms.ok(clients[0], "drop", name)
    assert mixed >= 1


@pytest.mark.parametrize(
    ("environment", "checks"),
    [
        # all of these share one cluster, because metastores need half a minute to start
        pytest.param(
            "process",
            [
                every_operation,
                both_of_two_concurrent_drops_are_often_acknowledged,
                two_concurrent_renames_often_leave_a_mixed_name,
                a_killed_metastore_costs_a_failover_and_a_killed_database_nothing,
            ],
            marks=PROCESS,
            id="process",
        ),
        pytest.param(
            "docker",
            [every_operation],
            marks=[pytest.mark.docker, pytest.mark.nightly],
            id="docker",
        ),
    ],
)
def test_operations_races_and_failovers(environment, checks):
    async def body(hms: Deployed):
        for check in checks:
            try:
                await check(hms)
                client = hms.new_client()
                for name in (await hms.ok(client, "list"))["tables"]:
                    await hms.ok(client, "drop", name)
            except BaseException as error:
                error.add_note(f"in {check.__name__}")
                raise

    with_metastores(body, environment)


@pytest.mark.process
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("profile", "code", "verdict"),
    [
        ("hive4", EXIT_VALID, "permitted"),
        # Occasionally another race shows before the one between two drops.
        pytest.param("strict", EXIT_INVALID, "invalid", marks=pytest.mark.nightly),
    ],
)
def test_a_run_without_any_fault_finds_drops_that_are_acknowledged_twice(
    profile, code, verdict, tmp_path
):
    words = ("--profile", profile, "--nemesis", "none", "--time-limit", "20")
    result = judged(tmp_path, {code}, *words)
    ordered = result["linearizable-hms"]
    assert ordered["verdict"] == verdict
    assert result["hms-invariants"]["verdict"] == "valid"
    if verdict == "permitted":
        assert ordered["details"]["permitted"]["drop-twice"] >= 1
        return
    both = [line for line in ordered["explanation"] if " dropped " in line]
    names = {line.split(" dropped ")[1].split()[0] for line in both}
    assert len(names) == 1, ordered["explanation"]
    assert len(both) >= 2


async def too_slow_a_reader_is_told(hms: Deployed):
    reader, writer = hms.new_client(), hms.new_client()
    await hms.ok(reader, "poll")
    await hms.ok(writer, "create", "db1.z")
    async with asyncio.timeout(60):
        while (await hms.system.snapshot())["rows"]["events"]:  # noqa: ASYNC110 - it polls
            await asyncio.sleep(0.2)
    polled = await hms.ok(reader, "poll")
    async with asyncio.timeout(60):
        while "missing" not in polled:  # the cleaner removes events before the reader polls them
            assert (polled["after"], polled["events"]) == (0, [])
            await hms.ok(writer, "alter", "db1.z")
            polled = await hms.ok(reader, "poll")
    assert (polled["after"], polled["events"], polled["missing"]) == (0, [], 1)
    assert polled["to"] >= 2
    assert (await hms.ok(reader, "poll"))["after"] == polled["to"]
    await hms.ok(writer, "drop", "db1.z")


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param("process", marks=PROCESS),
        pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.nightly]),
    ],
)
def test_old_events_expire_and_members_change(environment):
    async def body(hms: Deployed):
        await too_slow_a_reader_is_told(hms)
        half, gone = await both_of_the_first_list_go(hms)
        assert half == (["hms1", "hms2"], ["hms2"])
        assert gone.type is OpType.FAIL
        assert gone.error.startswith("NO_METASTORE: this client knows only hms1, hms2")
        shown = await hms.system.snapshot()
        assert shown["members"] == [*shown["metastores"]] == ["hms3"]
        await restore(hms.cluster, hms.system)
        await hms.until_ready()
        shown = await hms.system.snapshot()
        assert shown["members"] == [*shown["metastores"]] == ["hms1", "hms2"]
        assert [*shown["metastores"].values()] == [["db1.x"]] * 2

    options = {"spare_metastores": 1, "event_ttl_ms": 1000, "selection": "sequential"}
    with_metastores(body, environment, **options)


@pytest.mark.process
@pytest.mark.postgres
@pytest.mark.nightly
def test_readers_fall_behind_the_cleaner_and_miss_nothing_else_under_faults(tmp_path):
    words = ("--workload", "hms-events", "--event-ttl-ms", "1000", "--time-limit", "60")
    faults = ("--nemesis", "kill-metastore,pause-metastore", "--interval", "12")
    result = judged(tmp_path, {EXIT_VALID}, *words, *faults)
    details = result["hms-events"]["details"]
    assert details["sent_to_end"] > 0
    assert {*details.get("by_invariant", ())} <= {"replay", "twice", "times"}
    assert min(details["looked"][rule] for rule in ("anew", "kept", "missed", "once")) > 5


@pytest.mark.process
@pytest.mark.postgres
@pytest.mark.nightly
def test_with_one_writer_readers_see_strict_behaviour(tmp_path):
    words = ("--workload", "hms-events", "--profile", "strict", "--time-limit", "20")
    alone = ("--nemesis", "none", "--concurrency", "10", "--readers", "90")
    once = ("--failure-retries", "0")
    # A get may still be torn, but the checkers of events do not depend on gets.
    every = judged(tmp_path, {EXIT_VALID, EXIT_INVALID}, *words, *alone, *once)
    found = every["hms-events"]
    assert found["verdict"] == "valid", found
    assert found["details"]["looked"]["missed"] > 50
