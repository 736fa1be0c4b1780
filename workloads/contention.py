"""Options for contention: clients that only read, and bursts of operations."""

from __future__ import annotations

import random
from typing import Final

from harness.case import Case
from harness.plugins import Option

_BURST_PERCENT: Final = 30
"""Percentage of operations outside a burst that start one."""
READERS: Final = Option(
    "readers", 25, "this share of the clients only reads, in percent", within=(0, 100)
)
_BURST_MAX: Final = 1000


def burst_option(default: int, of: str) -> Option:
    """The option `--burst`; `of` describes the burst ("operations at once on one name")."""
    return Option("burst", default, f"bursts of 2 to this many {of}; 1: none", (1, _BURST_MAX))


def draw_burst(burst: int, rng: random.Random) -> int:
    """The size of the next group of operations: 1, or from 2 to `burst`, drawn from `rng`."""
    starts = burst > 1 and rng.randrange(100) < _BURST_PERCENT
    return 2 + rng.randrange(burst - 1) if starts else 1


def readers_of(case: Case) -> int:
    """The number of clients that only read: the first ones."""
    return case.concurrency * int(case.workload_options["readers"]) // 100
