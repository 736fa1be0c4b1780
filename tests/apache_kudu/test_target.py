"""The declaration of real Kudu: nodes, flags, permits, and the parts of the system that need no
RPC.
"""

import msgspec
import pytest

from harness.errors import UsageError
from harness.plugins import TargetSettings
from harness.plugins.options import with_defaults
from harness.registry import load_plugin
from targets.apache_kudu import ApacheKuduTarget, target
from targets.apache_kudu.servers import parse_flags
from targets.kudu import KuduTarget


def settings(environment="process", **options):
    values = with_defaults("target", "apache-kudu", ApacheKuduTarget.options, options)
    return TargetSettings(profile="modern", bugs=(), options=values, environment=environment)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(target, "require", lambda version: tmp_path / version)
    monkeypatch.setattr(target, "require_libraries", lambda _: None)
    return tmp_path


def flags_of(node):
    return dict(word.removeprefix("--").split("=", 1) for word in node.command[1:])


def test_servers_bind_their_host_and_advertise_one_address(place):
    nodes = {node.name: node for node in ApacheKuduTarget().nodes(settings(tservers=4))}
    assert [*nodes] == ["m1", "m2", "m3", "t1", "t2", "t3", "t4"]
    masters = ",".join(f"{{address:m{n}:7051}}" for n in (1, 2, 3))
    for name, told in (("m2", "master_addresses"), ("t4", "tserver_master_addrs")):
        node, port = nodes[name], {"m2": 7051, "t4": 7050}[name]
        role = {"m2": "master", "t4": "tserver"}[name]
        assert node.command[0] == str(place / "1.18.1" / "bin" / f"kudu-{role}")
        assert node.role == role
        assert node.ports == (port, port + 1000)
        flags = flags_of(node)
        assert flags[told] == masters
        assert flags["rpc_bind_addresses"] == f"{{host}}:{{port:{port}}}"
        assert flags["rpc_advertised_addresses"] == f"{{address:{name}:{port}}}"
        assert flags["fs_wal_dir"].startswith("{data}")
        assert node.environment == {"SASL_PATH": f"{place / '1.18.1'}/lib/sasl2"}


def test_in_docker_the_programs_are_those_of_the_image(place, monkeypatch):
    def refuse(_):
        raise UsageError("this machine lacks a library")

    monkeypatch.setattr(target, "require_libraries", refuse)
    for node in ApacheKuduTarget().nodes(settings("docker")):
        assert node.dockerfile == str(place / "1.18.1")
        assert not any(str(place) in word for word in node.command)
        assert node.environment == {"SASL_PATH": "/opt/apache-kudu/lib/sasl2"}
    with pytest.raises(UsageError, match="lacks"):
        ApacheKuduTarget().nodes(settings("process"))


def test_given_flags_win(place):
    del place
    chosen = settings(
        kudu_version="1.17.1", kudu_flag="time_source=system, heartbeat_interval_ms=9"
    )
    for node in ApacheKuduTarget().nodes(chosen):
        flags = flags_of(node)
        assert "1.17.1" in node.command[0]
        assert (flags["time_source"], flags["heartbeat_interval_ms"]) == ("system", "9")
    assert parse_flags("") == {}


@pytest.mark.parametrize("text", ["heartbeat_interval_ms", "=5", "Upper=1", "a=1,b"])
def test_flags_of_another_form_are_refused(text):
    with pytest.raises(UsageError, match="--kudu-flag"):
        parse_flags(text)


def test_versions_that_nothing_pins_are_refused(place):
    del place
    with pytest.raises(UsageError, match=r"1\.15\.0.*1\.18\.1"):
        ApacheKuduTarget().nodes(settings(kudu_version="1.15.0"))
    with pytest.raises(UsageError, match="--masters is 2"):
        ApacheKuduTarget().nodes(settings(masters=2))
    five = msgspec.structs.replace(settings(masters=5), vocabulary="mixed")
    with pytest.raises(UsageError, match="give --masters 3"):
        ApacheKuduTarget().nodes(five)
    assert len(ApacheKuduTarget().nodes(settings(masters=5))) == 8


def test_the_programs_must_be_fetched_first(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"harness fetch kudu 1\.18\.1"):
        ApacheKuduTarget().nodes(settings())


def test_permits_are_those_of_modern_and_one_of_real_servers():
    bundled = KuduTarget()
    values = with_defaults("target", "kudu", bundled.options, {})
    modern = TargetSettings(profile="modern", bugs=(), options=values)
    real = {permit.name for permit in ApacheKuduTarget().permits(settings())}
    assert real - {permit.name for permit in bundled.permits(modern)} == {"orphan-replicas"}
    assert isinstance(load_plugin("targets", "apache-kudu"), ApacheKuduTarget)
