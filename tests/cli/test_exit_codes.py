"""The exit codes 0, 1 and 2 always mean a verdict."""

import importlib.metadata
import json
import sys

import pytest

from harness.cli import main
from harness.errors import EXIT_CRASH, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from tests.support.distributions import installed
from tests.support.programs import run_program

PROGRAM = [sys.executable, "-P", "-m", "harness"]
RUN = ["run", "--env", "sim", "--target", "toy-register", "--workload", "unruly", "--seed", "1",
       "--time-limit", "1", "--reporters", "none", "--quiet", "--json"]  # fmt: skip
CONVICTS = "CheckResult(self.name, Verdict.INVALID, 'two and two are five')"

MODULE = """
import ctypes, os, signal, sys
from harness.ops import CheckResult, Verdict
from harness.plugins import Checker
from workloads.register import RegisterWorkload

class Unruly(RegisterWorkload):
    name = "unruly"
    checkers = ("first", "unruly", "last")

class First(Checker):
    api_version, name, doc = 1, "first", "says what it is told to"
    def check(self, history, case, *, time_limit_s=1.0):
        return CheckResult(self.name, Verdict(os.environ.get("FIRST", "valid")), "as told")

class Last(First):
    name = "last"

class UnrulyChecker(First):
    name = "unruly"
    def check(self, history, case, *, time_limit_s=1.0):
        recursive = {}
        recursive["itself"] = recursive
        return eval(os.environ["UNRULY"])

class UnrulyVerb:
    main = staticmethod(lambda arguments: eval(os.environ["UNRULY"]))
verb = UnrulyVerb
"""
POINTS = """[harness.workloads]
unruly = unruly_plugins:Unruly
[harness.checkers]
first = unruly_plugins:First
unruly = unruly_plugins:UnrulyChecker
last = unruly_plugins:Last
[harness.verbs]
unruly = unruly_plugins:verb
"""


@pytest.fixture
def unruly(tmp_path, monkeypatch):
    """Install a checker and a verb that execute the code in the variable UNRULY."""
    monkeypatch.chdir(tmp_path)
    with installed(tmp_path / "plugins", monkeypatch, "unruly", MODULE, POINTS) as plugins:
        yield plugins


def process(words, plugins, **variables):
    return run_program(*PROGRAM, *words, PYTHONPATH=str(plugins), **variables)


# --- the process -----------------------------------------------------------------------------


def test_the_installed_command_is_the_guarded_one():
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="harness")
    assert command.value == "harness.__main__:main"


@pytest.mark.parametrize(
    "deed",
    [
        "os._exit(0)",
        "os._exit(2)",
        "ctypes.CDLL(None).exit(0)",  # a C library may exit in this way
        "ctypes.CDLL(None).exit(1)",
    ],
)
def test_a_terminated_check_gives_no_verdict(deed, unruly):
    assert process(RUN, unruly, UNRULY=deed).returncode == EXIT_CRASH


def test_a_signal_keeps_its_own_code(unruly):
    assert process(RUN, unruly, UNRULY="os.abort()").returncode < 0


@pytest.mark.parametrize("code", [EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN, EXIT_CRASH])
def test_the_code_of_the_verdict_gets_through(code, unruly):
    assert process(["unruly"], unruly, UNRULY=str(code)).returncode == code


@pytest.mark.parametrize("module", ["msgspec", "argparse"])
def test_a_broken_import_is_no_verdict(module, tmp_path):
    (tmp_path / f"{module}.py").write_text("raise ImportError('broken on purpose')\n")
    done = process(["list"], tmp_path)
    assert done.returncode == EXIT_CRASH
    assert "broken on purpose" in done.stderr


@pytest.mark.parametrize("returned", ["None", "256", "-1", "'0'", "sys.exit(0)", "sys.exit(1)"])
def test_a_verb_that_returns_no_code_has_crashed(returned, unruly, monkeypatch, capsys):
    monkeypatch.setenv("UNRULY", returned)
    assert main(["unruly"]) == EXIT_CRASH
    assert "harness: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["--help", "--version"]
    + [f"{verb} --help" for verb in ("run", "soak", "check", "list", "doctor", "clean", "image")],
)
def test_help_is_still_a_success(words, capsys):
    assert main(words.split()) == EXIT_VALID
    assert capsys.readouterr().out


# --- checkers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deed",
    [
        "sys.exit(0)",
        "sys.exit(1)",
        "exec('raise KeyboardInterrupt')",
        "exec('raise GeneratorExit')",
        "None",
        "'valid'",
        "CheckResult(self.name, 'valid', '')",
        "CheckResult(self.name, Verdict.VALID, None)",
        "CheckResult(self.name, Verdict.VALID, '', 'one', (), [])",
        "CheckResult(self.name, Verdict.VALID, '', details={'x': object()})",
        "CheckResult(self.name, Verdict.VALID, '', details=recursive)",
        "CheckResult(self.name, Verdict.VALID, '\\ud800')",
        "CheckResult(self.name, Verdict.VALID, '', details={'x': 'y' * (65 << 20)})",
    ],
)
@pytest.mark.parametrize(
    ("others", "code"), [("valid", EXIT_UNKNOWN), ("invalid", EXIT_INVALID)], ids=str
)
def test_a_checker_without_a_result_costs_no_other_its_verdict(
    deed, others, code, unruly, monkeypatch, capsys
):
    monkeypatch.setenv("UNRULY", deed)
    monkeypatch.setenv("FIRST", others)
    assert main(RUN) == code
    report = json.loads(capsys.readouterr().out)
    assert [found["verdict"] for found in report["checkers"]] == [others, "unknown", others]
    (kept,) = (unruly.parent / "store" / "unruly-none").glob("2*/results.json")
    assert json.loads(kept.read_text())["checkers"] == report["checkers"]
    assert main(["check", str(kept.parent)]) == code


@pytest.mark.parametrize(
    "details", ["{'x': object()}", "recursive", "{'x': '\\ud800'}", "{'x': 'y' * (65 << 20)}"]
)
def test_a_conviction_outlives_details_that_cannot_be_stored(details, unruly, monkeypatch, capsys):
    monkeypatch.setenv("UNRULY", f"{CONVICTS[:-1]}, details={details})")
    assert main(RUN) == EXIT_INVALID
    content = json.loads(capsys.readouterr().out)["checkers"][1]
    assert content["verdict"] == "invalid"
    assert "x" not in content["details"]
    assert content["reason"].startswith("two and two are five (")


def test_a_proven_violation_that_cannot_be_kept_is_still_one(unruly, monkeypatch, capsys):
    monkeypatch.setenv("UNRULY", f"os.mkdir(__import__('glob').glob('store/*/2*')[0] + "
                       f"'/results.json') or {CONVICTS}")  # fmt: skip
    assert main(RUN) == EXIT_INVALID
    assert "cannot write" in capsys.readouterr().err
    for path in unruly.parent.glob("store/*/2*"):
        (path / "results.json").rmdir()
    monkeypatch.setenv("UNRULY", f"[os.mkdir(p + '/results.json') for p in "
                       f"__import__('glob').glob('store/*/2*')] and "
                       f"{CONVICTS.replace('INVALID', 'VALID')}")  # fmt: skip
    assert main(RUN) == EXIT_CRASH  # without the file, the run could not be judged again


def test_a_real_interrupt_is_no_failure_of_a_checker(unruly):
    done = process(RUN, unruly, UNRULY="os.kill(os.getpid(), signal.SIGINT)")
    assert done.returncode == 130
    assert done.stdout == ""
