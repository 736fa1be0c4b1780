"""The nodes, options, groups and workloads that the target `hive` declares."""

import itertools
import random

import msgspec
import pytest

from harness.case import Case
from harness.cli.parser import Parser
from harness.cli.run.case_options import case_from, parse_case_options
from harness.environments.sim import SimEnvironment
from harness.errors import UsageError
from harness.plan.planning import plan_case
from harness.plugins import TargetSettings
from harness.plugins.options import with_defaults
from targets.hive import HiveTarget
from targets.hive.system import HiveSystem, Layout
from tests.async_tests import on
from tests.hive.deploy import Deployed, deploy
from tests.hive.runs import case_of, run


def settings(**options):
    given = with_defaults("target", "hive", HiveTarget.options, options)
    return TargetSettings(profile="strict", bugs=(), options=given)


def test_nodes_are_metastores_and_their_database():
    nodes = HiveTarget().nodes(settings(metastores=3, fsync=False))
    assert [(node.name, node.role) for node in nodes] == [
        ("hms1", "hms"), ("hms2", "hms"), ("hms3", "hms"), ("db", "db"),
    ]  # fmt: skip
    assert nodes[-1].config["fsync"] is False
    with pytest.raises(UsageError):
        settings(metastores=0)
    with pytest.raises(UsageError):
        HiveTarget().nodes(settings(selection="sideways"))


@pytest.mark.parametrize("environment", [None, "sim", "process", "docker"])
def test_the_database_is_real_wherever_programs_run(environment, monkeypatch):
    def database(**options):
        asked = msgspec.structs.replace(settings(**options), environment=environment)
        return HiveTarget().nodes(asked)[-1]

    monkeypatch.setattr("targets.hive.sql.postgres.require_driver", lambda: None)
    on_env = database().entry is not None
    assert on_env is (environment in (None, "sim"))
    assert database(database="store").entry is not None
    real = database(database="postgres", fsync=False)
    assert real.user == "postgres"
    assert "fsync = off" in real.files["postgresql.conf"]
    with pytest.raises(UsageError):
        database(database="derby")


@on(deploy, token_store="zookeeper")
async def test_zookeeper_belongs_to_the_core_and_must_answer(hms):
    groups = await hms.system.groups()
    assert groups["metastore"].candidates == ("hms1", "hms2", "db", "zk1")
    assert groups["zookeeper"].candidates == ("zk1",)
    assert {(*hms.system.core(random.Random(seed)),)[1:] for seed in range(9)} == {("db", "zk1")}
    await hms.cluster.kill("zk1")
    ready = await hms.system.ready()
    assert ready.pending == tuple(f"{name} does not reach ZooKeeper" for name in ("hms1", "hms2"))
    await hms.cluster.start("zk1")
    await hms.until_ready()


def test_zookeeper_is_there_where_tokens_are_in_it():
    def names(environment=None, **options):
        asked = settings(**options)
        asked = msgspec.structs.replace(asked, environment=environment)
        nodes = HiveTarget().nodes(asked)
        return [node.name for node in nodes if node.role == "zk"]

    three = ["zk1", "zk2", "zk3"]
    assert names() == names(zookeeper="ensemble") == []
    assert names(token_store="zookeeper") == names("sim", token_store="zookeeper") == ["zk1"]
    for environment in ("process", "docker"):
        real = {"token_store": "zookeeper", "database": "store"}
        assert names(environment, **real) == three
        assert names(environment, zookeeper="node", **real) == ["zk1"]
    with pytest.raises(UsageError):
        names(zookeeper="pod")


def test_the_target_names_its_workload_and_kudu_keeps_its_own():
    def case(*words):
        return case_from(parse_case_options(Parser(prog="t"), words), 1)

    usual = case("--target", "hive")
    assert (usual.workload, usual.op_timeout_s) == ("hms-ddl", 8.0)
    assert case().workload == Case(seed=1).workload == "ddl"
    assert case("--target", "kudu", "--workload", "rows").workload == "rows"
    with pytest.raises(UsageError):
        plan_case(case("--target", "hive", "--workload", "ddl"), SimEnvironment())


