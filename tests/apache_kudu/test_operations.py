"""Rolling upgrades and faults that set flags, carried out on scripted Kudu servers."""

import asyncio
from functools import partial

import pytest

from harness.errors import UsageError
from harness.registry import load_plugin
from targets.apache_kudu import ApacheKuduTarget
from targets.apache_kudu.flags import FLAG_FAULTS, LASTS_S, FlagFaults
from targets.apache_kudu.servers import UPGRADED
from targets.apache_kudu.upgrade import UPGRADE, Upgrade
from targets.apache_kudu.wire import administration as admin
from targets.kudu import messages as m
from targets.kudu.rpc import RpcConnectionError
from tests.apache_kudu.scripted import Scripted, failed
from tests.apache_kudu.test_target import flags_of, program_of, settings
from tests.support.virtual import run

MASTERS = {"m1": "m1:7051", "m2": "m2:7051"}
TSERVERS = {"t1": "t1:7050", "t2": "t2:7050"}
SERVERS = {**MASTERS, **TSERVERS}


class Cluster:
    """A cluster of scripted servers.

    `told` records each request and its node; nodes in `down` do not answer.
    """

    def __init__(self):
        self.told = []
        self.down = set()
        self.leaders = 2
        self.flags = {}
        self.refused = ()
        self.starting = {}
        self.mute = set()

    async def administer(self, address, work, *, timeout_s):
        node = self._reach(address, timeout_s)
        return await work(Asked(self, node).session())

    async def node_uuid(self, address, *, timeout_s):
        return f"uuid-{self._reach(address, timeout_s)}"

    async def call(self, address, request, *, timeout_s):
        node = self._reach(address, timeout_s)
        assert isinstance(request, m.ListTabletsRequest)
        self.starting[node] = left = self.starting.get(node, 0) - 1
        state = "RUNNING" if left < 0 else "BOOTSTRAPPING"
        part = m.Partition(b"", b"")
        rows = [
            m.HostedTablet("T", "i", "t", state, "READY", "FOLLOWER", 1, None, part, 0, 0),
            m.HostedTablet("U", "i", "t", "STOPPED", "TOMBSTONED", "FOLLOWER", 1, None, part, 0, 0),
        ]
        return m.ListTabletsResponse(f"uuid-{node}", tuple(rows))

    def _reach(self, address, timeout_s):
        assert timeout_s > 0
        node = address.partition(":")[0]
        if node in self.down:
            raise RpcConnectionError(f"no connection to {address}", sent=False)
        return node

    # --- the interface that the operations use -----------------------------------------------

    async def restart(self, node, variant):
        if node in self.down:
            return False
        self.told.append((node, variant))
        self.starting[node] = 3
        return True

    async def ready(self):
        self.told.append("ready?")
        return True

    async def leader(self):
        return "m1:7051"

    def upgrade(self):
        return Upgrade(self, MASTERS, TSERVERS, self.ready, self.leader)


class Asked(Scripted):
    def __init__(self, cluster, node):
        super().__init__()
        self.cluster, self.node = cluster, node

    async def call(self, method, request, *, timeout_s, rows_id=None):
        answers = {
            "ChangeTServerState": self._maintenance,
            "Quiesce": self._quiesce,
            "SetFlag": self._set_flag,
            "GetFlags": self._get_flags,
        }
        self.answers = {method.name: [answers[method.name](request)]}
        return await super().call(method, request, timeout_s=timeout_s, rows_id=rows_id)

    def _maintenance(self, request):
        change = request["change"]
        self.cluster.told.append((change["uuid"], {1: "enter", 2: "exit"}[change["change"]]))
        return {}

    def _quiesce(self, request):
        assert request["return_stats"]
        self.cluster.told.append((self.node, "quiesce" if request["quiesce"] else "resume"))
        self.cluster.leaders -= 1
        return {"is_quiescing": request["quiesce"], "num_leaders": max(0, self.cluster.leaders)}

    def _set_flag(self, request):
        assert request["force"]
        flag, value = request["flag"], request["value"]
        if flag in self.cluster.refused:
            return {"result": 2, "message": "no such flag"}
        self.cluster.flags.setdefault(self.node, {})[flag] = value
        if self.node in self.cluster.mute:
            return RpcConnectionError("the answer was lost", sent=True)
        return {"result": 1, "message": ""}

    def _get_flags(self, request):
        assert request["all_flags"]
        (flag,) = request["flags"]
        value = self.cluster.flags.get(self.node, {}).get(flag, "usual")
        return {"flags": [{"name": "another", "value": "x"}, {"name": flag, "value": value}]}


