"""`harness import` finds independent keys, chooses the checker, and refuses bad input."""

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.store import load_run

SURE = [
    "{:process 0, :type :invoke, :f :write, :value [1 3]}",
    "{:process 0, :type :ok, :f :write, :value [1 3]}",
    "{:process 0, :type :invoke, :f :read, :value [1 nil]}",
    "{:process 0, :type :ok, :f :read, :value [1 3]}",
    "{:process :nemesis, :type :info, :f :start, :value nil}",
    "{:process 1, :type :invoke, :f :read, :value [2 nil]}",
    "{:process 1, :type :ok, :f :read, :value [2 0]}",
]
WRONG = [*SURE[:-1], SURE[-1].replace("[2 0]", "[2 9]")]


def imported(tmp_path, capsys, lines, *arguments):
    file = tmp_path / "history.edn"
    file.write_text("\n".join(lines) + "\n")
    assert main(["import", str(file), "--store", str(tmp_path / "store"), *arguments]) == 0
    said = capsys.readouterr()
    return load_run(Path(said.out.strip())), said.err


@pytest.mark.parametrize("arguments", [(), ("--independent",), ("--model", "register")])
def test_independent_keys_are_recorded_and_said(tmp_path, capsys, arguments):
    run, said = imported(tmp_path, capsys, SURE, *arguments)

    assert run.case.independent is True
    assert run.case.model == ("register" if "register" in arguments else "cas-register")
    assert f"2 independent keys, each judged separately as {run.case.model}" in said
    assert ("--no-independent" in said) == ("--independent" not in arguments)
    assert run.history[3].value == [1, 3]


def test_values_of_one_object_stay_so(tmp_path, capsys):
    lines = [
        "{:process 0, :type :invoke, :f :add, :value [1 3]}",
        "{:process 0, :type :ok, :f :add, :value [1 3]}",
    ]
    run, said = imported(tmp_path, capsys, lines, "--model", "set", "--no-independent")
    assert run.case.independent is False
    assert said == ""
    plain = [line.replace("[1 3]", "3") for line in lines]
    run, _ = imported(tmp_path, capsys, plain, "--model", "set")
    assert run.case.independent is None


@pytest.mark.slow
@pytest.mark.parametrize(("lines", "code"), [(SURE, 0), (WRONG, 1)])
def test_the_run_is_judged_as_its_file_is_and_a_report_finds_the_key(tmp_path, capsys, lines, code):
    run, _ = imported(tmp_path, capsys, lines)
    assert main(["check", str(tmp_path / "history.edn")]) == code
    assert main(["check", str(run.folder)]) == code
    capsys.readouterr()
    assert main(["report", str(tmp_path / "store"), "--executor", "inline", "--json"]) == code
    content = json.loads(capsys.readouterr().out)
    assert content["verdicts"]["invalid" if code else "valid"] == content["runs"] == 1


@pytest.mark.parametrize(
    ("lines", "arguments", "words"),
    [
        (SURE, ("--independent", "--workload", "register"), "--independent is for the models"),
        (["{:process 0, :type :invoke, :f :write, :value 3}"], ("--independent",), "[key value]"),
        (
            [
                "{:process 0, :type :invoke, :f :read, :value nil}",
                "{:process 0, :type :ok, :f :read, :value [1 3]}",
            ],
            ("--independent",),
            "op 0 is 'read' without a key",
        ),
        (
            [SURE[0], "{:process 0, :type :ok, :f :write, :value [2 3]}"],
            ("--independent",),
            "op 1 completes an operation on the key 1",
        ),
        ([*SURE, SURE[0].replace(":write", ":pop")], ("--model", "register"), "op 7"),
        ([SURE[4]], ("--independent", "--model", "register"), "no client did anything"),
    ],
)
def test_histories_not_judged_by_key_are_refused(tmp_path, capsys, lines, arguments, words):
    file = tmp_path / "history.edn"
    file.write_text("\n".join(lines) + "\n")
    store = tmp_path / "store"
    assert main(["import", str(file), "--store", str(store), *arguments]) == 254
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert not store.exists()
