"""A soak whose disk fills up stops with a clear message, and counts no lost run as valid."""

import subprocess
from pathlib import Path

import pytest

from harness.errors import EXIT_CRASH
from tests.soak.commands import contents, journaled, results, soak

pytestmark = [pytest.mark.slow, pytest.mark.process]

WORK = (
    *("--seeds", "1..16", "--jobs", "1", "--target", "toy-register"),
    *("--workload", "register", "--nemesis", "none", "--time-limit", "1"),
)


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 128 KiB; yield it, and a function that enlarges it."""
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(path)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")

    def enlarge():
        subprocess.run(["mount", "-o", "remount,size=64m", str(path)], check=True)

    yield path, enlarge
    subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_stops_the_soak_and_with_more_room_it_goes_on(tmp_path, small_disk):
    store, enlarge = small_disk
    for _ in range(2):  # the second time, the disk is full from the start
        code, found, said = soak(store, *WORK)
        assert code == EXIT_CRASH
        assert "No space left on device" in said
        assert "the same command continues" in said
        assert "Traceback" not in said
        done = found["seeds"]
        assert 0 < done < 16
        assert found["verdicts"]["valid"] == done == journaled(store)
        kept = [folder for folder in (store / "n").glob("soak-*") if (folder / "run.json").exists()]
        assert len(kept) >= done  # a run may be complete even if its line in the journal is torn
        assert not list((store / "n").glob("soak-*/.*.part"))
    enlarge()
    code, found, _ = soak(store, *WORK)
    assert (code, found["done_before"], found["seeds"]) == (0, done, 16)
    _, whole, _ = soak(tmp_path / "large", *WORK)
    assert results(found) == results(whole)
    assert contents(store) == contents(tmp_path / "large")


def test_a_summary_that_finds_no_room_shows_in_the_exit_code(tmp_path):
    files = ("--junit", "/dev/full", "--summary-json", "/dev/full", "--github-summary", "/dev/full")
    code, found, said = soak(tmp_path, *WORK, "--seeds", "1..1", *files)
    assert (code, found["seeds"]) == (EXIT_CRASH, 1)
    assert "choose another --junit" in said
    assert "choose another --summary-json" in said
    assert "cannot write the step summary /dev/full: No space left on device" in said
    assert Path("/dev/full").is_char_device()  # the device was not replaced by a file