# --- the upgrade ------------------------------------------------------------------------------


def test_masters_come_first_and_tablet_servers_leave_maintenance_when_they_serve():
    cluster = Cluster()
    text = run(cluster.upgrade().run(["t1", "m1", "t2", "m2"], cluster.restart))
    assert "m1, m2, t1, t2" in text
    assert cluster.told == [
        *(("m1", UPGRADED), "ready?", ("m2", UPGRADED), "ready?"),
        *(("uuid-t1", "enter"), ("t1", "quiesce"), ("t1", "quiesce")),
        *(("t1", UPGRADED), ("t1", "resume"), ("uuid-t1", "exit")),
        *(("uuid-t2", "enter"), ("t2", "quiesce"), ("t2", UPGRADED)),
        *(("t2", "resume"), ("uuid-t2", "exit")),
    ]
    assert cluster.starting == {"m1": 3, "m2": 3, "t1": -1, "t2": -1}


def test_servers_that_are_down_are_upgraded_later():
    cluster = Cluster()
    cluster.down = {"m2", "t1"}
    upgrade = cluster.upgrade()

    async def main():
        first = await upgrade.run([*SERVERS], cluster.restart)
        cluster.down, cluster.told = set(), []
        await upgrade.finish(cluster.restart)
        return first

    assert "m1, t2" in run(main())
    assert [each for each in cluster.told if UPGRADED in each] == [
        ("m2", UPGRADED),
        ("t1", UPGRADED),
    ]
    assert "already" in run(upgrade.run([*SERVERS], cluster.restart))


def test_a_run_without_an_upgrade_restarts_nothing():
    cluster = Cluster()
    run(cluster.upgrade().finish(cluster.restart))
    assert cluster.told == []


def test_maintenance_that_could_not_end_ends_when_all_nodes_are_healed():
    cluster = Cluster()
    upgrade = cluster.upgrade()

    async def restart(node, variant):
        # m1 leads the masters; while it is down, the maintenance cannot be ended
        cluster.down = {"m1"}
        return await cluster.restart(node, variant)

    async def main():
        await upgrade.run(["t1"], restart)
        assert ("uuid-t1", "exit") not in cluster.told
        cluster.down = set()
        await upgrade.finish(cluster.restart)

    run(main())
    assert cluster.told.count(("uuid-t1", "exit")) == 1


def test_a_server_that_was_not_restarted_serves_again():
    cluster = Cluster()

    async def refuse(node, variant):
        del node, variant
        return False

    assert run(cluster.upgrade().run(["t1"], refuse)) is None
    assert cluster.told[-2:] == [("t1", "resume"), ("uuid-t1", "exit")]


def test_an_upgrade_that_took_too_long_ends_maintenance_at_the_end():
    cluster = Cluster()
    upgrade = cluster.upgrade()

    async def hang(node, variant):
        del node, variant
        await asyncio.sleep(1000)
        return True

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await upgrade.run(["t1"], hang)
        await upgrade.finish(cluster.restart)

    run(main())
    assert cluster.told[-2:] == [("t1", "resume"), ("uuid-t1", "exit")]


def test_one_upgrade_at_a_time():
    cluster = Cluster()
    upgrade = cluster.upgrade()

    async def main():
        both = [upgrade.run([*SERVERS], cluster.restart) for _ in range(2)]
        return await asyncio.gather(*both)

    first, second = run(main())
    assert first is not None
    assert second is None
    assert sum(UPGRADED in each for each in cluster.told) == len(SERVERS)


def test_an_administrator_does_not_wait_for_ever():
    cluster = Cluster()
    cluster.leaders = 10_000

    async def never():
        raise RpcConnectionError("no master leads", sent=False)

    upgrade = Upgrade(cluster, MASTERS, TSERVERS, never, cluster.leader)

    async def main():
        await upgrade.run([*SERVERS], cluster.restart)
        return asyncio.get_running_loop().time()

    assert run(main()) < 30


