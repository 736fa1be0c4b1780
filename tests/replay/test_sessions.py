"""Sessions of `harness replay` and of its debugger, with commands on stdin."""

import json
import re

import pytest

from harness.case import imported_case
from harness.cli import main
from harness.errors import EXIT_INTERRUPTED, EXIT_USAGE
from harness.replay.prompt import Prompt
from tests.replay.conftest import TAKEN_OVER


def test_a_state_as_json(session):
    code, out, _ = session("--until", "time=3", "--json")
    state = json.loads(out)
    assert code == 0
    assert state["moment"]["time_s"] >= 3
    assert len(state["state_sha256"]) == 64


def test_a_node_alone(session):
    _, out, _ = session("--until", "time=3", "--node", "m2")
    assert "RaftCore" in out
    assert "\nm1: " not in out
    code, _, err = session("--until", "time=3", "--node", "m9")
    assert (code, "m9" in err) == (EXIT_USAGE, True)


def test_a_page_in_the_folder_of_the_run(session, run_folder):
    code, out, _ = session("--until", "time=3", case=run_folder)
    assert code == 0
    assert out.splitlines()[-1] == f"page  {run_folder / 'stopped.html'}"
    page = run_folder / "stopped.html"
    assert page.read_text().startswith("<!DOCTYPE html>")
    page.unlink()
    page.mkdir()  # now it cannot be written, as in a read-only store
    code, out, err = session("--until", "time=3", case=run_folder)
    page.rmdir()
    assert code == 0
    assert out.startswith("stopped at ")
    assert "--page FILE" in err


def test_a_session_at_the_prompt(session, tmp_path):
    lines = ["where", "step", "step m2 2", "messages m2", "timers", "faults", "operations"]
    lines += [
        "show m1",
        "",
        "until time=4",
        "until event=checkpoint",
        f"page {tmp_path}/x.html",
        "quit",
    ]
    code, out, _ = session("--until", "time=3", "--step", lines=lines)
    assert code == 0
    assert out.count("(replay) ") == len(lines)
    times = [float(time) for time in re.findall(r"^stopped at ([\d.]+) s", out, re.MULTILINE)]
    assert times == sorted(times)
    assert times[-1] > 4
    assert (tmp_path / "x.html").is_file()


def test_mistakes_at_the_prompt_end_nothing(session):
    lines = [
        "frob",
        "until op=1",
        "until time=1",
        "until x",
        "step m9",
        "step 0",
        "step ²",
        "step a b",
    ]
    lines += ["show m9", "messages m9", "timers m9", "pdb m9", "page", "show 'm1", "where", "quit"]
    code, out, _ = session("--until", "time=3", "--step", lines=lines)
    assert code == 0
    assert out.count("stopped at") == 2  # once at the beginning, and once for `where`


def test_the_prompt_goes_on_to_the_end(session, run_folder, plain):
    code, out, _ = session("--until", "time=3", "--step", lines=["continue"], case=run_folder)
    assert code == 0
    assert f"like the stored run; trace {plain.trace_digest}" in out


def test_the_end_of_stdin_ends_a_session(session):
    code, out, _ = session("--until", "time=3", "--step")
    assert (code, "the run ended" in out) == (0, False)


def test_the_debugger_opens_in_the_code_that_announces(session):
    lines = ["p objects.RaftState.term", "p env.name", "n", "n", "c"]
    code, out, _ = session("--until", TAKEN_OVER, "--pdb", lines=lines)
    assert code == 0
    assert re.search(r"raft_consensus\.py\(\d+\)_announce\(\)", out)
    assert "(pdb m" in out
    # once for the first line, and once for each of two more
    assert out.count("raft_consensus.py") >= 3
    assert "the run ended" in out


def test_looking_with_the_debugger_does_not_change_the_run(session, plain):
    _, out, _ = session("--until", TAKEN_OVER, "--pdb", lines=["w", "n", "n", "n", "c"])
    assert f"trace {plain.trace_digest}" in out


def test_the_debugger_opens_in_another_node(session):
    code, out, _ = session(
        "--until", TAKEN_OVER, "--pdb", "--node", "t1", lines=["p env.name", "q"]
    )
    assert code == 0
    assert "'t1'" in out
    assert "the run ended" not in out


def test_the_debugger_returns_to_the_prompt(session):
    lines = ["pdb", "n", "c", "where", "pdb t1", "c", "where", "quit"]
    code, out, _ = session("--until", TAKEN_OVER, "--step", lines=lines)
    assert code == 0
    assert out.count("stopped at") == 4
    assert out.count("(replay) ") == 5


def test_a_breakpoint_stops_in_a_later_event(session):
    lines = ["b self._tell_owner", "c", "p env.name", "q"]
    code, out, _ = session("--until", TAKEN_OVER, "--pdb", lines=lines)
    assert code == 0
    assert "_tell_owner()" in out.partition("Breakpoint 1")[2]


def test_ctrl_c_at_the_prompt_ends_the_session(session, monkeypatch):
    def interrupted(self, arg):
        raise KeyboardInterrupt

    monkeypatch.setattr(Prompt, "do_where", interrupted)
    code, out, _ = session("--until", "time=3", "--step", lines=["where", "continue"])
    assert (code, "the run ended" in out) == (EXIT_INTERRUPTED, False)


def test_an_imported_history_has_nothing_to_run(session, run_folder, tmp_path):
    for file in run_folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "case.json").write_bytes(imported_case("register").encode())
    code, _, err = session("--until", "time=3", case=tmp_path)
    assert (code, "harness check" in err) == (EXIT_USAGE, True)


def test_without_a_moment_the_case_just_runs(session, run_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = session("--json", case=run_folder)
    assert code == 1
    assert json.loads(out)["environment"] == "sim"
    assert "harness run --env sim --case" in err


def test_a_run_in_real_time_is_refused(session, run_folder, tmp_path):
    for name in ("case.json", "history.parquet"):
        (tmp_path / name).write_bytes((run_folder / name).read_bytes())
    record = json.loads((run_folder / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**record, "environment": "docker"}))
    code, _, err = session("--until", "time=3", case=tmp_path)
    assert code == EXIT_USAGE
    assert "harness run --env sim --case" in err


@pytest.mark.parametrize(
    "words",
    [
        *(["--until", "x"], ["--pdb"], ["--node", "m1"], ["--page", "x.html"]),
        *(["--json", "--step"], ["--until", "op=1", "--json", "--pdb"], ["--until", "op=99999"]),
    ],
)
def test_wrong_calls(words, session):
    code, out, err = session(*words)
    assert (code, out) == (EXIT_USAGE, "")
    assert err.startswith("harness: ")


def test_a_run_that_does_not_exist(tmp_path, capsys):
    assert main(["replay", str(tmp_path / "no"), "--until", "op=1"]) == EXIT_USAGE
    assert "cannot read" in capsys.readouterr().err
