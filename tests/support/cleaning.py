"""`clean` looks at the whole machine: only one test at a time may count what it finds.

What it is to find is what nobody undid, since all who would have are dead.
"""

import contextlib
import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

# As it is when tests are collected: one that looks elsewhere for temporary files must wait, too.
LOCK = Path(tempfile.gettempdir()) / f"harness-tests-clean-{os.getuid()}.lock"


@contextlib.contextmanager
def only_cleaner() -> Iterator[None]:
    """No other test, of any suite on this machine, cleans meanwhile."""
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kill_at_once(*pids: int) -> None:
    """SIGKILL to all; none of them lives to see another's end, and to act on it."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it ended with one before it
                os.kill(pid, number)
