"""The exit code follows the verdict, even if no process reads the output."""

import io
import os
import subprocess
from pathlib import Path

import pytest

from harness.cli import main
from harness.cli.run.progress import Progress
from harness.ops import HARNESS, Op, OpType
from tests.cli.conftest import PROGRAM

RUN = ["run", "--env", "sim", "--target", "toy-register", "--workload", "register", "--seed", "1"]
RUN += ["--time-limit", "1", "--reporters", "none"]


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def unbuffered(request, monkeypatch):
    """Run with and without Python's output buffers.

    With buffers, Python tries once more to write at exit.
    """
    monkeypatch.setenv("PYTHONUNBUFFERED", request.param)


def exit_code(words, tmp_path, **streams):
    return subprocess.run([*PROGRAM, *words], cwd=tmp_path, check=False, **streams).returncode


@pytest.fixture
def deaf_pipe(unbuffered):
    """Return the write end of a pipe that has no reader."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_a_closed_pipe_for_results(deaf_pipe, tmp_path):
    assert exit_code(RUN, tmp_path, stdout=deaf_pipe, stderr=subprocess.DEVNULL) == 0


def test_a_closed_pipe_for_progress(deaf_pipe, tmp_path):
    assert exit_code(RUN, tmp_path, stdout=subprocess.DEVNULL, stderr=deaf_pipe) == 0


@pytest.mark.usefixtures("unbuffered")
def test_a_full_stdout_is_said_and_changes_no_verdict(tmp_path):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, *RUN], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 0
    assert b"cannot be printed: No space left" in done.stderr


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_are_never_files_of_ours(closed, tmp_path):
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, *RUN]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0
    (folder,) = (tmp_path / "store" / "register-none").glob("2*")
    assert main(["check", str(folder)]) == 0


@pytest.mark.parametrize(
    ("f", "value", "words"),
    [
        ("node-exit", {"node": "m1", "expected": False}, "m1 ended by itself"),
        ("node-exit", {"node": "m1", "expected": False, "by": "itself"}, "m1 ended by itself"),
        ("node-exit", {"node": "m1", "expected": False, "by": "host"}, "m1 ended by its host"),
        ("infrastructure", {"node": None, "what": "the engine is away"}, "the engine is away"),
        ("infrastructure", {"node": "t1", "what": "was stopped"}, "t1: was stopped"),
    ],
)
def test_progress_blames_no_other_process(f, value, words):
    stream = io.StringIO()
    progress = Progress(stream)
    progress(Op(0, 0, HARNESS, OpType.INFO, f, value))
    progress.finish()
    assert words in stream.getvalue()


def test_progress_survives_its_terminal():
    stream = io.StringIO()
    progress = Progress(stream)
    stream.close()
    progress(Op(0, 0, HARNESS, OpType.INFO, "phase", {"phase": "chaos"}))
    progress.finish()
