"""Bad input gets one clear line and exit code 254, and nothing is executed."""

import json

import pytest

from harness.cli import main
from harness.cli.soak.options import parse_seeds
from harness.errors import EXIT_USAGE, UsageError
from tests.support.programs import python


def run(arguments, capsys):
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_without_a_verb_there_is_help(capsys):
    code, out, err = run([], capsys)
    assert (code, err) == (EXIT_USAGE, "")
    assert "--help" in out


@pytest.mark.parametrize("limit", ["nan", "inf", "0", "-1", "1e10"])
@pytest.mark.parametrize("verb", ["run", "check", "report"])
def test_a_limit_of_time_is_the_same_to_every_verb(verb, limit, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = ["--env", "sim"] if verb == "run" else ["."]
    code, out, err = run([verb, *target, "--check-time-limit", limit], capsys)
    assert (code, out) == (EXIT_USAGE, "")
    assert err.startswith(f"harness: --check-time-limit is {float(limit)}; it must be positive")
    assert list(tmp_path.iterdir()) == []


def test_case_and_flags_do_not_mix(capsys, tmp_path):
    case = tmp_path / "case.json"
    case.write_text('{"seed": 1}')
    code, _, err = run(["run", "--case", str(case), "--rate", "5"], capsys)
    assert (code, "drop the options for rate" in err) == (EXIT_USAGE, True)


def test_a_case_runs_without_its_bugs(capsys, tmp_path):
    case = tmp_path / "case.json"
    case.write_text('{"seed": 1, "bugs": ["NO-LEASE"]}')
    arguments = ["run", "--env", "sim", "--dry-run", "--case", str(case)]
    assert json.loads(run(arguments, capsys)[1])["bugs"] == ["NO-LEASE"]
    assert json.loads(run([*arguments, "--bug", "none"], capsys)[1])["bugs"] == []
    assert run([*arguments, "--bug", "KUDU-765"], capsys)[0] == EXIT_USAGE


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"catalog-harness ops 1\n\x05\x00\x00\x00\x00\x00\x00\x00[[[[["]
)
def test_hostile_histories_are_refused(content, capsys, tmp_path):
    (tmp_path / "case.json").write_text('{"seed": 1}')
    (tmp_path / "ops.log").write_bytes(content + b"x" * 50)
    code, _, err = run(["check", str(tmp_path)], capsys)
    assert code == EXIT_USAGE
    assert str(tmp_path) in err


def test_dry_run_prints_a_case_and_does_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(["run", "--dry-run", "--nemesis", "kill-leader", "--seed", "3"], capsys)
    assert code == 0
    assert '"kill-leader"' in out
    assert list(tmp_path.iterdir()) == []


def test_help_of_run_shows_every_option_with_its_default(capsys):
    assert main(["run", "--help-all"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for flag in ("--nemesis", "--rate", "--masters", "--names", "--store", "--seed", "--env"):
        assert flag in text
    assert text.count("(default: ") >= 18


@pytest.mark.slow
def test_help_imports_nothing_heavy():
    script = (
        "import sys\n"
        "from harness.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "heavy = {'pyarrow', 'numpy', 'docker', 'pandas', 'requests'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    for words in (["--help"], ["run", "--help"], ["soak", "--help"], ["list"]):
        python(script, *words)


@pytest.mark.parametrize("text", ["", "1..", "..5", "2..1", "-1..5", "1...5", "1..99999999999"])
def test_bad_seed_ranges(text):
    with pytest.raises(UsageError, match="seeds"):
        parse_seeds(text)
