"""How a report gets on, in one line: what is done of what, how fast, and how long it will take.

The pace is that of the whole stage since its first word: costly work comes first and parts of it
end together, so that the last seconds say little. Until `SAID_FROM` of the work is done since then,
no end is foretold.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from results.pipeline import Progress

__all__ = ["Pace"]

SAID_FROM: Final = 0.05
MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0


class Pace:
    """Makes lines of what a pipeline says of its progress."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage = ""
        self._begin_s = 0.0
        self._begin: tuple[int, float] = (0, 0.0)

    def line(self, found: Progress) -> str:
        """The line; of another stage than before, or another amount of work, from its start on."""
        now_s = self._clock()
        part = found.cost_done / found.cost if found.cost else 1.0
        stage = f"{found.stage} {found.units} {found.cost}"
        if stage != self._stage:
            self._stage, self._begin_s, self._begin = stage, now_s, (found.done, part)
        what = "checked" if found.stage == "check" else "tried again"
        text = f"{found.done}/{found.units} {found.noun} {what}, about {part:.0%} of the work"
        passed_s = now_s - self._begin_s
        done, gained = found.done - self._begin[0], part - self._begin[1]
        if passed_s <= 0 or gained < SAID_FROM:
            return text
        left_s = passed_s * (1.0 - part) / gained
        return f"{text}, {done / passed_s:.3g} a second, {_duration(left_s)} left"


def _duration(seconds: float) -> str:
    if seconds < 2 * MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    return f"{seconds / HOUR_S:.1f} h"
