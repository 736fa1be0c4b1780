"""Soaks in separate processes that a test can kill."""

import contextlib
import os
import signal
import subprocess
import sys

import msgspec

from harness.environments import procfs
from harness.soak import MEASURES

STARTED = []
TIMELY = {"started", "wall_s"}
"""Fields in which two records of the same run may differ."""
LEASELESS = (
    *("--nemesis", "partition-leader", "--bug", "NO-LEASE", "--rate", "20"),
    *("--time-limit", "3", "--interval", "1", "--duration", "1"),
)
"""A short case: seeds 1 and 3 are invalid, 2 and 4 to 7 are valid."""


def words(store, *arguments, prelude=""):
    """Build the command line of a soak; the statements in `prelude` run before the soak."""
    return [
        sys.executable,
        "-P",
        "-c",
        f"{prelude}\nimport sys; from harness.cli import main; sys.exit(main())",
        "soak",
        *("--store", str(store), "--name", "n", "--reporters", "none"),
        *map(str, arguments),
    ]


def soak(store, *arguments):
    """Run a soak to its end; return the exit code, the object of `--json`, and stderr."""
    done = subprocess.run(
        words(store, *arguments, "--json"), capture_output=True, check=False, timeout=600
    )
    assert done.stdout, done.stderr.decode()
    return done.returncode, msgspec.json.decode(done.stdout), done.stderr.decode()


def start(store, *arguments, prelude=""):
    """Start a soak in the background, in a separate process group."""
    process = subprocess.Popen(
        words(store, *arguments, prelude=prelude),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    STARTED.append(process)
    return process


def results(found):
    """Return the results that must be equal, however often a soak was killed."""
    return [
        {name: value for name, value in result.items() if name not in {*MEASURES, "replay", "run"}}
        for result in found["results"]
    ]


def journaled(store):
    """Count the lines of all journals, without the header of each."""
    paths = store.glob("n/.soak/*.log")
    return sum(max(0, path.read_bytes().count(b"\n") - 1) for path in paths)


def contents(store):
    """Return all runs in a store, without times."""
    found = {}
    for folder in sorted((store / "n").iterdir()):
        if folder.name.startswith(".") or folder.is_symlink():
            continue
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        record = msgspec.json.decode(files.pop("run.json"))
        found[folder.name] = (
            files,
            {name: value for name, value in record.items() if name not in TIMELY},
        )
    return found


def workers_of(pid):
    return sorted(filter(alive, procfs.family(pid)[1:]))


def alive(pid):
    """Whether the process runs; false for a zombie."""
    process = procfs.identify(pid)
    return process is not None and procfs.is_alive(process)


def kill(process):
    """Send SIGKILL to the driver only, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()
