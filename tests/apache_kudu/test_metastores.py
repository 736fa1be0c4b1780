"""Real Hive Metastores that run next to real Kudu, and the differences between both catalogs."""

import pytest

from harness.errors import UsageError
from harness.plugins import TargetSettings
from harness.plugins.options import with_defaults
from targets.apache_hive.artefacts import HIVE3
from targets.apache_kudu import ApacheKuduTarget
from targets.apache_kudu.metastores import RealMetastores
from targets.apache_kudu.target import layout_of
from targets.apache_kudu.wire import WireRpc
from targets.apache_kudu.wire.administration import applies_events
from tests.apache_kudu.scripted import Scripted, failed
from tests.support.env import FakeEnv

ENTRY = ["db1.x", "a", ["127.0.0.9:1"], "c"]


def settings(**options):
    values = with_defaults("target", "apache-kudu", ApacheKuduTarget.options, options)
    return TargetSettings(profile="modern", bugs=(), options=values, environment="process")


@pytest.fixture
def fetched(place, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    with HIVE3.folder().filled() as (new, _):
        schema = new / HIVE3.schema
        schema.parent.mkdir(parents=True)
        schema.write_text("create table x ();\n")


def test_masters_start_after_the_metastores_and_know_them(fetched):
    del fetched
    nodes = {n.name: n for n in ApacheKuduTarget().nodes(settings(hms=True, spare_masters=2))}
    assert [*nodes][-3:] == ["hms1", "hms2", "db"]
    words = " ".join(nodes["m4"].command)
    assert "--hive_metastore_uris=thrift://{peer:hms1:9083},thrift://{peer:hms2:9083} " in words
    assert "notification_log_poll_period_seconds=1 " in words
    assert nodes["m4"].after == ("hms1", "hms2")
    assert nodes["t1"].after == ()
    assert "hive_metastore" not in " ".join(nodes["t1"].command)
    site = nodes["hms1"].files["metastore-site.xml"]
    assert "KuduMetastorePlugin" in site
    assert "DbNotificationListener" in site
    assert [*{n.name for n in ApacheKuduTarget().nodes(settings())} & {"hms1", "db"}] == []


def test_what_is_missing_or_impossible_is_refused(place, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    with pytest.raises(UsageError, match=r"harness fetch hive 3\.1\.3"):
        ApacheKuduTarget().nodes(settings(hms=True))
    with pytest.raises(UsageError, match="give 1000 or 2000"):
        ApacheKuduTarget().nodes(settings(hms=True, hms_poll_ms=1500))


@pytest.mark.parametrize(
    ("options", "stale"), [({}, False), ({"spare_masters": 2}, True)], ids=["fixed", "spares"]
)
def test_only_masters_that_change_may_leave_stale_addresses(options, stale):
    permits = {
        each.name: each for each in ApacheKuduTarget().permits(settings(hms=True, **options))
    }
    assert ("hms-stale-masters" in permits) is stale
    assert "no-table" not in {
        rule for each in permits.values() for rule in each.rules.get("kudu-hms", ())
    }
    without = {each.name for each in ApacheKuduTarget().permits(settings(**options))}
    assert not any(name.startswith("hms") for name in without)


@pytest.mark.parametrize(
    ("answer", "applied"),
    [
        (failed(3, 1, "the table does not exist"), True),
        (failed(13, 9, "failed to wait for Hive Metastore notification log listener"), False),
        (failed(7, 9, "Not the leader."), False),
        ({}, False),
    ],
)
async def test_a_leader_that_looks_for_the_table_has_applied_all_events(answer, applied):
    connection = Scripted(DeleteTable=[answer])
    assert await applies_events(connection.session()) is applied


class Metastores(RealMetastores):
    """Metastores with a clock that the test moves, and with a known address of each master."""

    def __init__(self):
        env = FakeEnv()
        super().__init__(env, layout_of(settings(hms=True)).hms, WireRpc(env, {}))
        self._names = {"127.0.0.9:1": "m1:7051"}
        self.now_s = 0.0
        env.clock.monotonic_ns = lambda: int(self.now_s * 1e9)

    def work(self, tables, entries, *, last=7, event=7):
        leader = {"tables": tables, "hms": {"last_event": last, "events": [], "masters": []}}
        return [*self.open_work({}, leader, {"event": event, "entries": entries})]


def test_a_difference_that_stays_is_no_work_that_is_under_way():
    seen = Metastores()
    table = {"id": "a", "name": "db1.x", "state": "RUNNING"}
    assert seen.work([table], [ENTRY]) == []
    assert len(seen.work([], [ENTRY])) == len(seen.work([table], [])) == 1
    seen.now_s = 100.0
    assert len(seen.work([], [ENTRY])) == 1
    seen.now_s = 200.0
    assert seen.work([], [ENTRY]) == []
    assert len(seen.work([], [ENTRY], last=6)) == 1
    assert [*seen.open_work({}, {"tables": []}, {"event": 7, "entries": []})] != []
    assert [*seen.open_work({}, None, None)] != []
