"""The worker of a soak: one JSON line in, one out. Whatever else is printed goes to stderr.

`python -m harness.soak PARENT`, where PARENT is the process that started it. On Linux the kernel
kills the worker when its parent (to be exact: the thread that started it) ends, however it ends:
an orphan would go on writing into a store that the next soak owns by then.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
from typing import Final

import msgspec

from harness.errors import EXIT_CRASH, EXIT_INTERRUPTED
from harness.soak.identity import other_code
from harness.soak.result import SeedJob
from harness.soak.seed import run_seed, stopped

PR_SET_PDEATHSIG: Final = 1  # <sys/prctl.h>


def _die_with(parent: int) -> None:
    """Ask for SIGKILL at the parent's death, which may have come already."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(EXIT_CRASH)


def main() -> None:
    """Answer until stdin ends."""
    _die_with(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    gc.freeze()
    decoder = msgspec.json.Decoder(SeedJob)
    checked: str | None = None
    for line in sys.stdin.buffer:
        job = decoder.decode(line)
        why = None  # it must not run here: this is other code than the soak began with
        if checked is None or checked != job.code:
            why = other_code(job.case, "sim", job.code)
        checked = job.code
        result = run_seed(job) if why is None else stopped(job, why)
        answers.write(msgspec.json.encode(result) + b"\n")
        answers.flush()
        gc.collect()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(EXIT_CRASH)  # the soak is gone: there is nobody to answer
