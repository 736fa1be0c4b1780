"""No cleaner touches runs in another PID namespace, because it cannot see their processes."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.environments.controller import this_controller
from harness.environments.process import ProcessEnvironment
from harness.environments.scratch import OWNER_FILE, SCRATCH_PREFIX, left_folders, remove_signed
from harness.errors import CleaningError
from tests.process.conftest import REPOSITORY, controller
from tests.support.cleaning import only_cleaner
from tests.support.programs import run_program
from tests.support.waiting import LIMIT_S, wait_until

INSIDE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def can_unshare():
    try:
        return subprocess.run([*INSIDE, "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


namespaces = pytest.mark.skipif(not can_unshare(), reason="no PID namespaces here (unshare, root)")


def scratch_of(run_id):
    return list(Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}{run_id}-*"))


def clean_inside():
    program = "from harness.environments.process import ProcessEnvironment as P; print(P().clean())"
    with only_cleaner():
        done = run_program(*INSIDE, sys.executable, "-c", program, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return done.stdout


@namespaces
@pytest.mark.process
def test_a_live_run_outside_is_left_alone_from_inside():
    run_id = f"outside-{os.getpid()}"
    with controller(run_id, "-m", "tests.process.controller", run_id, 600, "-") as (process, _):
        assert f"left {scratch_of(run_id)[0]} alone" in clean_inside()
        assert [process.poll(), len(scratch_of(run_id))] == [None, 1]


@namespaces
@pytest.mark.process
def test_a_live_run_inside_is_left_alone_from_outside():
    run_id = f"inside-{os.getpid()}"
    words = (sys.executable, "-m", "tests.process.controller", run_id, 600, "-")
    process = subprocess.Popen(
        [*INSIDE, *map(str, words)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline(), "the controller did not come up"
        with only_cleaner():
            lines = [line for line in ProcessEnvironment().clean() if run_id in line]
        assert [len(lines), "alone" in lines[0]] == [1, True]
        assert [process.poll(), len(scratch_of(run_id))] == [None, 1]
    finally:
        process.kill()
        process.wait(LIMIT_S)
        process.stdout.close()
        for folder in scratch_of(run_id):
            remove_signed(folder)
    wait_until(lambda: scratch_of(run_id) == [])


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def dead_folder(below, name, **fields):
    """Create a scratch folder whose controller is certainly dead."""
    folder = below / f"{SCRATCH_PREFIX}{name}"
    folder.mkdir()
    owner = {"run_id": name, "controller": str(this_controller()._replace(boot_id="0-0")), **fields}
    (folder / OWNER_FILE).write_text(json.dumps(owner))
    return folder


def test_a_damaged_or_hostile_entry_stops_nothing_else(temporary, monkeypatch):
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / OWNER_FILE).write_text("{}")
    (temporary / f"{SCRATCH_PREFIX}a-link").symlink_to(elsewhere)
    (temporary / f"{SCRATCH_PREFIX}b-file").write_text("x")
    dead_folder(temporary, "c-no-run", run_id=None)
    dead_folder(temporary, "d-no-controller", controller="12:3")
    (temporary / f"{SCRATCH_PREFIX}e-unsigned").mkdir()
    dead_folder(temporary, "f-unseen", controller=str(this_controller()._replace(pid_namespace=1)))
    resists, goes = dead_folder(temporary, "g-resists"), dead_folder(temporary, "h-dead")

    def remove(folder):
        if folder == resists:
            raise PermissionError("no")
        remove_signed(folder)

    monkeypatch.setattr("harness.environments.process.cleaning.remove_signed", remove)
    with only_cleaner(), pytest.raises(CleaningError) as failed:
        ProcessEnvironment().clean()
    mine = [line for line in failed.value.removed if str(temporary) in line]
    assert [line.split()[0] for line in mine] == ["left"] * 5 + ["removed"]
    assert ["g-resists" in failed.value.failures[0], goes.exists()] == [True, False]
    assert len(list(temporary.iterdir())) == 8


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        Path.mkdir,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path),
        lambda path: path.write_bytes(b"[" * 100_000),
    ],
)
def test_a_signature_that_is_no_small_file_is_not_read(temporary, make):
    folder = temporary / f"{SCRATCH_PREFIX}hostile"
    folder.mkdir()
    make(folder / OWNER_FILE)
    dead_folder(temporary, "later")
    left = dict(left_folders())
    assert left[folder].startswith(f"its {OWNER_FILE} cannot be read")
    assert len(left) == 2


def test_a_removal_that_is_killed_leaves_the_signature(tmp_path, monkeypatch):
    folder = dead_folder(tmp_path, "half")
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("x")

    def killed(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.environments.scratch.shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        remove_signed(folder)
    assert (folder / OWNER_FILE).exists()
    monkeypatch.undo()
    remove_signed(folder)
    remove_signed(folder)  # another cleaner was faster
    assert not folder.exists()
