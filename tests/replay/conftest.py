"""A short case in which the leader is cut off and another master takes over."""

import io
import sys

import msgspec
import pytest

from harness.case import Case
from harness.cli import main
from harness.environments.sim import SimEnvironment
from harness.plan.planning import plan_case
from harness.replay.gather import look
from harness.replay.moments import Quit, parse_until
from harness.replay.replay import Replay
from harness.run.phases import conduct

CASE = Case(
    seed=7,
    bugs=("NO-LEASE",),
    nemeses=("partition-leader",),
    time_limit_s=6.0,
    interval_s=2.0,
    rate=30.0,
)
TAKEN_OVER = "event=leader,term=2"


@pytest.fixture(scope="session")
def plain():
    """Run the case without stops, and return the run's outcome."""
    return conduct(plan_case(CASE, SimEnvironment()), SimEnvironment(), run_id="x", folder=None)


@pytest.fixture(scope="session")
def stopped():
    """Return a function that replays the case up to a moment, and caches the state there."""
    states = {}

    def state_at(moment):
        if moment not in states:
            states[moment] = state_of(CASE, moment)
        return states[moment]

    return state_at


def state_of(case, moment):
    states = []
    replay = Replay(case)

    def on_stop(watch, stop):
        states.append(look(replay.plan, watch, stop))
        return Quit()

    replay.run(parse_until(moment), on_stop)
    return states[0]


@pytest.fixture
def session(tmp_path, monkeypatch, capsys):
    """Return a function that runs `harness replay` with these lines on stdin.

    The function returns the exit code, stdout and stderr.
    """
    file = tmp_path / "case.json"
    file.write_bytes(CASE.encode())

    def run(*words, lines=(), case=file):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        code = main(["replay", str(case), "--quiet", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """Run the case and keep it; return its folder."""
    store = tmp_path_factory.mktemp("store")
    file = store / "case.json"
    file.write_bytes(CASE.encode())
    words = ["run", "--env", "sim", "--case", str(file), "--quiet", "--reporters", "none"]
    assert main([*words, "--store", str(store), "--name", "x"]) in {0, 1}
    (folder,) = (store / "x").glob("2*")
    return folder


def changed(case, **fields):
    return msgspec.structs.replace(case, **fields)
