"""The worker of a soak, see `harness.support.workers`: it reads one seed and answers with one
result.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

import msgspec

from harness.soak.identity import other_code
from harness.soak.result import SeedJob
from harness.soak.seed import run_seed, stopped
from harness.support.workers import serve


def results(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The result of each job."""
    gc.freeze()
    decoder = msgspec.json.Decoder(SeedJob)
    checked: str | None = None
    for line in lines:
        job = decoder.decode(line)
        why = None  # the seed must not run here: the code differs from the soak's
        if checked is None or checked != job.code:
            why = other_code(job.case, "sim", job.code)
        checked = job.code
        yield msgspec.json.encode(run_seed(job) if why is None else stopped(job, why))
        gc.collect()


if __name__ == "__main__":
    serve(results)
