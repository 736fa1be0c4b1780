"""A case contains the whole declaration, so it depends on no other file."""

import json
import shutil

import msgspec
import pytest

from harness.case import Case
from harness.cli import main
from harness.errors import EXIT_USAGE, UsageError
from harness.plan.planning import plan_case
from harness.plugins import TargetSettings
from targets.declared import DeclaredTarget
from targets.declared.file import from_case
from targets.declared.parts import parts_of
from tests.declared.support import NODES, OPERATIONS, declaration, kept, written

COMPOSE = """\
services:
  a:
    image: "server:${TAG:-1}"
    ports: ["8080"]
    env_file: [a.env]
    volumes: ["./conf:/etc/conf:ro", "./missing:/data"]
"""
FILES = {"compose__yaml": COMPOSE, "a__env": "A=1", "conf/x": "x\n", "__env": "TAG=7"}


def nodes_of(options, environment):
    settings = TargetSettings(
        profile="strict", bugs=(), options=options, environment=environment, vocabulary="register"
    )
    return DeclaredTarget().nodes(settings)


def test_a_case_needs_no_file_and_no_variable(tmp_path, monkeypatch):
    monkeypatch.delenv("TAG", raising=False)
    folder = tmp_path / "project"
    text = declaration(top='name = "shop"\ncompose = "compose.yaml"', nodes="")
    options = kept(folder, text, **FILES)
    before = nodes_of(options, "docker")

    shutil.rmtree(folder)
    monkeypatch.setenv("TAG", "8")
    parts_of.cache_clear()

    assert nodes_of(options, "docker") == before
    assert before[0].image == "server:7"
    assert before[0].container.files == {"/etc/conf/x": "x\n"}


def test_a_changed_file_changes_no_stored_case(tmp_path):
    text = declaration(nodes=f'{NODES}files = {{ "a.conf" = {{ from = "a.conf" }} }}\n')
    options = kept(tmp_path, text, a__conf="old")
    (tmp_path / "a.conf").write_text("new")
    (tmp_path / "system.toml").write_text("broken")

    assert nodes_of(options, "process")[0].files == {"a.conf": "old"}


def test_a_changed_build_context_is_refused(tmp_path):
    nodes = '[nodes]\ndockerfile = "image"\ncommand = "server {port:8080}"\n'
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "Dockerfile").write_text("ARG BASE\n")
    options = kept(tmp_path, declaration(nodes=nodes))
    assert nodes_of(options, "docker")[0].dockerfile == str(tmp_path / "image")

    (tmp_path / "image" / ".git").mkdir()
    (tmp_path / "image" / ".git" / "HEAD").write_text("no part of the image")
    assert nodes_of(options, "docker")[0].dockerfile == str(tmp_path / "image")

    (tmp_path / "image" / "Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(UsageError, match=r"line 2.*has changed since the case was made"):
        nodes_of(options, "docker")
    assert nodes_of(options, "process")[0].dockerfile is None


@pytest.mark.parametrize(
    "text",
    ['a"b\\c\n\'\'\'\n"""', "tab\tnull\x00bell\x07delete\x7f", "umlaut äöü, snowman ☃, \U0001f980"],
)
def test_any_text_survives_in_the_case(tmp_path, text):
    nodes = f'{NODES}files = {{ "a.conf" = {{ from = "a.conf" }} }}\n'
    options = kept(tmp_path, declaration(nodes=nodes), a__conf=text.encode())

    assert from_case(options["system"]).folder.text("a.conf") == text


def test_errors_of_a_case_name_the_line_of_the_file(tmp_path):
    options = kept(tmp_path, declaration())
    broken = options["system"].replace("count = 3", "count = 0")

    with pytest.raises(UsageError, match=r"^system.toml, line 2, `count = 0`"):
        nodes_of({"system": broken}, "process")


def test_a_self_contained_file_is_a_declaration_too(tmp_path):
    options = kept(tmp_path, declaration())
    path = tmp_path / "whole.toml"
    path.write_text(options["system"])

    assert DeclaredTarget().read_file(path) == options


def dry_run(capsys, *arguments):
    code = main(["run", "--dry-run", *arguments])
    output = capsys.readouterr()
    return code, json.loads(output.out) if code == 0 else {}, output.err


def test_the_command_line_keeps_the_declaration(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, declaration(top='rate = 7\nnemeses = ["kill"]\nconcurrency = 4'))

    code, case, said = dry_run(capsys, "--system", "system.toml", "--rate", "9")

    assert code == 0
    assert case["target"] == "declared"
    assert case["workload"] == "register"
    assert (case["rate"], case["concurrency"], case["nemeses"]) == (9.0, 4, ["kill"])
    assert "[client]" in case["target_options"]["system"]
    assert "defaults from system.toml" in said


@pytest.mark.parametrize(
    ("top", "arguments", "name"),
    [
        ("", (), "system"),
        ('name = "shop"', (), "shop"),
        ("", ("--system-name", "shop 2"), "shop 2"),
    ],
)
def test_a_system_has_the_name_of_its_file_or_its_own(
    top, arguments, name, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, declaration(top=top))

    _, case, _ = dry_run(capsys, "--system", "system.toml", *arguments)

    assert msgspec.convert(case, Case).system == name


def test_a_stored_case_runs_without_its_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, declaration())
    _, case, _ = dry_run(capsys, "--system", str(path), "--seed", "1")
    path.unlink()
    file = tmp_path / "case.json"
    file.write_text(json.dumps(case))

    code, again, _ = dry_run(capsys, "--case", str(file))

    assert (code, again) == (0, case)


