"""Runs against apache-kudu accept or refuse the option `--client java`."""

import msgspec
import pytest

from harness.errors import UsageError
from harness.plugins import Deployment, TargetSettings
from harness.plugins.options import with_defaults
from targets.apache_kudu import ApacheKuduTarget
from targets.apache_kudu.javaclient.client import JavaClient
from targets.kudu import KuduTarget
from targets.kudu.client import KuduClient
from tests.apache_kudu.test_target import settings
from tests.support.env import FakeEnv


@pytest.mark.usefixtures("place", "java_client")
@pytest.mark.parametrize(("name", "kind"), [("native", KuduClient), ("java", JavaClient)])
def test_the_system_has_the_chosen_client(name, kind):
    chosen = settings(client=name)
    nodes = {node.name: node for node in ApacheKuduTarget().nodes(chosen)}
    system = ApacheKuduTarget().open(Deployment(FakeEnv(), chosen, nodes))
    assert isinstance(system.client(1), kind)


def test_clients_that_do_not_exist_are_refused():
    with pytest.raises(UsageError, match=r"--client is 'jav'.*java"):
        settings(client="jav")


@pytest.mark.usefixtures("place", "java_client")
def test_the_java_client_is_refused_where_it_cannot_work():
    mixed = msgspec.structs.replace(settings(client="java"), vocabulary="mixed")
    with pytest.raises(UsageError, match="--workload ddl"):
        ApacheKuduTarget().nodes(mixed)
    with pytest.raises(UsageError, match="--env process"):
        ApacheKuduTarget().nodes(settings("docker", client="java"))


def bundled(profile="modern", environment="process", **options):
    values = with_defaults("target", "kudu", KuduTarget.options, {"client": "java", **options})
    return TargetSettings(profile=profile, bugs=(), options=values, environment=environment)


@pytest.mark.usefixtures("java_client")
def test_bundled_servers_have_the_java_client_behind_a_gateway():
    chosen = bundled()
    nodes = {node.name: node for node in KuduTarget().nodes(chosen)}
    system = KuduTarget().open(Deployment(FakeEnv(), chosen, nodes))
    assert isinstance(system.client(1), JavaClient)


@pytest.mark.usefixtures("java_client")
def test_a_dry_run_knows_no_environment():
    assert KuduTarget().nodes(bundled(environment=None))


@pytest.mark.parametrize(
    ("chosen", "fix"),
    [
        (bundled(environment="sim"), "--env process"),
        (bundled(environment="docker"), "--env process"),
        (bundled("strict"), "--profile modern"),
        (bundled(hms=True), "--hms"),
        (msgspec.structs.replace(bundled(), vocabulary="mixed"), "--workload ddl"),
    ],
)
def test_bundled_servers_refuse_what_the_java_client_cannot_do(chosen, fix):
    with pytest.raises(UsageError, match=fix):
        KuduTarget().nodes(chosen)


def test_the_client_must_be_fetched_first(place, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    with pytest.raises(UsageError, match=r"harness fetch kudu-client|Java"):
        ApacheKuduTarget().nodes(settings(client="java"))
