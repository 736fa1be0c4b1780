"""`clean` looks at the whole machine: only one test at a time may count what it finds."""

from __future__ import annotations

import contextlib
import fcntl
import os
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
