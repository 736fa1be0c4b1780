"""Bad input: one clear line, exit 254, and nothing is executed."""

import pytest

from harness.cli import main
from harness.cli.soak.verb import parse_seeds
from harness.errors import EXIT_USAGE, UsageError
from tests.support.programs import python


def run(arguments, capsys):
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--nemesis", "a,,b", "--env", "sim"], "commas"),
        (["run", "--env", "process", "--fault", "shape one from others loss=5%"], "--env sim"),
        (["run", "--env", "sim", "--knob", "gravity=9"], "gravity"),
        (["run", "--env", "sim", "--knob", "latency=x"], "one of: lan, uniform, tail"),
        (["run", "--env", "sim", "--name", "../up"], "letters"),
        (["run", "--env", "sim", "--target", "http-register", "--workload", "register"], "foreign"),
        (["soak", "--seeds", "x"], "1..200"),
        (["soak", "--seeds", "1", "--env", "process", "--jobs", "2"], "use --env sim"),
        (["soak", "--seeds", "1", "--env", "process", "--spark-master", "x"], "use --env sim"),
        (["soak", "--seeds", "1", "--jobs", "2", "--spark-master", "x"], "local[2]"),
        (["soak", "--seeds", "1", "--stop-after", "-1"], "--stop-after"),
        (["soak", "--seeds", "1", "--label", "../x"], "--label"),
        (["soak", "--seeds", "1", "--label", "x" * 61], "at most 60"),
        (["soak", "--seeds", "1", "--artefacts", "-1"], "--artefacts"),
        (["soak", "--seeds", "1", "--reporters", "nobody"], "nobody"),
        (["soak", "--seeds", "1", "--github-summary"], "GITHUB_STEP_SUMMARY"),
        (["soak"], "--seeds"),
        (["check", "/no/such/run"], "/no/such/run"),
        (["check"], "PATH"),
        (["check-determinism", "--runs", "1"], "--runs"),
        (["image", "destroy"], "build"),
        (["up", "--env", "sim"], "no cluster stays in"),
        (["up", "--env", "process", "--name", "No"], "small letters"),
        (["up", "--env", "process", "--masters", "2"], "1, 3, 5 or 7"),
        (["up", "--env", "process", "--fault", "kill node:m9"], "no node 'm9'"),
        (["up", "--env", "process", "--target", "moon"], "moon"),
        (["up", "--env", "process", "--bug", "NONE-SUCH"], "NONE-SUCH"),
        (["up", "--print-compose", "--target", "http-register"], "foreign programs"),
        (["down"], "no cluster is running"),
        (["down", "dev"], "no cluster is named 'dev'"),
        (["break", "kill leader", "--for", "soon"], "such as 30s"),
        (["break", "kill", "all", "nodes"], "in quotes"),
        (["break", "kill leader"], "no cluster is running"),
        (["heal", "f1", "f2"], "one fault"),
        (["heal", "f1", "--all"], "one fault or --all"),
        (["heal", "--all"], "no cluster is running"),
        (["status", "dev"], "no cluster is named 'dev'"),
        ([], ""),
    ],
)
def test_usage_errors(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    code, out, err = run(arguments, capsys)
    assert code == EXIT_USAGE
    assert words in (err or out)
    if arguments:
        assert out == ""
        assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("*.log"))


@pytest.mark.parametrize("limit", ["nan", "inf", "0", "-1", "1e10"])
@pytest.mark.parametrize("verb", ["run", "check", "report"])
def test_a_limit_of_time_is_the_same_to_every_verb(verb, limit, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = ["--env", "sim"] if verb == "run" else ["."]
    code, out, err = run([verb, *target, "--check-time-limit", limit], capsys)
    assert (code, out) == (EXIT_USAGE, "")
    assert err.startswith(f"harness: --check-time-limit is {float(limit)}; it must be positive")
    assert list(tmp_path.iterdir()) == []


SOAK = ["soak", "--seeds", "1"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        *(
            (["run", "--env", "sim", flag, ""], flag)
            for flag in ("--nemesis", "--name", "--store", "--workload", "--target", "--case")
        ),
        (["run", "--env", "sim", "--nemesis="], "--nemesis"),
        (["run", "--env", ""], "--env"),
        (["run", "--env", "sim", "--reporters", ""], "--reporters"),
        (["run", "--env", "sim", "--seed", ""], "--seed"),
        *(([*SOAK, flag, ""], flag) for flag in ("--nemesis", "--name", "--label", "--junit")),
        ([*SOAK, "--github-summary", ""], "--github-summary"),
        (["check-determinism", "--nemesis", ""], "--nemesis"),
        (["check", ""], "PATH"),
        (["check", ".", "--model", ""], "--model"),
        (["report", ""], "STORE"),
        (["report", ".", "--output", ""], "--output"),
        (["trace", "x", "--output", ""], "--output"),
        (["import", "x", "--store", ""], "--store"),
        (["serve", ""], "STORE"),
    ],
)
def test_an_empty_value_is_not_one_that_was_left_out(
    arguments, name, capsys, tmp_path, monkeypatch
):
    """A variable of a CI job that is not set would quietly test nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    code, out, err = run(arguments, capsys)
    assert (code, out) == (EXIT_USAGE, "")
    assert err.startswith(f"harness: {name} is ''")
    assert list(tmp_path.iterdir()) == []


def test_case_and_flags_do_not_mix(capsys, tmp_path):
    case = tmp_path / "case.json"
    case.write_text('{"seed": 1}')
    code, _, err = run(["run", "--case", str(case), "--rate", "5"], capsys)
    assert (code, "drop the options for rate" in err) == (EXIT_USAGE, True)


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
