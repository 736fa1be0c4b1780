"""`harness init --compose` drafts a declaration from a Compose file, and asks for the rest."""

import io
import tomllib
from pathlib import Path

import pytest
import yaml

from harness.cli import main
from harness.errors import EXIT_CRASH, EXIT_USAGE, EXIT_VALID
from harness.plugins import TargetSettings
from targets.declared import DeclaredTarget

LINES_MAX = 30


def services(*names, **keys):
    """Build services with these names and equal keys; NAME stands for the service's name."""
    return {
        name: {
            key: value.replace("NAME", name) if isinstance(value, str) else value
            for key, value in keys.items()
        }
        for name in names
    }


ETCD = services(
    *("e1", "e2", "e3"),
    image="quay.io/coreos/etcd:v3.5.7",
    command="etcd --name NAME --data-dir /data --listen-client-urls http://0.0.0.0:2379",
    volumes=["/etc/more", "/data"],
    ports=["2379", "2380"],
)
SENTINELS = {
    "main": {"image": "redis:7", "command": "redis-server --requirepass secret"},
    "copy": {"image": "redis:7", "command": "redis-server --replicaof main 6379"},
    **services(
        *("s1", "s2", "s3"),
        image="redis:7",
        entrypoint=["sh", "-c", "echo sentinel monitor shop main 6379 2 > c && redis-sentinel c"],
    ),
    "admin": {"image": "rediscommander/redis-commander", "depends_on": ["main"]},
}
ZOOKEEPER = services(
    *("z1", "z2"),
    image="zookeeper:3.9",
    environment={"ZOO_MY_ID": 1, "ZOO_SERVERS": "server.1=z1:2888:3888;2181"},
    volumes=["/data", "/datalog"],
)
PATRONI = {
    **services("etcd", image="patroni", command="etcd --name NAME"),
    **services(
        *("db1", "db2"),
        image="patroni",
        environment={
            "PATRONI_ETCD3_HOSTS": "'etcd:2379'",
            "PATRONI_SUPERUSER_USERNAME": "admin",
            "PATRONI_SUPERUSER_PASSWORD": "pw",
        },
    ),
    "haproxy": {"image": "patroni", "command": "haproxy", "ports": ["5000"]},
}
POSTGRES = services(
    *("db", "copy"),
    image="postgres:15",
    environment=["POSTGRES_USER=me", "POSTGRES_PASSWORD=pw"],
    ports=["5432"],
    healthcheck={"test": "pg_isready"},
)
MYSQL = services(
    "db",
    image="mariadb",
    environment={"MARIADB_ROOT_PASSWORD": "pw", "MARIADB_DATABASE": "shop"},
)
APP = {
    "app": {"image": "registry/shop", "ports": ["8080"], "depends_on": ["db"]},
    **services("db", image="postgres", environment={"POSTGRES_HOST_AUTH_METHOD": "trust"}),
    "migrate": {"image": "registry/shop", "command": "migrate"},
}
HTTP = services(
    *("a1", "a2"),
    image="registry/shop",
    ports=["9000", "8080"],
    healthcheck={"test": ["CMD", "curl", "-f", "http://localhost:8080/health"]},
)
NODES = ("client", "nodes")
# Name -> (services, values of the written file by path, services that become nodes).
FILES = {
    "etcd": (
        ETCD,
        {("client", "protocol"): "etcd", ("client", "port"): 2379, ("data",): "/data"},
        "e1 e2 e3",
    ),
    "redis with Sentinels": (
        SENTINELS,
        {
            ("client", "sentinels"): ["s1:26379", "s2:26379", "s3:26379"],
            ("client", "master"): "shop",
            ("client", "password"): "secret",
            ("roles", "sentinel"): ["s1", "s2", "s3"],
            ("without",): ["admin"],
            NODES: ["main", "copy"],
        },
        "main copy s1 s2 s3",
    ),
    "zookeeper": (
        ZOOKEEPER,
        {("client", "protocol"): "zookeeper", ("data",): "/datalog", NODES: ["z1", "z2"]},
        "z1 z2",
    ),
    "postgres under patroni": (
        PATRONI,
        {
            ("client", "protocol"): "postgres",
            ("client", "user"): "admin",
            ("client", "password"): "pw",
            ("roles", "etcd"): ["etcd"],
            ("without",): ["haproxy"],
            NODES: ["db1", "db2"],
        },
        "etcd db1 db2",
    ),
    "postgres": (
        POSTGRES,
        {
            ("quorum",): "all",
            ("client", "user"): "me",
            ("client", "password"): "pw",
            ("client", "database"): "me",
        },
        "db copy",
    ),
    "mariadb": (
        MYSQL,
        {
            ("client", "protocol"): "mysql",
            ("client", "user"): "root",
            ("client", "password"): "pw",
            ("client", "database"): "shop",
            ("nemeses",): ["kill", "pause"],
        },
        "db",
    ),
    "a database and its application": (
        APP,
        {("client", "protocol"): "postgres", ("without",): ["app", "migrate"]},
        "db",
    ),
    "an application with the variables of its database": (
        {
            "cloud": {
                "image": "nextcloud",
                "ports": ["80"],
                "environment": {"MYSQL_USER": "me", "MYSQL_PASSWORD": "pw"},
            },
            **MYSQL,
        },
        {("client", "protocol"): "mysql", ("without",): ["cloud"]},
        "db",
    ),
    "peers that publish no port": (
        {
            "s1": {"image": "registry/search", "ports": ["9200"]},
            **services("s2", "s3", image="registry/search"),
        },
        {("client", "port"): 9200, NODES: ["s1", "s2", "s3"]},
        "s1 s2 s3",
    ),
    "http": (
        HTTP,
        {
            ("client", "protocol"): "http",
            ("client", "port"): 8080,
            ("operations", "read"): {"request": "GET /{key}", "nothing": 404},
            ("operations", "write"): "PUT /{key} {value}",
        },
        "a1 a2",
    ),
    "consul": (
        services("c1", "c2", "c3", image="hashicorp/consul:1.11", command="agent -server"),
        {("client", "protocol"): "http", ("operations", "read", "value"): "0.Value"},
        "c1 c2 c3",
    ),
    "an image without a name that says more": (
        services("m1", image="registry/cache", ports=["11211"]),
        {("client", "protocol"): "memcached"},
        "m1",
    ),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def compose(table, name="compose.yaml", **more):
    Path(name).write_text(yaml.safe_dump({"services": table, **more}, sort_keys=False))


def init(*arguments):
    return main(["init", "--compose", "compose.yaml", *arguments])


def written():
    return tomllib.loads(Path("harness.toml").read_text())


def assumed():
    """Return the keys of the lines that are marked as assumed."""
    lines = Path("harness.toml").read_text().splitlines()
    return [line.partition(" ")[0] for line in lines if "# assumed" in line]


def at(values, path):
    for key in path:
        values = values.get(key, {})
    return values


@pytest.mark.parametrize("name", FILES)
def test_the_file_shows_all_that_the_declaration_needs(name, tmp_path, capsys):
    table, values, nodes = FILES[name]
    compose(table)

    assert init("--yes") == EXIT_VALID

    declared = written()
    assert {path: at(declared, path) for path in values} == values
    assert len((tmp_path / "harness.toml").read_text().splitlines()) <= LINES_MAX
    options = DeclaredTarget().read_file(tmp_path / "harness.toml")
    settings = TargetSettings(profile="strict", bugs=(), options=options, environment="docker")
    assert [spec.name for spec in DeclaredTarget().nodes(settings)] == nodes.split()
    assert main(["run", "--dry-run"]) == EXIT_VALID
    assert yaml.safe_load((tmp_path / ".github/workflows/harness.yml").read_text())["jobs"]


def test_every_assumption_is_a_comment_and_a_line_of_the_output(capsys):
    compose(HTTP)

    assert init("--yes") == EXIT_VALID

    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "assumed" in line]) == 5
    assert assumed() == ["nemeses", "time-limit", "read", "write"]


