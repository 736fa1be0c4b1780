"""A wrong declaration is refused before anything starts. The error is one line with the place."""

import pytest

from tests.declared.support import CLIENT, NODES, OPERATIONS, declaration, refused

TOML, COMPOSE = "system.toml", "compose.yaml"
ONE_LINE_MAX = 500


def wrong(line, *quoted, replaced=None, added="", files=None, **parts):
    """Build a wrong declaration, with the line and the quoted words that its refusal must name.

    `replaced` and `added` change `[nodes]`.
    """
    if replaced or added:
        parts["nodes"] = NODES.replace(*(replaced or ("", ""))) + (f"{added}\n" if added else "")
    return declaration(**parts), files or {}, (TOML, line), quoted


def of_client(line, *quoted, client):
    return wrong(line, *quoted, client=f"[client]\n{client}\n")


def of_leader(line, *quoted, leads, more=""):
    return wrong(line, *quoted, more=f'[leader]\nprobe = "GET /"\nleads = "{leads}"\n{more}')


def composed(line, services, *quoted, file=COMPOSE, top=""):
    text = declaration(top=f'compose = "compose.yaml"\n{top}', nodes="")
    return text, {"compose__yaml": f"services:\n{services}"}, (file, line), quoted


def port(written):
    return "{port:8080}", f"{{port:{written}}}"


