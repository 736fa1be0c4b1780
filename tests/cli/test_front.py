"""Defaults from `harness.toml`, shell completion, and runs with only a workload or a nemesis."""

import re
import subprocess

import msgspec
import pytest

from harness.case import Case
from harness.cli import main
from harness.errors import EXIT_USAGE, UsageError
from harness.plan.planning import plan_case
from harness.registry import load_plugin, plugin_names

DRY = ["run", "--dry-run"]


def case_of(arguments, capsys):
    assert main([*DRY, *arguments]) == 0
    captured = capsys.readouterr()
    return msgspec.json.decode(captured.out, type=Case), captured.err


def test_defaults_of_a_folder_give_way_to_the_command_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert main(["init"]) == EXIT_USAGE
    assert "--force" in capsys.readouterr().err
    assert main(["init", "--force"]) == 0
    capsys.readouterr()
    case, notes = case_of(["--time-limit", "7"], capsys)
    assert case.nemeses == ("partition-leader",)
    assert case.time_limit_s == 7.0
    assert "defaults from harness.toml" in notes
    (tmp_path / "case.json").write_bytes(Case(seed=3).encode())
    case, notes = case_of(["--case", "case.json"], capsys)
    assert (case.seed, case.nemeses, notes) == (3, ("none",), "")


@pytest.mark.parametrize("name", plugin_names("workloads"))
def test_a_workload_runs_by_its_name_alone_or_names_its_needs(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = main([*DRY, "--env", "sim", "--workload", name])
    assert code == 0 or re.search("add --target|with --system", capsys.readouterr().err)


@pytest.mark.parametrize("name", plugin_names("nemeses"))
def test_a_nemesis_runs_by_its_name_alone_or_names_its_needs(name):
    sim = load_plugin("environments", "sim")
    try:
        plan_case(Case(seed=1, nemeses=(name,)), sim)
    except UsageError as error:
        assert "; add --" in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("ru", "run"),
        ("run --nemesis part", "partition-leader"),
        ("run --workload hms-d", "hms-ddl"),
        ("soak --env pro", "process"),
        ("soak --see", "--seeds"),
    ],
)
def test_bash_completes(words, found, script):
    call = (
        f"source {script}; COMP_WORDS=(harness {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        '_shtab_harness harness "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; '
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", call], capture_output=True, text=True, check=True)
    assert found in done.stdout.split()


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "harness.bash"
    with pytest.MonkeyPatch.context() as patch:
        texts = []
        patch.setattr("harness.cli.completion_verb.say", texts.append)
        assert main(["completion", "bash"]) == 0
    path.write_text(texts[0])
    return path


def test_reports_read_the_store_of_the_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "harness.toml").write_text('store = "runs"\n')
    for verb in ("report", "serve"):
        assert main([verb]) == EXIT_USAGE
        assert "'runs'" in capsys.readouterr().err
