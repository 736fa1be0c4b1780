"""Gives one test at a time exclusive use of `harness clean`, which acts on the whole machine.

The tests count leftovers of dead drivers and wardens, which only `clean` removes.
"""

import contextlib
import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

# evaluated at collection, so that tests that use another temporary folder share the lock
LOCK = Path(tempfile.gettempdir()) / f"harness-tests-clean-{os.getuid()}.lock"


@contextlib.contextmanager
def only_cleaner() -> Iterator[None]:
    """Prevent other tests, of any suite on this machine, from cleaning in the meantime."""
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kill_at_once(*pids: int) -> None:
    """Send SIGKILL to all, so that none of them can react to the death of another."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            # the process ended together with an earlier one
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
