"""`harness` as a user without root's rights, even if root runs the tests.

A `Shell` runs commands in a process without any capability, so the kernel enforces file
permissions. `refusing` gives a folder to another user for a while, if the tests may do so. The
process keeps its user, so that it can still read root's files: Python, the code, and pytest's
folders.
"""

import contextlib
import ctypes
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
STRANGER = 65534
PR_CAPBSET_DROP = 24
CAPABILITY_VERSION_3 = 0x20080522


class Said(NamedTuple):
    code: int
    out: str
    lines: list[str]  # the lines on stderr


class Shell:
    """A process without rights to files of other users; close it at the end."""

    def __init__(self):
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.unprivileged"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def harness(self, *words):
        self._process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        self._process.stdin.flush()
        code, out, err = json.loads(self._process.stdout.readline())
        return Said(code, out, err.splitlines())

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextlib.contextmanager
def refusing(path, mode):
    """Give `path` to another user with these permissions; without root, only set permissions."""
    before = path.stat()
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER)
    try:
        yield
    finally:
        if os.geteuid() == 0:
            os.chown(path, before.st_uid, before.st_gid)
        path.chmod(before.st_mode & 0o7777)


def renounce_capabilities():
    """Give up all capabilities, permanently and for all child processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    # more capabilities than the kernel has; a process without them has none to give up
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def serve():
    """Execute commands from stdin, line by line."""
    from harness.cli import main

    for line in sys.stdin:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(json.loads(line))
        print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)


if __name__ == "__main__":
    renounce_capabilities()
    serve()
