"""The nodes, flags and permits that the target `apache-kudu` declares."""

import json
import subprocess

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


def flags_of(node):
    words = [word for word in node.command if word.startswith("--")]
    flags = dict(word.removeprefix("--").split("=", 1) for word in words)
    return flags | ({"master_addresses": node.command[5]} if is_started_by_script(node) else {})


def is_started_by_script(node):
    return node.command[0] == "/bin/sh"


def program_of(node):
    return node.command[6 if is_started_by_script(node) else 0]


def test_servers_bind_their_host_and_advertise_one_address(place):
    nodes = {node.name: node for node in ApacheKuduTarget().nodes(settings(tservers=4))}
    assert [*nodes] == ["m1", "m2", "m3", "t1", "t2", "t3", "t4"]
    masters = ",".join(f"{{address:m{n}:7051}}" for n in (1, 2, 3))
    for name, told in (("m2", "master_addresses"), ("t4", "tserver_master_addrs")):
        node, port = nodes[name], {"m2": 7051, "t4": 7050}[name]
        role = {"m2": "master", "t4": "tserver"}[name]
        assert program_of(node) == str(place / "1.18.1" / "bin" / f"kudu-{role}")
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
        assert "1.17.1" in program_of(node)
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
    assert len(ApacheKuduTarget().nodes(settings(masters=5))) == 8


STORED = [("127.1.2.1", 7051), ("m5", 7051)]


@pytest.mark.parametrize(
    ("stored", "listed"),
    [
        ([], "declared"),
        (STORED[:1], "127.1.2.1:7051"),
        (STORED, "127.1.2.1:7051,m5:7051"),
    ],
)
def test_masters_start_with_the_members_that_they_have_stored(place, stored, listed):
    nodes = {n.name: n for n in ApacheKuduTarget().nodes(settings(masters=3, spare_masters=2))}
    assert [*nodes] == ["m1", "m2", "m3", "m4", "m5", "t1", "t2", "t3"]
    shell, option, script, tool, file, declared, *program = nodes["m5"].command
    assert tool == str(place / "1.18.1" / "bin" / "kudu")
    assert file.startswith("{data}/wal/")
    assert declared == ",".join(f"{{address:m{number}:7051}}" for number in (1, 2, 3, 5))
    assert "--master_auto_join_cluster=false" in program
    peers = [{"lastKnownAddr": {"host": host, "port": port}} for host, port in stored]
    dumped = json.dumps({"committedConfig": {"peers": peers}}, separators=(",", ":"))
    fake = place / "kudu"
    fake.write_text(f"#!/bin/sh\nprintf '%s' '{dumped if stored else '{'}'\n")
    fake.chmod(0o755)
    start = (shell, option, script, str(fake), file, "declared", "echo", "--a b")
    result = subprocess.run(start, capture_output=True, text=True, check=True)
    assert result.stdout == f"--a b --master_addresses={listed}\n"


def test_tablet_servers_report_to_spare_masters_and_first_masters_do_not_add_themselves(place):
    del place
    nodes = {n.name: n for n in ApacheKuduTarget().nodes(settings(masters=1, spare_masters=2))}
    assert flags_of(nodes["m1"])["master_auto_join_cluster"] == "false"
    told = flags_of(nodes["t1"])["tserver_master_addrs"]
    assert told == ",".join(f"{{address:m{number}:7051}}" for number in (1, 2, 3))


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
