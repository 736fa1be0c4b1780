"""Compose files are read as declarations of nodes, key by key."""

import pytest

from harness.cluster import ReadyCommand, ReadyPort
from harness.errors import UsageError
from harness.plugins import TargetSettings
from targets.declared import DeclaredTarget
from tests.declared.support import declaration, kept

FILE = """\
version: "3.8"
x-common: &common
  image: registry/server:${TAG:-7}
  restart: always
  environment: &environment
    LEVEL: info
    COST: 5$$
services:
  a:
    <<: *common
    container_name: server-a
    entrypoint: ["/bin/server", "--verbose"]
    command: --data /var/lib/server --peers "b c"
    environment:
      <<: *environment
      LEVEL: debug
      FROM_SHELL:
    env_file: a.env
    volumes:
      - data-a:/var/lib/server
      - ./conf/server.conf:/etc/server.conf:ro
      - {type: bind, source: ./scripts, target: /scripts}
    ports: ["18080:8080", "53:53/udp", "127.0.0.1:9000-9001:9000-9001"]
    expose: ["7000"]
    healthcheck: {test: ["CMD", "server", "ping"], interval: 20s, retries: 6, start_period: 1m30s}
    user: "999:999"
    working_dir: /srv
    stop_signal: SIGINT
    mem_limit: 512m
    cpus: 0.5
    networks: {inner: {aliases: [primary]}}
  b:
    <<: *common
    depends_on: {a: {condition: service_healthy}}
    ports: ["8080"]
    networks: [inner]
    deploy: {resources: {limits: {memory: 1g, cpus: "2"}}}
  c:
    image: grafana
    profiles: [debug]
  d:
    image: dashboard
networks: {inner: {}}
volumes: {data-a: {}}
"""
FILES = {
    "a__env": "# comment\nPASSWORD='x y'\nLEVEL=trace\nexport PLAIN=1 # one\n",
    "conf/server__conf": "port 8080\n",
    "scripts/start__sh": "#!/bin/sh\n",
    "scripts/deep/more": "text",
}
TEXT = declaration(
    top='compose = "compose.yaml"\nwithout = ["d"]\nroles = { main = ["a"] }', nodes=""
)


def nodes_of(folder, text, environment="docker", **files):
    options = kept(folder, text, **files)
    settings = TargetSettings(
        profile="strict", bugs=(), options=options, environment=environment, vocabulary="register"
    )
    return {node.name: node for node in DeclaredTarget().nodes(settings)}


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    monkeypatch.delenv("TAG", raising=False)
    monkeypatch.setenv("FROM_SHELL", "yes")
    return nodes_of(tmp_path, TEXT, compose__yaml=FILE, **FILES)


def test_services_are_nodes_except_those_left_out(nodes):
    assert list(nodes) == ["a", "b"]
    assert [node.role for node in nodes.values()] == ["main", "node"]


def test_keys_without_a_meaning_are_noted_once(tmp_path, caplog):
    nodes_of(tmp_path, TEXT, compose__yaml=FILE, **FILES)

    (record,) = caplog.records
    assert record.message.startswith("compose.yaml: not used: `restart` of a, b (")
    assert "`ports of UDP` of a (" in record.message


def test_images_commands_and_entry_points(nodes):
    first, second = nodes["a"], nodes["b"]
    assert first.image == "registry/server:7"
    assert first.command == ("--data", "/var/lib/server", "--peers", "b c")
    assert first.container.entrypoint == ("/bin/server", "--verbose")
    assert (second.command, second.container.entrypoint) == ((), None)
    assert (first.user, first.container.working_folder) == ("999:999", "/srv")
    assert first.stop_signal == "SIGINT"


def test_variables_come_from_files_the_service_and_the_shell(nodes):
    assert nodes["a"].environment == {
        "PASSWORD": "x y",
        "PLAIN": "1",
        "COST": "5$",
        "LEVEL": "debug",
        "FROM_SHELL": "yes",
    }
    assert nodes["b"].environment == {"LEVEL": "info", "COST": "5$"}