STATED = {"mysql": {**MYSQL["db"], "environment": {"MARIADB_ROOT_PASSWORD": "pw"}}}
TWO_FOLDERS = services("m1", image="memcached", volumes=["/x", "/y"])
# Name -> (services, options, keys whose lines have an unusual comment).
ASSUMPTIONS = {
    "a tool": (SENTINELS, (), {"without"}),
    "a service that the user leaves out": (SENTINELS, ("--without=admin",), set()),
    "no password": (services("db", image="postgres"), (), {"password"}),
    "no database": (STATED, (), {"database"}),
    "no password because none is needed": (APP, ("--without=app,migrate",), set()),
    "two ports": (services("a", image="shop", ports=["90", "80"]), (), {"port", "read", "write"}),
    "two folders": (TWO_FOLDERS, (), {"data"}),
}


@pytest.mark.parametrize("name", ASSUMPTIONS)
def test_every_assumed_line_says_so(name):
    table, options, keys = ASSUMPTIONS[name]
    compose(table)

    assert init("--yes", *options) == EXIT_VALID

    assert set(assumed()) - {"nemeses", "time-limit", "quorum"} == keys


def test_an_assumption_within_an_answer_marks_its_line(monkeypatch):
    compose(HTTP)
    lines = ["GET /x/{key}", "data.value", "", "PUT /x/{key} {value}", "", ""]
    monkeypatch.setattr("sys.stdin", Terminal("\n".join(lines) + "\n"))

    assert init() == EXIT_VALID

    assert assumed() == ["nemeses", "time-limit", "read"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_is_asked_for_the_rest(monkeypatch, capsys):
    compose({**APP, "cache": {"image": "memcached"}})
    lines = ["redis", "postgres", "ap", "app, migrate", ""]
    monkeypatch.setattr("sys.stdin", Terminal("\n".join(lines) + "\n"))

    assert init() == EXIT_VALID

    declared = written()
    assert declared["without"] == ["cache"]
    assert declared["roles"] == {"app": ["app"], "migrate": ["migrate"]}
    asked = [line for line in capsys.readouterr().err.splitlines() if line.endswith(":")]
    assert [line.startswith(("'redis'", "'ap'")) for line in asked] == [*(False, True, False, True)]


def test_a_terminal_that_ends_writes_nothing(tmp_path, monkeypatch, capsys):
    compose(HTTP)
    monkeypatch.setattr("sys.stdin", Terminal(""))

    assert init() == EXIT_USAGE
    assert not (tmp_path / "harness.toml").exists()


def test_answers_describe_an_http_service(monkeypatch):
    compose(HTTP)
    lines = [
        "read /x",
        "GET /x/{key}",
        "data.value",
        "204",
        "PUT /x/{key} {value}",
        "GET /me",
        "ok",
    ]
    monkeypatch.setattr("sys.stdin", Terminal("\n".join(lines) + "\n"))

    assert init() == EXIT_VALID

    read = {"request": "GET /x/{key}", "nothing": 204, "value": "data.value"}
    assert written()["operations"] == {"read": read, "write": "PUT /x/{key} {value}"}
    assert written()["leader"] == {"probe": "GET /me", "leads": "ok"}


def test_a_folder_that_cannot_be_made_leaves_no_file_behind(tmp_path):
    compose(ETCD)
    (tmp_path / ".github").touch()

    assert init("--yes") == EXIT_CRASH
    assert not (tmp_path / "harness.toml").exists()


@pytest.mark.parametrize("present", ["harness.toml", ".github/workflows/harness.yml"])
def test_no_file_is_overwritten(present, tmp_path):
    compose(ETCD)
    assert init("--yes") == EXIT_VALID
    for path in (tmp_path / "harness.toml", tmp_path / ".github/workflows/harness.yml"):
        if not path.match(f"*/{present}"):
            path.unlink()
    (tmp_path / present).write_text("mine")

    assert init("--yes") == EXIT_USAGE
    assert (tmp_path / present).read_text() == "mine"
    assert len(list(tmp_path.rglob("harness.*"))) == 1
    assert init("--yes", "--force") == EXIT_VALID
    assert (tmp_path / present).read_text() != "mine"


# Name -> (services, options, words of the message).
WRONG = {
    "no server": ({"ui": {"image": "grafana/grafana"}}, (), ["no service looks like a server"]),
    "a server without a protocol here": (
        services("m1", image="mongo:7", ports=["27017"]),
        (),
        ["mongo", '"program"'],
    ),
    "an unsupported feature": (
        services("e1", image="etcd", tmpfs=["/tmp"]),
        (),
        ["compose.yaml, line ", "`tmpfs:`", "tmpfs is not supported"],
    ),
    "TLS": (
        services("e1", image="etcd", command="etcd --listen-client-urls https://0.0.0.0:2379"),
        (),
        ["e1", "https://0.0.0.0:2379"],
    ),
    "etcd with a password": (
        services("e1", image="bitnami/etcd", environment={"ETCD_ROOT_PASSWORD": "x"}),
        (),
        ["ETCD_ROOT_PASSWORD"],
    ),
    "no such service": (ETCD, ("--without", "e4"), ["'e4'", "e1"]),
    "a volume for two": (
        services("e1", "e2", image="etcd", volumes=["data:/data"]),
        (),
        ["compose.yaml, line", "'data'"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_impossible_file_is_one_clear_line(name, tmp_path, capsys):
    table, arguments, words = WRONG[name]
    compose(table)

    assert init("--yes", *arguments) == EXIT_USAGE

    message = capsys.readouterr().err
    assert len(message.splitlines()) == 1
    assert [word for word in words if word not in message] == []
    assert not (tmp_path / "harness.toml").exists()


def test_a_service_left_out_may_have_any_feature(tmp_path):
    odd = {"image": "registry/odd", "privileged": True, "secrets": ["key"]}
    compose({**ETCD, "odd": odd}, secrets={"key": {"file": "key"}})

    assert init("--yes", "--without", "odd") == EXIT_VALID
    assert written()["without"] == ["odd"]


def test_a_dockerfile_shows_the_server(tmp_path):
    (tmp_path / "image").mkdir()
    (tmp_path / "image/Dockerfile").write_text(
        "FROM debian\nRUN apt-get install \\\n  etcd-server\n"
    )
    compose(services("n1", "n2", "n3", build="./image", command="./start.sh"))

    assert init("--yes") == EXIT_VALID
    assert written()["client"]["protocol"] == "etcd"


@pytest.mark.parametrize("option", ["--yes", "--without=a"])
def test_options_of_compose_need_it(option):
    assert main(["init", option]) == EXIT_USAGE
