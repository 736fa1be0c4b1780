"""Failed starts end with exit code 254, and with the line number in the user's file."""

import pytest

from harness.cli import main
from harness.errors import EXIT_USAGE, InfrastructureError, StartError
from harness.plugins import TargetSettings
from harness.up.records import Failure
from targets.declared import DeclaredTarget
from tests.declared.support import NODES, declaration, kept

LOG = ("starting", "bind: address already in use", "")
COMPOSE = """\
services:
  a:
    image: registry/a:1
    ports: ["8080"]
    healthcheck:
      test: ["CMD", "check"]
  b:
    build: ./b
    command: serve
"""


def explained(folder, text, error, **files):
    options = kept(folder, text, **files)
    settings = TargetSettings(profile="strict", bugs=(), options=options)
    return str(DeclaredTarget().start_failure(settings, error))


# Name -> (lines of [nodes], part, line of the file, words of the message).
PARTS = {
    "image": ('image = "x:1"\n', "image", 4, "`image = "),
    "package": ('package = "etcd"\n', "image", 4, "`package = "),
    "setup": ('setup = [["sh"]]\n', "setup", 4, "`setup = "),
    "command": ("", "command", 3, "`command = "),
    "ready": ('ready = "port 8080"\n', "ready", 4, "`ready = "),
    "ready without the key": ("", "ready", 3, "`command = "),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_line_of_the_part_is_quoted(name, tmp_path):
    lines, part, number, words = PARTS[name]
    error = StartError("node 'n2' failed", node="n2", part=part, log=LOG, log_is="its log")

    message = explained(tmp_path, declaration(nodes=NODES + lines), error)

    assert message.startswith(f"system.toml, line {number}, {words}")
    assert "node 'n2' failed; the last line of its output is 'bind: address" in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("log", "last"),
    [
        (["0.000000 node-started {}", "0.000040 svc: error: --hots"], "svc: error: --hots"),
        (
            ["0.000040 no such table", "0.000040 the program exited with code 2"],
            "no such table",
        ),
        (["0.000040 KeyError: 5", '0.000040 node-exited {"code":1}'], "KeyError: 5"),
        (['0.000040 node-exited {"code":1}'], '0.000040 node-exited {"code":1}'),
    ],
)
def test_the_last_line_of_a_simulated_program_is_its_own(tmp_path, log, last):
    error = StartError("node 'n2' failed", node="n2", part="command", log=log, log_is="its log")
    assert f"the last line of its output is {last!r}" in explained(tmp_path, declaration(), error)


def test_the_table_of_the_node_is_quoted(tmp_path):
    nodes = NODES.replace("[nodes]", "[[nodes]]")
    nodes += nodes.replace("count = 3", 'names = ["other"]')
    text = declaration(nodes=nodes, client='[client]\nprotocol = "http"\nnodes = ["n1"]')

    message = explained(tmp_path, text, StartError("no", node="other", part="command"))

    assert message.startswith("system.toml, line 6, `command = ")


@pytest.mark.parametrize(
    ("node", "part", "number"), [("a", "image", 3), ("a", "ready", 5), ("b", "ready", 9)]
)
def test_the_line_of_the_compose_file_is_quoted(node, part, number, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/Dockerfile").write_text("ARG BASE\n")
    text = declaration(top='compose = "compose.yaml"', nodes="")

    error = StartError("no", node=node, part=part)
    message = explained(tmp_path, text, error, compose__yaml=COMPOSE)

    assert message.startswith(f"compose.yaml, line {number}, ")


def test_a_probe_that_never_matches_is_quoted(tmp_path):
    text = declaration(more='[leader]\nprobe = "GET /"\nleads = "/x/"')
    pending = "no node leads: `leads` of [leader] matched no answer of its probe; n1: y"

    assert ", `leads = " in explained(tmp_path, text, StartError(f"not ready: {pending}"))
    assert ", `[client]`" in explained(tmp_path, text, StartError("n1 does not answer"))


def test_the_host_is_never_blamed_on_the_file(tmp_path):
    kinds = [Failure.of(error).as_error() for error in (StartError("x"), InfrastructureError("x"))]
    assert [kind.exit_code for kind in kinds] == [255, 255]


# Name -> (command, more lines of [nodes], words of the message).
COMMANDS = {
    "ends": ("sh -c 'echo bad flag; exit 2' {port:8080}", "", ["line 3", "'bad flag'"]),
    "set-up": ("sleep {port:8080}", 'setup = [["sh", "-c", "echo full; exit 3"]]', ["line 4"]),
    "no program": ("./script {port:8080}", "", ["line 3", "Exec format error"]),
    "not ready": ("sleep {port:8080}", "ready-within = 0.2", ["line 3", "0.2 s"]),
}


@pytest.mark.process
@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_that_does_not_start_is_one_clear_line(name, tmp_path, capsys, monkeypatch):
    command, more, words = COMMANDS[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script").write_text("no interpreter\n")
    (tmp_path / "script").chmod(0o755)
    nodes = f'[nodes]\ncount = 1\ncommand = "{command}"\n{more}\n'
    (tmp_path / "system.toml").write_text(declaration(nodes=nodes))

    code = main(["run", "--system", "system.toml", "--env", "process", "--nemesis", "none"])

    last = capsys.readouterr().err.splitlines()[-1]
    assert code == EXIT_USAGE
    assert last.startswith("harness: system.toml, line ")
    assert [word for word in words if word not in last] == []
