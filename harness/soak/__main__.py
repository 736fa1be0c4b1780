"""The worker process of a soak (`harness.support.workers`), which runs one seed per job."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

import msgspec

from harness.soak.identity import other_code
from harness.soak.result import SeedJob
from harness.soak.seed import run_seed, stopped
from harness.support.workers import serve


def results(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the encoded result of each encoded job in `lines`."""
    gc.freeze()
    decoder = msgspec.json.Decoder(SeedJob)
    checked: str | None = None
    for line in lines:
        job = decoder.decode(line)
        why = None  # why this worker must not run the seed: its code is not the soak's
        if checked is None or checked != job.code:
            why = other_code(job.case, "sim", job.code)
        checked = job.code
        yield msgspec.json.encode(run_seed(job) if why is None else stopped(job, why))
        gc.collect()


if __name__ == "__main__":
    serve(results)
