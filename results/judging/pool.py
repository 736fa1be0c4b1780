"""Units in worker processes of this machine.

A unit whose worker died, or hung for much longer than its budget allows, is tried again. One that
kills again and again is given up by the worker itself (see `results.judging.markers.Marker`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Final

import msgspec

from harness.support.workers import Busy, WorkerPool
from results.judging.work_units import STAGES_BESIDE_CHECKS, Done, RoundConfig, Unit, stages_of

_HANG_FACTOR: Final = 4.0
_HANG_S: Final = 60.0
_DEATHS_A_STAGE: Final = 2


def in_workers(
    units: Sequence[Unit], config: RoundConfig, jobs: int
) -> Generator[Done, None, None]:
    """Do units in `jobs` processes, which end with the generator; a lost unit yields nothing."""
    pool: WorkerPool[Unit, Done] = WorkerPool(
        module="results.judging.worker",
        arguments=[msgspec.json.encode(config).decode()],
        answer=Done,
        timeout_s=_silence_max_s,
        deaths_max=_deaths_max,
        retry_hung=True,
        is_last=lambda done: done.part >= 1.0,
    )
    with contextlib.closing(pool.run(units, jobs)) as answers:
        for unit, answer in answers:
            if isinstance(answer, Done):
                yield answer
            elif isinstance(answer, Busy):
                yield Done(unit.unit_id, 0, (), part=0.0, memory_bytes=answer.memory_bytes)


def _deaths_max(unit: Unit) -> int:
    """Every stage of a unit (reading, each checker, facts) may kill twice; then it is lost."""
    return _DEATHS_A_STAGE * stages_of(unit) + 1


def _silence_max_s(unit: Unit) -> float:
    """The longest time that one run of a unit may take."""
    stages = len(unit.checks) + STAGES_BESIDE_CHECKS
    return _HANG_S + unit.budget.cpu_s * stages * _HANG_FACTOR
