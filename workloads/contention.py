"""How operations meet, in every workload that has these options: clients that only read, bursts."""

from __future__ import annotations

import random
from typing import Final

from harness.case import Case
from harness.plugins import Option

_BURST_PERCENT: Final = 30
"""How many of the operations that come by themselves begin a burst."""
READERS: Final = Option(
    "readers", 25, "this share of the clients only reads, in percent", within=(0, 100)
)
_BURST_MAX: Final = 1000


def burst_option(default: int, of: str) -> Option:
    """`--burst`, where a burst is `of` something ("operations at once on one name")."""
    return Option("burst", default, f"bursts of 2 to this many {of}; 1: none", (1, _BURST_MAX))


def draw_burst(burst: int, rng: random.Random) -> int:
    """How many operations come together now: 1, or from 2 to `burst`, drawn from `rng`."""
    starts = burst > 1 and rng.randrange(100) < _BURST_PERCENT
    return 2 + rng.randrange(burst - 1) if starts else 1


def readers_of(case: Case) -> int:
    """How many clients only read; they are the first ones."""
    return case.concurrency * int(case.workload_options["readers"]) // 100