SERVICE = "  a:\n    image: server\n    ports: ['8080']\n"
PORTLESS = {"client": '[client]\nprotocol = "http"\n'}
FROM = 'files = { "a.conf" = { from = "b.conf" } }'
WRONG = {
    "no such key": wrong(1, "naem", "did you mean name?", top='naem = "x"'),
    "no such key of nodes": wrong(4, "nodes.comand", "command", added='comand = "x"'),
    "no such key of the leader": of_leader(
        17, "leader.trem", "did you mean term?", leads="x", more='trem = "y"'
    ),
    "a name with a slash": wrong(1, "'a/b'", top='name = "a/b"'),
    "a name of imported runs": wrong(1, "imported", top='name = "imported"'),
    "a key is missing": of_client(5, "'protocol'", client="port = 1"),
    "no client": wrong(None, "[client] is missing", client=""),
    "unknown protocol": of_client(
        6, "'htpt'", "did you mean http?", client='protocol = "htpt"\nport = 1'
    ),
    "no setting of the protocol": wrong(
        None, "client", "pasword", client=CLIENT + 'pasword = "x"\n'
    ),
    "no port, and a placeholder without one": wrong(
        5, "client.port is missing", replaced=("{port:8080}", "{port}"), **PORTLESS
    ),
    "no port": wrong(
        5, "client.port is missing", replaced=("count = 3", "ports = [9000]"), **PORTLESS
    ),
    "a number as text": wrong(2, "nodes.count", "a whole number", replaced=("3", '"3"')),
    "syntax": wrong(1, "name = etcd", "texts in quotes", top="name = etcd"),
    "a text that is not closed": wrong(1, "write it as TOML", top='name = "a'),
    "neither nodes nor compose": wrong(None, "both missing", "[nodes]", nodes=""),
    "both nodes and compose": wrong(1, "both", "[nodes]", top='compose = "compose.yaml"'),
    "roles of services, but no services": wrong(
        1, "roles", "`role`", top='roles = { db = ["n1"] }'
    ),
    "a folder of containers, but no containers": wrong(1, "data", "{data}", top='data = "/var/db"'),
    "no node": wrong(2, "nodes.count is 0", replaced=("3", "0")),
    "a name twice": wrong(2, "'n1' twice", replaced=("count = 3", 'names = ["n1", "n1"]')),
    "a name in two tables": wrong(
        4, "a second node 'n1'", nodes=NODES.replace("[nodes]", "[[nodes]]") * 2
    ),
    "a name that no node can have": wrong(2, "'a b'", replaced=("count = 3", 'names = ["a b"]')),
    "no command": wrong(1, "command", "image", nodes="[nodes]\ncount = 3\n"),
    "unknown placeholder": wrong(
        3, "{prot:8080}", "did you mean port?", replaced=("{port:", "{prot:")
    ),
    "unknown node in a placeholder": wrong(
        3, "{address:n7:9000}", "'n7'", replaced=("address:n1", "address:n7")
    ),
    "a port that is none": wrong(3, "{port:http}", replaced=port("http")),
    "a port in other digits": wrong(3, "{port:8²}", replaced=port("8²")),
    "a port with a thousand digits": wrong(3, "a port in 1 .. 65535", replaced=port("9" * 5000)),
    "readiness of a port in other digits": wrong(4, "'port 8²'", added='ready = "port 8²"'),
    "readiness of no port": wrong(4, "'port'", "port 8080", added='ready = "port"'),
    "a pipe without a shell": wrong(
        3, "'|'", '["sh", "-c"', replaced=("server", "server | tee log")
    ),
    "a quote that is not closed": wrong(3, "close the quote", replaced=("server", "server 'x")),
    "readiness": wrong(4, "'GET health'", "port 8080", added='ready = "GET health"'),
    "readiness of another port": wrong(
        4, "8081", "[8080, 9000]", added='ready = "GET :8081/health"'
    ),
    "a file that is missing": wrong(4, "'b.conf' does not exist", added=FROM),
    "a file that is not a text": wrong(
        4, "b.conf", "not UTF-8", added=FROM, files={"b__conf": b"\xff\x00"}
    ),
    "a package that cannot be": wrong(4, "'a b'", added='package = "a b"'),
    "a cycle of starts": wrong(None, "after", added='after = ["n2"]'),
    "clients of no node": wrong(8, "'n4'", "n1, n2, n3", client=CLIENT + 'nodes = ["n4"]\n'),
    "no such operation": wrong(
        10, "operations.raed", operations=OPERATIONS.replace("read", "raed")
    ),
    "an argument that an operation lacks": wrong(
        11, "operations.write", "{valeu}", operations=OPERATIONS.replace("{value}}", "{valeu}}")
    ),
    "a leader without a condition": of_leader(
        16, "'is leader!'", "regular expression", leads="is leader!"
    ),
    "a regular expression that is none": of_leader(
        16, "'/(/'", "not a regular expression", leads="/(/"
    ),
    "a leader at a port of no node": of_leader(17, "leader.port is 7", leads="x", more="port = 7"),
    "a quorum above all": wrong(1, "quorum is 4", "1 .. 3", top="quorum = 4"),
    "a quorum in words": wrong(1, "'most'", "majority", top='quorum = "most"'),
    "no Compose file": (composed(1, "")[0], {}, (TOML, 1), ["'compose.yaml' does not exist"]),
    "no YAML": composed(3, "  a: [\n", "write it as YAML"),
    "no service": composed(None, "  {}\n", "services", "write one service"),
    "a service without an image": composed(
        2, "  a:\n    command: server\n", "services.a", "`image`"
    ),
    "a feature that is lacking": composed(
        5,
        SERVICE + "    cap_add: [NET_ADMIN]\n",
        *("services.a.cap_add", "not supported", "drop it"),
    ),
    "several replicas": composed(
        5,
        SERVICE + "    deploy: {replicas: 3}\n",
        *("services.a.deploy.replicas", "one service per node"),
    ),
    "a key that Compose lacks": composed(
        3, SERVICE.replace("image", "imgae"), "imgae", "did you mean image?"
    ),
    "a key twice": composed(5, SERVICE + "    image: b\n", "image", "twice"),
    "arguments of a build": composed(
        3, "  a:\n    build: {context: ., args: {A: b}}\n", "services.a.build.args", "`image`"
    ),
    "a build of nothing": composed(3, "  a:\n    build: ./none\n", "a file named Dockerfile"),
    "a shared volume": composed(
        8,
        SERVICE + "    volumes: ['d:/d']\n  b:\n    image: s\n    volumes: ['d:/d']\n",
        *("volume 'd'", "its own volume"),
    ),
    "a volume without a path": composed(
        5, SERVICE + "    volumes: ['data']\n", "'data'", "NAME:/path"
    ),
    "a bind of nothing": composed(
        5, SERVICE + "    volumes: ['./no.conf:/etc/a.conf:ro']\n", "'no.conf'", "does not exist"
    ),
    "a wait for an end": composed(
        5,
        SERVICE + "    depends_on: {b: {condition: service_completed_successfully}}\n"
        "  b: {image: b}\n",
        *("'b'", 'without = ["b"]'),
    ),
    "a wait for nothing": composed(5, SERVICE + "    depends_on: [b]\n", "'b'", "not a service"),
    "a variable that must be set": composed(
        3,
        SERVICE.replace("server", "'x:${NO_SUCH_TAG:?give a tag}'"),
        *("NO_SUCH_TAG", "give a tag"),
    ),
    "a port in words": composed(4, SERVICE.replace("8080", "http"), "'http'"),
    "a port that is not TCP": composed(4, SERVICE.replace("8080", "8080/sctp"), "8080/sctp", "TCP"),
    "a health check in words": composed(
        5, SERVICE + "    healthcheck: {test: [curl, localhost]}\n", "CMD-SHELL"
    ),
    "several networks": composed(
        8,
        SERVICE + "    networks: [a]\n  b:\n    image: b\n    networks: [b]\n",
        *("services.b.networks", "share the network"),
    ),
    "data that are nowhere": composed(
        2, SERVICE, "'data'", "a path of the container", file=TOML, top='data = "data"'
    ),
    "a port that no service has": composed(
        5, SERVICE.replace("8080", "80"), "client.port is 8080", "nodes = [...]", file=TOML
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH_TAG", raising=False)
    text, files, (file, line), quoted = WRONG[name]

    message = refused(tmp_path, text, **files)

    assert message, "it was accepted"
    assert "\n" not in message
    assert len(message) <= ONE_LINE_MAX
    places = (f"{file}, line {line},", f"{file}, line {line}:") if line else (file,)
    assert message.startswith(places), message
    assert [words for words in quoted if words not in message] == [], message


def test_the_files_of_the_table_are_wrong_for_one_reason_only(tmp_path):
    assert refused(tmp_path, declaration()) == ""
    text, files, *_ = composed(None, SERVICE)
    assert refused(tmp_path, text, **files) == ""
