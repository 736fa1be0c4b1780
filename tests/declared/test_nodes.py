"""Nodes that are declared by a command line with placeholders, ports and a readiness check."""

import re

import pytest

from harness.cluster import ReadyCommand, ReadyHttp, ReadyLog, ReadyPort
from harness.errors import UsageError
from harness.nodes.program import import_folders
from harness.plugins import TargetSettings
from targets.declared import DeclaredTarget
from tests.declared.support import CLIENT, NODES, OPERATIONS, declaration, kept

HELPER = """\
[client]
protocol = "program"
port = 8080
command = "python3 helper.py {host} {port}"
vocabularies = ["register"]
"""


def nodes_of(folder, text, environment="process", **files):
    options = kept(folder, text, **files)
    settings = TargetSettings(
        profile="strict", bugs=(), options=options, environment=environment, vocabulary="register"
    )
    return DeclaredTarget().nodes(settings)


def test_every_node_gets_its_own_words(tmp_path):
    nodes = """\
[nodes]
count = 2
command = "etcd --name {name} --id {number} --me {address:2380} --data {data} --all {members}"
environment = { PEERS = "{urls}", ID = "{number}", ON = 1, ME = "{address}" }
files = { "a.conf" = "server {host}:{port:2379}" }
each.members = "{name}=http://{address:2380}"
each.urls = { each = "{number}@{host}", between = " " }
"""
    first, second = nodes_of(tmp_path, declaration(nodes=nodes))

    assert (first.name, second.name) == ("n1", "n2")
    everyone = "n1=http://{address:n1:2380},n2=http://{address:n2:2380}"
    assert second.command == (
        *("etcd", "--name", "{name}", "--id", "2", "--me", "{address:n2:2380}"),
        *("--data", "{data}", "--all", everyone),
    )
    assert second.environment == {
        "PEERS": "1@{host:n1} 2@{host:n2}",
        "ID": "2",
        "ON": "1",
        "ME": "{host:n2}",
    }
    assert first.files == {"a.conf": "server {host}:{port:2379}"}
    # the client's port, and all ports in placeholders
    assert set(first.ports) == {8080, 2380, 2379}
    assert first.faulty_disk  # its data folder is on a disk that power cuts affect
    assert first.ready == ReadyPort(8080)


def test_clients_use_the_only_port_that_the_nodes_bind(tmp_path):
    text = declaration(client='[client]\nprotocol = "http"\n')
    nodes = nodes_of(tmp_path, text)
    assert nodes[0].ready == ReadyPort(8080)


def test_a_script_beside_the_file_is_named_with_its_folder(tmp_path):
    nodes = '[nodes]\ncommand = "python3 server.py {port:8080}"\n'
    (tmp_path / "server.py").touch()
    with pytest.raises(UsageError, match=r"'\./server\.py'"):
        nodes_of(tmp_path, declaration(nodes=nodes))
    (node,) = nodes_of(tmp_path, declaration(nodes=nodes.replace("server", "./server")))
    assert node.command[1] == str(tmp_path / "server.py")
    (tmp_path / "server.py").unlink()
    # now taken as a path in the node's own folder
    (node,) = nodes_of(tmp_path, declaration(nodes=nodes))
    assert node.command[1] == "server.py"


PROGRAM = '[nodes]\ncommand = "python:shop.app:main --port {port:8080}"\n'


def test_a_python_program_is_looked_up_beside_the_file_or_in_the_folders_it_names(tmp_path):
    (node,) = nodes_of(tmp_path, declaration(nodes=PROGRAM), "sim")
    assert node.command == ("python:shop.app:main", "--port", "{port:8080}")
    assert import_folders(node) == (str(tmp_path),)

    named = PROGRAM + 'environment.PYTHONPATH = "src:/opt/lib"\n'
    (node,) = nodes_of(tmp_path, declaration(nodes=named))
    assert import_folders(node) == (str(tmp_path / "src"), "/opt/lib")


@pytest.mark.parametrize(
    ("nodes", "client", "environment", "named"),
    [
        (PROGRAM, CLIENT, "docker", "nodes.command runs 'python:shop.app:main'"),
        (PROGRAM.replace(":main", ""), CLIENT, "sim", "nodes.command is malformed"),
        (PROGRAM, HELPER, "sim", "client.protocol is 'program'"),
    ],
)
def test_a_python_program_where_it_cannot_run_is_refused(
    tmp_path, nodes, client, environment, named
):
    operations = "" if client is HELPER else OPERATIONS
    with pytest.raises(UsageError, match="line [0-9]+.*" + re.escape(named)):
        nodes_of(
            tmp_path, declaration(nodes=nodes, client=client, operations=operations), environment
        )


def test_a_node_without_a_data_folder_has_no_faulty_disk(tmp_path):
    assert not nodes_of(tmp_path, declaration())[0].faulty_disk


def test_tables_of_nodes_have_roles_and_know_each_other(tmp_path):
    nodes = """\
[[nodes]]
names = ["main"]
role = "db"
command = "server --port {port:5432}"
[[nodes]]
role = "app"
count = 2
after = ["main"]
command = "app {port:8080} {peer:main:5433}"
"""
    main, *apps = nodes_of(tmp_path, declaration(nodes=nodes))

    assert (main.role, main.ports) == ("db", (5432, 5433))
    assert [(node.name, node.role, node.ports) for node in apps] == [
        ("app1", "app", (8080,)),
        ("app2", "app", (8080,)),
    ]
    assert apps[0].after == ("main",)


@pytest.mark.parametrize(
    ("written", "ready"),
    [
        ('"GET /health"', ReadyHttp(8080, "/health", 5.0)),
        ('"GET :9000/health?x=1"', ReadyHttp(9000, "/health?x=1", 5.0)),
        ('"port 9000"', ReadyPort(9000, 5.0)),
        ('"log ready .*"', ReadyLog("ready .*", 5.0)),
        ('["ping", "{port:8080}"]', ReadyCommand(("ping", "{port:8080}"), 5.0)),
    ],
)
def test_readiness_is_a_request_a_port_a_line_or_a_command(tmp_path, written, ready):
    nodes = f"{NODES}ready = {written}\nready-within = 5\nports = [9000]\n"
    assert nodes_of(tmp_path, declaration(nodes=nodes))[0].ready == ready


def test_a_program_beside_the_file_is_found_from_everywhere(tmp_path):
    text = declaration(nodes=NODES.replace('"server', '"./bin/server'))

    assert nodes_of(tmp_path, text)[0].command[0] == str(tmp_path / "bin" / "server")
    with pytest.raises(UsageError, match="not in a container"):
        nodes_of(tmp_path, text, environment="docker")


def test_docker_needs_an_image_for_a_program_of_the_machine(tmp_path):
    with pytest.raises(UsageError, match=r"line 3.*'server'.*`package`"):
        nodes_of(tmp_path, declaration(), environment="docker")


def test_a_package_makes_an_image_for_docker_only(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = declaration(nodes=f'{NODES}package = "redis-server"\n')

    node = nodes_of(tmp_path, text, environment="docker")[0]
    assert "install --yes --no-install-recommends redis-server" in (
        (tmp_path / "cache/catalog-harness/packages/redis-server/Dockerfile").read_text()
    )
    assert node.dockerfile.endswith("/redis-server")
    assert nodes_of(tmp_path, text)[0].dockerfile is None
    assert nodes_of(tmp_path, text)[0].debian_package == "redis-server"