def test_a_harness_toml_may_declare_the_system(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, declaration(top="rate = 7")).rename(tmp_path / "harness.toml")

    code, case, said = dry_run(capsys)

    assert (code, case["target"], case["rate"]) == (0, "declared", 7.0)
    assert "--system=harness.toml" in said
    code, case, _ = dry_run(capsys, "--target", "kudu", "--workload", "ddl")
    assert (code, case["target"], case["rate"]) == (0, "kudu", 7.0)
    code, case, _ = dry_run(capsys, "--no-config")
    assert (code, case["target"]) == (0, "kudu")


def test_a_harness_toml_may_name_the_file_of_the_system(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, declaration(top="rate = 7"), harness__toml='system = "system.toml"\nrate = 5')

    code, case, said = dry_run(capsys)

    assert (code, case["target"], case["rate"]) == (0, "declared", 7.0)
    assert "defaults from harness.toml and system.toml" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--system", "system.toml", "--target", "kudu"), "drop one of the two"),
        (("--system", "none.toml"), "cannot be read"),
        (("--target", "declared"), "add --system FILE.toml"),
        (("--system", "system.toml", "--workload", "ddl"), "cannot run the workload 'ddl'"),
        (("--system", "system.toml", "--profile", "weak"), "the target 'system' has no profile"),
    ],
)
def test_wrong_command_lines_are_refused(tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, declaration())

    code, _, said = dry_run(capsys, *arguments)

    assert code == EXIT_USAGE
    assert words in said


def test_a_case_decides_the_system(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, declaration())
    _, case, _ = dry_run(capsys, "--system", str(path))
    (tmp_path / "case.json").write_text(json.dumps(case))

    code, _, said = dry_run(capsys, "--case", "case.json", "--system", "system.toml")

    assert (code, "drop the options for system" in said) == (EXIT_USAGE, True)


def test_the_simulation_and_shrinking_refuse_foreign_programs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, declaration())
    _, case, _ = dry_run(capsys, "--system", str(path))
    (tmp_path / "case.json").write_text(json.dumps(case))

    assert main(["run", "--env", "sim", "--case", "case.json"]) == EXIT_USAGE
    assert "foreign programs" in capsys.readouterr().err
    assert main(["soak", "--system", "system.toml", "--seeds", "1..2"]) == EXIT_USAGE
    assert "--env process" in capsys.readouterr().err
    assert main(["shrink", "case.json"]) == EXIT_USAGE
    assert "foreign programs" in capsys.readouterr().err


def test_the_vocabulary_of_a_run_reaches_the_target(tmp_path):
    several = OPERATIONS + '[operations.set]\nadd = "PUT /set/{value}"\nread = "GET /set"\n'
    options = kept(tmp_path, declaration(operations=several))
    target = DeclaredTarget().configured(options)

    assert target.name == "system"
    assert {"register", "set"} <= target.vocabularies
    assert target.workload == "register"
    plan = plan_case(
        Case(seed=1, target="declared", target_options=options, workload="register"), None
    )
    assert plan.settings.vocabulary == "register"
    assert msgspec.json.decode(plan.case.encode(), type=Case) == plan.case