def test_a_volume_is_the_data_and_binds_are_files(nodes):
    inside = nodes["a"].container
    assert inside.data == "/var/lib/server"
    assert inside.files == {
        "/etc/server.conf": "port 8080\n",
        "/scripts/start.sh": "#!/bin/sh\n",
        "/scripts/deep/more": "text",
    }
    assert nodes["a"].faulty_disk
    assert not nodes["b"].faulty_disk
    assert nodes["b"].container.data is None


def test_ports_order_and_readiness(nodes):
    first, second = nodes["a"], nodes["b"]
    assert first.ports == (8080, 9000, 9001, 7000)
    # a start period of 90 s, and 6 tries of 20 s
    assert first.ready == ReadyCommand(("server", "ping"), 210.0)
    assert (second.after, second.ready) == (("a",), ReadyPort(8080))


def test_limits_and_other_names(nodes):
    assert (nodes["a"].memory_mib, nodes["a"].cpus) == (512, 0.5)
    assert (nodes["b"].memory_mib, nodes["b"].cpus) == (1024, 2.0)
    assert nodes["a"].container.aliases == ("server-a", "primary")


def test_the_shell_wins_over_the_file_of_variables(tmp_path, monkeypatch):
    image = "${A}-${B-none}-${C:+set}-${B:-${D:-${A}$$}}"
    compose = f"services:\n  a:\n    image: '{image}'\n    ports: [8080]\n"
    files = {"__env": "A=file\nC=file\n", "compose__yaml": compose}
    monkeypatch.setenv("A", "shell")
    monkeypatch.delenv("B", raising=False)
    monkeypatch.delenv("C", raising=False)
    monkeypatch.delenv("D", raising=False)
    text = declaration(top='compose = "compose.yaml"', nodes="")

    assert nodes_of(tmp_path, text, **files)["a"].image == "shell-none-set-shell$"


def test_paths_are_relative_to_the_compose_file(tmp_path):
    compose = (
        "services:\n  a:\n    image: s\n    ports: [8080]\n    env_file: [a.env]\n"
        "    volumes: ['../x.conf:/etc/x', './data:/data']\n"
    )
    text = declaration(top='compose = "deploy/compose.yaml"', nodes="")
    files = {"deploy/compose__yaml": compose, "deploy/a__env": "A=1", "x__conf": "x"}

    node = nodes_of(tmp_path, text, **files)["a"]
    assert node.environment == {"A": "1"}
    assert node.container.files == {"/etc/x": "x"}
    assert node.container.data == "/data"  # a mounted folder that does not exist yet is for data


def test_declared_data_win_over_volumes(tmp_path):
    compose = "services:\n  a: {image: s, ports: [8080], volumes: ['v:/one', '/two']}\n"
    text = declaration(top='compose = "compose.yaml"\ndata = { a = "/two" }', nodes="")

    assert nodes_of(tmp_path, text, compose__yaml=compose)["a"].container.data == "/two"


@pytest.mark.parametrize("environment", ["process", "sim"])
def test_only_docker_runs_containers(tmp_path, environment):
    compose = "services:\n  a: {image: s, ports: [8080]}\n"
    text = declaration(top='compose = "compose.yaml"', nodes="")

    with pytest.raises(UsageError, match=r"system.toml, line 1, .*use --env docker"):
        nodes_of(tmp_path, text, environment, compose__yaml=compose)


def test_texts_of_a_compose_file_have_no_placeholders(tmp_path):
    compose = "services:\n  a: {image: s, ports: [8080], command: [awk, '{print}', '{name}']}\n"
    text = declaration(top='compose = "compose.yaml"', nodes="")

    node = nodes_of(tmp_path, text, compose__yaml=compose)["a"]
    assert node.command == ("awk", "{print}", "{name}")


def test_many_anchors_are_bounded(tmp_path):
    layers = ["x-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]"]
    layers += [f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 9)]
    compose = "\n".join([*layers, "services: {a: {image: s, ports: [8080]}}"])
    text = declaration(top='compose = "compose.yaml"', nodes="")

    with pytest.raises(UsageError, match="more than 50000 values"):
        nodes_of(tmp_path, text, compose__yaml=compose)
