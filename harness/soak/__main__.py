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
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from harness.errors import EXIT_CRASH, EXIT_INTERRUPTED
from harness.soak.identity import other_code
from harness.soak.result import CRASH, SeedJob, SeedResult
from harness.soak.seed import run_seed

PR_SET_PDEATHSIG: Final = 1  # <sys/prctl.h>


def _die_with(parent: int) -> None:
    """Ask for SIGKILL at the parent's death, which may have come already."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(EXIT_CRASH)


def _jobs_from(lines: Iterable[bytes]) -> Iterator[SeedJob]:
    decoder = msgspec.json.Decoder(SeedJob)
    for line in lines:
        yield decoder.decode(line)


def _refusal(job: SeedJob) -> SeedResult | None:
    """Why this worker must not run the job: it runs other code than the soak began with."""
    why = other_code(job.case, "sim", job.code)
    if why is None:
        return None
    return SeedResult(seed=job.case.seed, verdict=CRASH, reason=why, stop=why)


def main() -> None:
    """Answer until stdin ends."""
    _die_with(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    gc.freeze()
    checked: str | None = None
    for job in _jobs_from(sys.stdin.buffer):
        refusal = None if checked is not None and checked == job.code else _refusal(job)
        checked = job.code
        answers.write(msgspec.json.encode(refusal or run_seed(job)) + b"\n")
        answers.flush()
        gc.collect()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(EXIT_CRASH)  # the soak is gone: there is nobody to answer
