"""Regression tests of small defects of the command line."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from checkers.linearizability import native
from harness.case import Case
from harness.cli import main
from harness.cli.run.verdict_text import EXPLANATION_LINES_MAX, describe
from harness.ops import CheckResult, Verdict
from harness.store import load_run
from harness.verdict.judge import Judgement
from tests.cli.conftest import PROGRAM

BUFFERED = {name: os.environ[name] for name in os.environ if name != "PYTHONUNBUFFERED"}
"""The environment of a user's shell, in which Python buffers its output."""
TOY = ["--target", "toy-register", "--workload", "register", "--reporters", "none", "--quiet"]
BUG = ["run", "--env", "sim", "--bug", "NO-LEASE", "--nemesis", "partition-leader", "--seed", "3",
       "--time-limit", "3", "--interval", "1", "--duration", "1", "--rate", "20",
       "--reporters", "none", "--quiet", "--json"]  # fmt: skip


# --- pipes -----------------------------------------------------------------------------------


def test_a_reader_that_has_enough_is_no_crash(run_folder):
    line = " ".join(PROGRAM[:2]) + f" '{PROGRAM[2]}' export {run_folder}"
    script = f"{line} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], env=BUFFERED, capture_output=True, text=True, check=False
    )
    first, code = done.stdout.splitlines()
    assert first.startswith("{:index 0")
    assert (code, done.stderr) == ("141", "")


def test_a_closed_pipe_is_no_crash_of_help():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as deaf:
        done = subprocess.run(
            [*PROGRAM, "--help"], env=BUFFERED, stdout=deaf, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_whole_export_is_a_success(run_folder):
    done = subprocess.run([*PROGRAM, "export", run_folder], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.splitlines()) == len(load_run(run_folder).history)


def test_an_export_that_does_not_fit_is_said(run_folder):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, "export", run_folder],
            env=BUFFERED,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 255
    assert b"cannot write to stdout: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_export_to_nowhere_is_said(run_folder):
    words = ["sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, "export", str(run_folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (255, 1)
    assert "cannot write to stdout: it is closed" in done.stderr


def test_a_broken_pipe_elsewhere_stays_a_crash(monkeypatch, capsys):
    def broken(_words):
        raise BrokenPipeError

    monkeypatch.setattr("harness.cli.list_verb.main", broken)
    assert main(["list"]) == 255
    assert "BrokenPipeError" in capsys.readouterr().err


# --- wording of messages ---------------------------------------------------------------------


def test_an_explanation_has_few_lines_and_says_how_many_more():
    texts = tuple(f"line {n}" for n in range(EXPLANATION_LINES_MAX + 3))
    many = CheckResult("a", Verdict.INVALID, "r" * 900, texts)
    few = CheckResult("b", Verdict.INVALID, "few", ("x" * 1000, *"1234"))
    lines = describe(Judgement((many, few)))
    assert [line for line in lines if line.startswith("  line")] == [
        f"  {text}" for text in texts[:EXPLANATION_LINES_MAX]
    ]
    assert [line for line in lines if "more" in line] == ["  ... and 3 more, in results.json"]
    assert max(map(len, lines)) < 450
    assert lines[-4:] == ["  1", "  2", "  3", "  4"]


# --- import ----------------------------------------------------------------------------------


def test_an_imported_history_is_a_finished_run(run_folder, tmp_path, capsys):
    edn = tmp_path / "history.edn"
    assert main(["export", str(run_folder), "--output", str(edn)]) == 0
    assert main(["import", str(edn), "--store", str(tmp_path / "store")]) == 0
    stored = load_run(Path(capsys.readouterr().out.splitlines()[-1]))
    original = load_run(run_folder)
    assert stored.note is None
    assert stored.record is not None
    assert (stored.record.environment, stored.record.verdict) == ("imported", Verdict.UNKNOWN)
    assert stored.record.digest == original.history.digest()
    assert stored.record.ops == len(original.history.pairs)
    assert stored.record.wall_s == original.history[-1].time / 1e9
    assert main(["check", str(stored.folder)]) == main(["check", str(run_folder)])


def test_a_refused_import_leaves_nothing(run_folder, tmp_path, capsys):
    named = tmp_path / "named.edn"
    named.write_text("{:process :alice, :type :invoke, :f :read, :value nil}\n")
    store = tmp_path / "a" / "store"
    words = ["import", str(named), "--store", str(store), "--name", "q"]
    assert main(words) == 254
    assert [path.name for path in tmp_path.iterdir()] == ["named.edn"]
    good = tmp_path / "good.edn"
    assert main(["export", str(run_folder), "--output", str(good)]) == 0
    assert main(["import", str(good), *words[2:]]) == 0
    before = sorted(store.rglob("*"))
    assert (store / "q" / "latest").resolve() in before
    assert main(words) == 254
    assert sorted(store.rglob("*")) == before
    assert main(["check", str(store)]) == main(["check", str(run_folder)])


@pytest.mark.parametrize("content", ["", " \n", "; nothing\n", "[]"])
def test_files_without_operations_are_not_imported(content, tmp_path, capsys):
    file = tmp_path / "h.edn"
    file.write_text(content)
    assert main(["import", str(file), "--store", str(tmp_path / "store")]) == 254
    assert "a history has operations" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


# --- folders that are not stores -------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "flag"),
    [("file", "--store"), ("file/below", "--store"), ("link", "--store"), (".", "--name")],
)
@pytest.mark.parametrize("verb", ["run", "soak", "import"])
def test_a_store_that_is_no_folder_is_refused(verb, store, flag, run_folder, tmp_path, capsys):
    edn = tmp_path / "h.edn"
    assert main(["export", str(run_folder), "--output", str(edn)]) == 0
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    words = {
        "run": ["run", "--env", "sim", *TOY],
        "soak": ["soak", "--seeds", "1", "--nemesis", "none", "--jobs", "1", *TOY],
        "import": ["import", str(edn)],
    }
    before = sorted(tmp_path.rglob("*"))
    assert main([*words[verb], "--store", str(tmp_path / store), "--name", "file"]) == 254
    error = capsys.readouterr().err.splitlines()[-1]
    at_fault = tmp_path / ("link" if store == "link" else "file")
    assert error.startswith(f"harness: {str(at_fault)!r} is not a folder")
    assert error.endswith(f"choose another {flag}")
    assert (sorted(tmp_path.rglob("*")), (tmp_path / "file").read_text()) == (before, "mine")


