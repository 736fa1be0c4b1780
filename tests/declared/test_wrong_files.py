"""Wrong declarations: each is refused before anything starts, in one line that names the place."""

import pytest

from tests.declared.support import CLIENT, NODES, OPERATIONS, declaration, refused

TOML, COMPOSE = "system.toml", "compose.yaml"
ONE_LINE_MAX = 500


def of_nodes(line):
    return declaration(nodes=NODES + line + "\n")


def composed(services, *, top="", **parts):
    """Return a declaration that uses a Compose file with these services, and the file."""
    text = declaration(top=f'compose = "compose.yaml"\n{top}', nodes="", **parts)
    return text, {"compose__yaml": f"services:\n{services}"}


SERVICE = "  a:\n    image: server\n    ports: ['8080']\n"
# Name -> (text, other files, the file and line that the message names, words that it quotes).
WRONG = {
    "no such key": (declaration(top='naem = "x"'), {}, (TOML, 1), ["naem", "did you mean name?"]),
    "no such key of nodes": (of_nodes('comand = "x"'), {}, (TOML, 4), ["nodes.comand", "command"]),
    "no such key of the leader": (
        declaration(more='[leader]\nprobe = "GET /"\nleads = "x"\ntrem = "y"'),
        {},
        (TOML, 17),
        ["leader.trem", "did you mean term?"],
    ),
    "a name with a slash": (declaration(top='name = "a/b"'), {}, (TOML, 1), ["'a/b'"]),
    "a name of imported runs": (declaration(top='name = "imported"'), {}, (TOML, 1), ["imported"]),
    "a key is missing": (declaration(client="[client]\nport = 1\n"), {}, (TOML, 5), ["'protocol'"]),
    "no client": (declaration(client=""), {}, (TOML, None), ["[client] is missing"]),
    "unknown protocol": (
        declaration(client='[client]\nprotocol = "htpt"\nport = 1\n'),
        {},
        (TOML, 6),
        ["'htpt'", "did you mean http?"],
    ),
    "no setting of the protocol": (
        declaration(client=CLIENT + 'pasword = "x"\n'),
        {},
        (TOML, None),
        ["client", "pasword"],
    ),
    "no port, and a placeholder without one": (
        declaration(
            nodes=NODES.replace("{port:8080}", "{port}"), client='[client]\nprotocol = "http"\n'
        ),
        {},
        (TOML, 5),
        ["client.port is missing"],
    ),
    "no port": (
        declaration(
            nodes=NODES.replace("count = 3", "ports = [9000]"),
            client='[client]\nprotocol = "http"\n',
        ),
        {},
        (TOML, 5),
        ["client.port is missing"],
    ),
    "a number as text": (
        declaration(nodes=NODES.replace("3", '"3"')),
        {},
        (TOML, 2),
        ["nodes.count", "a whole number"],
    ),
    "syntax": (declaration(top="name = etcd"), {}, (TOML, 1), ["name = etcd", "texts in quotes"]),
    "a text that is not closed": (
        declaration(top='name = "a'),
        {},
        (TOML, 1),
        ["write it as TOML"],
    ),
    "neither nodes nor compose": (declaration(nodes=""), {}, (TOML, None), ["neither", "[nodes]"]),
    "both nodes and compose": (
        declaration(top='compose = "compose.yaml"'),
        {},
        (TOML, 1),
        ["both", "[nodes]"],
    ),
    "no node": (declaration(nodes=NODES.replace("3", "0")), {}, (TOML, 2), ["nodes.count is 0"]),
    "a name twice": (
        declaration(nodes=NODES.replace("count = 3", 'names = ["n1", "n1"]')),
        {},
        (TOML, 2),
        ["'n1' twice"],
    ),
    "a name in two tables": (
        declaration(nodes=NODES.replace("[nodes]", "[[nodes]]") * 2),
        {},
        (TOML, 4),
        ["a second node 'n1'"],
    ),
    "a name that no node can have": (
        declaration(nodes=NODES.replace("count = 3", 'names = ["a b"]')),
        {},
        (TOML, 2),
        ["'a b'"],
    ),
    "no command": (declaration(nodes="[nodes]\ncount = 3\n"), {}, (TOML, 1), ["command", "image"]),
    "unknown placeholder": (
        declaration(nodes=NODES.replace("{port:", "{prot:")),
        {},
        (TOML, 3),
        ["{prot:8080}", "did you mean port?"],
    ),
    "unknown node in a placeholder": (
        declaration(nodes=NODES.replace("address:n1", "address:n7")),
        {},
        (TOML, 3),
        ["{address:n7:9000}", "'n7'"],
    ),
    "a port that is none": (
        declaration(nodes=NODES.replace("{port:8080}", "{port:http}")),
        {},
        (TOML, 3),
        ["{port:http}"],
    ),
    "a port in other digits": (
        declaration(nodes=NODES.replace("{port:8080}", "{port:8²}")),
        {},
        (TOML, 3),
        ["{port:8²}"],
    ),
    "a port with a thousand digits": (
        declaration(nodes=NODES.replace("{port:8080}", "{port:" + "9" * 5000 + "}")),
        {},
        (TOML, 3),
        ["a port in 1 .. 65535"],
    ),
    "readiness of a port in other digits": (
        of_nodes('ready = "port 8²"'),
        {},
        (TOML, 4),
        ["'port 8²'"],
    ),
    "readiness of no port": (of_nodes('ready = "port"'), {}, (TOML, 4), ["'port'", "port 8080"]),
    "a pipe without a shell": (
        declaration(nodes=NODES.replace("server", "server | tee log")),
        {},
        (TOML, 3),
        ["'|'", '["sh", "-c"'],
    ),
    "a quote that is not closed": (
        declaration(nodes=NODES.replace("server", "server 'x")),
        {},
        (TOML, 3),
        ["close the quote"],
    ),
    "readiness": (of_nodes('ready = "GET health"'), {}, (TOML, 4), ["'GET health'", "port 8080"]),
    "readiness of another port": (
        of_nodes('ready = "GET :8081/health"'),
        {},
        (TOML, 4),
        ["8081", "[8080, 9000]"],
    ),
    "a file that is missing": (
        of_nodes('files = { "a.conf" = { from = "b.conf" } }'),
        {},
        (TOML, 4),
        ["'b.conf' does not exist"],
    ),
    "a file that is no text": (
        of_nodes('files = { "a.conf" = { from = "b.conf" } }'),
        {"b__conf": b"\xff\x00"},
        (TOML, 4),
        ["b.conf", "not UTF-8"],
    ),
    "a package that cannot be": (of_nodes('package = "a b"'), {}, (TOML, 4), ["'a b'"]),
    "a cycle of starts": (of_nodes('after = ["n2"]'), {}, (TOML, None), ["after"]),
    "clients of no node": (
        declaration(client=CLIENT + 'nodes = ["n4"]\n'),
        {},
        (TOML, 8),
        ["'n4'", "n1, n2, n3"],
    ),
    "no such operation": (
        declaration(operations=OPERATIONS.replace("read", "raed")),
        {},
        (TOML, 10),
        ["operations.raed"],
    ),
    "an argument that an operation lacks": (
        declaration(operations=OPERATIONS.replace("{value}}", "{valeu}}")),
        {},
        (TOML, 11),
        ["operations.write", "{valeu}"],
    ),
    "a leader without a condition": (
        declaration(more='[leader]\nprobe = "GET /"\nleads = "is leader!"'),
        {},
        (TOML, 16),
        ["'is leader!'", "regular expression"],
    ),
    "a regular expression that is none": (
        declaration(more='[leader]\nprobe = "GET /"\nleads = "/(/"'),
        {},
        (TOML, 16),
        ["'/(/'", "no regular expression"],
    ),
    "a leader at a port of no node": (
        declaration(more='[leader]\nprobe = "GET /"\nleads = "x"\nport = 7'),
        {},
        (TOML, 17),
        ["leader.port is 7"],
    ),
    "a quorum above all": (declaration(top="quorum = 4"), {}, (TOML, 1), ["quorum is 4", "1 .. 3"]),
    "a quorum in words": (
        declaration(top='quorum = "most"'),
        {},
        (TOML, 1),
        ["'most'", "majority"],
    ),
    "no Compose file": (composed("")[0], {}, (TOML, 1), ["'compose.yaml' does not exist"]),
    "no YAML": (*composed("  a: [\n"), (COMPOSE, 3), ["write it as YAML"]),
    "no service": (*composed("  {}\n"), (COMPOSE, None), ["services", "write one service"]),
    "a service without an image": (
        *composed("  a:\n    command: server\n"),
        (COMPOSE, 2),
        ["services.a", "`image`"],
    ),
    "a feature that is lacking": (
        *composed(SERVICE + "    cap_add: [NET_ADMIN]\n"),
        (COMPOSE, 5),
        ["services.a.cap_add", "not supported", "drop it"],
    ),
    "several replicas": (
        *composed(SERVICE + "    deploy: {replicas: 3}\n"),
        (COMPOSE, 5),
        ["services.a.deploy.replicas", "one service per node"],
    ),
    "a key that Compose lacks": (
        *composed(SERVICE.replace("image", "imgae")),
        (COMPOSE, 3),
        ["imgae", "did you mean image?"],
    ),
    "a key twice": (*composed(SERVICE + "    image: b\n"), (COMPOSE, 5), ["image", "twice"]),
    "arguments of a build": (
        *composed("  a:\n    build: {context: ., args: {A: b}}\n"),
        (COMPOSE, 3),
        ["services.a.build.args", "`image`"],
    ),
    "a build of nothing": (
        *composed("  a:\n    build: ./none\n"),
        (COMPOSE, 3),
        ["a file named Dockerfile"],
    ),
    "a shared volume": (
        *composed(SERVICE + "    volumes: ['d:/d']\n  b:\n    image: s\n    volumes: ['d:/d']\n"),
        (COMPOSE, 8),
        ["volume 'd'", "its own volume"],
    ),
    "a volume without a path": (
        *composed(SERVICE + "    volumes: ['data']\n"),
        (COMPOSE, 5),
        ["'data'", "NAME:/path"],
    ),
    "a bind of nothing": (
        *composed(SERVICE + "    volumes: ['./no.conf:/etc/a.conf:ro']\n"),
        (COMPOSE, 5),
        ["'no.conf'", "does not exist"],
    ),
    "a wait for an end": (
        *composed(
            SERVICE + "    depends_on: {b: {condition: service_completed_successfully}}\n"
            "  b: {image: b}\n"
        ),
        (COMPOSE, 5),
        ["'b'", 'without = ["b"]'],
    ),
    "a wait for nothing": (
        *composed(SERVICE + "    depends_on: [b]\n"),
        (COMPOSE, 5),
        ["'b'", "no service"],
    ),
    "a variable that must be set": (
        *composed(SERVICE.replace("server", "'x:${NO_SUCH_TAG:?give a tag}'")),
        (COMPOSE, 3),
        ["NO_SUCH_TAG", "give a tag"],
    ),
    "a port in words": (*composed(SERVICE.replace("8080", "http")), (COMPOSE, 4), ["'http'"]),
    "a port that is not TCP": (
        *composed(SERVICE.replace("8080", "8080/sctp")),
        (COMPOSE, 4),
        ["8080/sctp", "TCP"],
    ),
    "a health check in words": (
        *composed(SERVICE + "    healthcheck: {test: [curl, localhost]}\n"),
        (COMPOSE, 5),
        ["CMD-SHELL"],
    ),
    "several networks": (
        *composed(SERVICE + "    networks: [a]\n  b:\n    image: b\n    networks: [b]\n"),
        (COMPOSE, 8),
        ["services.b.networks", "share the network"],
    ),
    "data that are nowhere": (
        *composed(SERVICE, top='data = "data"'),
        (TOML, 2),
        ["'data'", "a path of the container"],
    ),
    "a port that no service has": (
        *composed(SERVICE.replace("8080", "80")),
        (TOML, 5),
        ["client.port is 8080", "nodes = [...]"],
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
    text, files = composed(SERVICE)
    assert refused(tmp_path, text, **files) == ""