def test_nodes_have_a_variant_of_the_newer_release(place):
    chosen = settings(kudu_version="1.16.0", upgrade_to="1.18.1")
    for node in ApacheKuduTarget().nodes(chosen):
        newer = node.variants[UPGRADED]
        assert program_of(node).startswith(str(place / "1.16.0"))
        assert program_of(newer).startswith(str(place / "1.18.1"))
        assert newer.environment != node.environment
        assert newer.dockerfile == str(place / "1.18.1")
        flags = flags_of(newer)
        assert flags.pop("webserver_doc_root") == str(place / "1.18.1" / "www")
        assert flags.items() <= flags_of(node).items()
    assert not any(node.variants for node in ApacheKuduTarget().nodes(settings()))


@pytest.mark.parametrize(
    ("version", "newer", "words"),
    [
        ("1.16.0", "1.15.0", r"--upgrade-to is '1\.15\.0'"),
        ("1.18.1", "1.16.0", "later release"),
        ("1.17.1", "1.17.1", "later release"),
    ],
)
def test_an_upgrade_leads_to_a_later_release(place, version, newer, words):
    del place
    with pytest.raises(UsageError, match=words):
        ApacheKuduTarget().nodes(settings(kudu_version=version, upgrade_to=newer))


# --- flags ------------------------------------------------------------------------------------

SLOW = {"log_inject_latency_ms_mean": "300", "log_inject_latency": "true"}
USUAL = dict.fromkeys(SLOW, "usual")


def flag_faults(cluster):
    return FlagFaults(cluster, SERVERS)


def test_flags_are_set_and_set_back():
    cluster = Cluster()
    cluster.down = {"m2"}

    async def main():
        task = asyncio.create_task(flag_faults(cluster).run(SLOW, ["m1", "m2", "t1", "db"]))
        await asyncio.sleep(LASTS_S / 2)
        assert cluster.flags == {"m1": SLOW, "t1": SLOW}
        return await task

    assert "m1, t1" in run(main())
    assert cluster.flags == {"m1": USUAL, "t1": USUAL}


def test_a_flag_stays_until_the_last_operation_ends():
    cluster = Cluster()
    faults = flag_faults(cluster)

    async def main():
        first = asyncio.create_task(faults.run(SLOW, ["m1"]))
        await asyncio.sleep(LASTS_S / 2)
        second = asyncio.create_task(faults.run({"log_inject_latency": "true"}, ["m1"]))
        await first
        assert cluster.flags["m1"] == {**USUAL, "log_inject_latency": "true"}
        await second

    run(main())
    assert cluster.flags["m1"] == USUAL


def test_flags_of_a_server_that_was_cut_off_are_set_back_at_the_end():
    cluster = Cluster()
    faults = flag_faults(cluster)

    async def main():
        task = asyncio.create_task(faults.run(SLOW, ["m1"]))
        await asyncio.sleep(LASTS_S / 2)
        cluster.down = {"m1"}
        await task
        assert cluster.flags["m1"] == SLOW
        cluster.down = set()
        await faults.restore()

    run(main())
    assert cluster.flags["m1"] == USUAL


def test_a_flag_whose_answer_was_lost_is_set_back():
    cluster = Cluster()
    cluster.mute = {"m1"}
    faults = flag_faults(cluster)
    assert run(faults.run(SLOW, ["m1"])) is None
    assert cluster.flags["m1"] == {"log_inject_latency_ms_mean": "usual"}
    cluster.mute, cluster.flags["m1"] = set(), dict(SLOW)
    run(faults.restore())
    assert cluster.flags["m1"]["log_inject_latency_ms_mean"] == "usual"


def test_a_refused_flag_leaves_no_other_flag_behind():
    cluster = Cluster()
    cluster.refused = ("log_inject_latency",)
    assert run(flag_faults(cluster).run(SLOW, ["m1"])) is None
    assert cluster.flags["m1"] == {"log_inject_latency_ms_mean": "usual"}


def test_nemeses_name_operations_of_the_target():
    target = load_plugin("targets", "apache-kudu")
    for name, operations in (("set-flag", FLAG_FAULTS), ("rolling-upgrade", (UPGRADE,))):
        sentences = load_plugin("nemeses", name).sentences
        assert {each.kind.name for each in sentences} == {*operations}
        assert {*operations} <= {*target.operations}


def test_refusals_of_administrators_calls_are_errors():
    async def main():
        for answer, work in (
            (
                {"ChangeTServerState": [failed(1)]},
                partial(admin.set_maintenance, uuid="u", on=True),
            ),
            ({"Quiesce": [failed(1)]}, partial(admin.quiesce, on=True)),
        ):
            with pytest.raises(RpcConnectionError):
                await work(Scripted(**answer).session())

    run(main())