# --- faults written by hand ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nemesis", "args", "words"),
    [
        ("partition-halves", {"draw": "many"}, "takes a whole number"),
        ("partition-halves", {"draw": True}, "takes a whole number"),
        ("partition-leader", {"keep_others": 1}, "takes true or false"),
        ("partition-leader", {"keep": True}, "has no argument 'keep'; it has: choice"),
        ("kill-leader", {"hard": True}, "has no argument 'hard'; it has: none"),
    ],
)
def test_faults_that_cannot_be_are_refused_before_anything_starts(
    nemesis, args, words, tmp_path, capsys
):
    fault = {"id": "mine", "nemesis": nemesis, "at_ns": 0, "duration_ns": 1, "args": args}
    path = tmp_path / "case.json"
    path.write_text(json.dumps({"seed": 1, "faults": [fault]}))
    code = main(["run", "--env", "sim", "--case", str(path), "--store", str(tmp_path / "store")])
    error = capsys.readouterr().err.strip()
    assert code == 254
    assert error.startswith("harness: the fault 'mine': ")
    assert words in error
    assert "\n" not in error
    assert not (tmp_path / "store").exists()


def test_every_case_that_is_planned_can_be_replayed(tmp_path, capsys):
    names = "partition-leader,partition-halves,partition-random-node,kill-leader,pause-leader"
    assert main(["run", "--dry-run", "--nemesis", names, "--seed", "9"]) == 0
    path = tmp_path / "case.json"
    path.write_text(capsys.readouterr().out)
    assert main(["run", "--dry-run", "--case", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(path.read_text())
    assert len(Case(**json.loads(path.read_text())).faults) > 10


# --- the native core -------------------------------------------------------------------------


class Tripwire:
    """An extension module that fails the test at the first access."""

    VERSION = "tripwire"

    def __getattr__(self, name):
        raise AssertionError(f"the native core was asked for {name}")


def checked(report):
    return [(item["checker"], item["verdict"], item["operations"]) for item in report["checkers"]]


def test_the_native_core_can_be_switched_off(monkeypatch, tmp_path, capsys):
    words = [*BUG, "--store", str(tmp_path)]
    assert main(words) == 1
    usual = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(native, "_EXTENSION", Tripwire())
    monkeypatch.setenv("HARNESS_NATIVE", "0")
    assert main(words) == 1
    plain = json.loads(capsys.readouterr().out)
    assert checked(plain) == checked(usual)
    assert plain["history_sha256"] == usual["history_sha256"]


def test_without_the_switch_the_native_core_is_asked(monkeypatch, run_folder, capsys):
    monkeypatch.setattr(native, "_EXTENSION", Tripwire())
    monkeypatch.delenv("HARNESS_NATIVE", raising=False)
    assert main(["check", str(run_folder)]) == 2
    assert "the native core was asked for" in capsys.readouterr().out
