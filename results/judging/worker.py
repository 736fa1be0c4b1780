"""The worker process of a report. It receives units, and sends their outcomes.

`harness.support.workers` starts it, as `python -m results.judging.worker PARENT CONFIG`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import msgspec

from harness.support.workers import serve
from results.judging.unit_judge import do_units
from results.judging.work_units import RoundConfig, Unit


def outcomes(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Process units (one JSON text per line), and yield their outcomes as JSON."""
    config = msgspec.json.decode(sys.argv[2], type=RoundConfig)
    units = map(msgspec.json.Decoder(Unit).decode, lines)
    yield from map(msgspec.json.encode, do_units(units, config=config))


if __name__ == "__main__":
    serve(outcomes)
