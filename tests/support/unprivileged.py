"""`harness` as a user whom a folder can refuse, whoever runs the tests.

Root is refused nowhere. A `Shell` runs commands in a process without any capability, which the
kernel holds to the rights of files like everybody else's; and `refusing` gives a folder to somebody
else meanwhile, where we may. The process keeps its user, so that it still can read what only root
can: Python, the code and the folders that pytest makes.
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
    """What became of a command."""

    code: int
    out: str
    lines: list[str]  # on stderr


class Shell:
    """A process without rights over others' files; close it at the end."""

    def __init__(self):
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.unprivileged"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def harness(self, *words):
        """What became of `harness WORDS...`."""
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
    """`path` is a stranger's, who gave it these rights; where only root may, it stays our own."""
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
    """For good, and for every program that is started from here."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):  # more than there are; who may not do this has none
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def serve():
    """Do the commands that come in, line by line."""
    from harness.cli import main

    for line in sys.stdin:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(json.loads(line))
        print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)


if __name__ == "__main__":
    renounce_capabilities()
    serve()