def test_a_lost_call_is_tried_at_every_metastore_in_strict_alone():
    def retries(profile, **options):
        asked = msgspec.structs.replace(settings(**options), profile=profile)
        return Layout(asked).client.retries

    assert [retries("strict", metastores=n) for n in (1, 2, 3, 5)] == [1, 1, 2, 4]
    assert [retries("hive4", metastores=n) for n in (1, 2, 3, 5)] == [1, 1, 1, 1]
    assert retries("strict", metastores=3, failure_retries=0) == 0
    assert retries("strict", metastores=2, failure_retries=3) == 3


def test_soaks_draw_only_omitted_options():
    target = HiveTarget()
    seen = {}
    for seed in range(40):
        drawn = target.draw_options(random.Random(seed), {"metastores": 5, "fsync": False})
        assert (drawn.pop("metastores"), drawn.pop("fsync")) == (5, False)
        for name, value in drawn.items():
            seen.setdefault(name, set()).add(value)
        given = with_defaults("target", "hive", target.options, drawn)
        target.nodes(TargetSettings(profile="strict", bugs=(), options=given))
    assert seen == {
        "selection": {"", "random"}, "socket_lifetime_ms": {0, 500}, "database_log_kb": {4, 512}
    }  # fmt: skip


@pytest.mark.parametrize("nemesis", HiveTarget.nemeses)
def test_every_nemesis_of_the_target_can_be_planned(nemesis):
    plan = plan_case(case_of(f"--nemesis {nemesis}", 1), SimEnvironment())
    assert plan.case.faults


@on(deploy)
async def test_metastores_are_named_despite_concurrent_changes(hms):
    assert (await hms.system.snapshot())["metastores"] == {"hms1": [], "hms2": []}
    dump, numbers = hms.system._dump, itertools.count()

    async def changed():
        return {**await dump(), "number": next(numbers)}

    hms.system._dump = changed
    assert (await hms.system.snapshot())["metastores"] == {"hms1": None, "hms2": None}


@on(deploy)
async def test_the_database_leads_and_a_core_is_it_with_any_metastore(hms):
    groups = await hms.system.groups()
    service = groups["metastore"]
    assert service.leader == groups["database"].leader == "db"
    assert service.candidates == ("hms1", "hms2", "db")
    assert [*groups] == ["metastore", "database"] == [*HiveTarget.groups]
    cores = {tuple(hms.system.core(random.Random(seed))) for seed in range(20)}
    assert cores == {("hms1", "db"), ("hms2", "db")}
    five = HiveSystem(hms.session.env, Layout(settings(metastores=5)))
    assert {len(five.core(random.Random(seed))) for seed in range(20)} == {4}
    await hms.cluster.kill("db")
    assert (await hms.system.groups())["metastore"].leader is None
    assert (await hms.system.snapshot())["rows"] is None
    assert not (await hms.system.ready()).ok


@pytest.mark.parametrize("nemesis", ["kill-zookeeper", "pause-zookeeper", "partition-zookeeper"])
def test_the_ensemble_of_tokens_has_nemeses_where_there_is_one(nemesis):
    words = f"--workload hms-tokens --nemesis {nemesis} --time-limit 15"
    plan = plan_case(case_of(f"{words} --token-store zookeeper", 1), SimEnvironment())
    assert plan.case.faults
    result = run(f"{words} --token-store zookeeper --interval 4 --duration 1", 1)
    assert result.verdict == "valid"


def test_metastores_restart_in_turn_and_clients_go_on():
    result = run("--nemesis restart-metastores --interval 5 --time-limit 20", 1)
    assert result.verdict == "valid"


@pytest.mark.parametrize(
    ("selection", "nodes"), [("sequential", {"hms1"}), ("random", {"hms1", "hms2", "hms3"})]
)
def test_without_faults_sequential_is_the_first_alone_and_random_is_all(selection, nodes):
    async def body(hms: Deployed):
        served = [(await hms.do(hms.new_client(), "list")).node for _ in range(40)]
        assert {*served} == nodes

    deploy(body, selection=selection, metastores=3)
