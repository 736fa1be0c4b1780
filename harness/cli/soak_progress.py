"""How a soak gets on: one rewritten line on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from typing import Final, TextIO

from harness.cli.status_line import StatusLine
from harness.soak.result import PASSING, SeedResult, Tally

__all__ = ["SoakProgress", "duration_text"]

PIPE_INTERVAL_S: Final = 5.0
FAILURES_SHOWN_MAX: Final = 20
RATE_MIN: Final = 0.2  # seeds a second; what is slower is told in seconds a seed


def duration_text(seconds: float) -> str:
    """A duration for people: `45 s`, `12 min`, `3 h 05 min`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


class SoakProgress:
    """Shows results as they come. `finish` ends the line; a stream that is gone is no error."""

    def __init__(self, tally: Tally, total: int, stream: TextIO | None = None) -> None:
        """Follow `tally`, of which `total` seeds are wanted; write to `stream` (stderr)."""
        self._tally = tally
        self._total = total
        self._before = tally.seeds
        self._status = StatusLine(stream, pipe_interval_s=PIPE_INTERVAL_S)
        self._begin_s = time.monotonic()
        self._failures_shown = 0

    def take(self, result: SeedResult) -> None:
        """One more result is in; it is in the tally already. `show` tells where that leaves us."""
        if not result.failed:
            return
        self._failures_shown += 1
        if self._failures_shown <= FAILURES_SHOWN_MAX:
            reason = result.reason.splitlines()[0] if result.reason else "no reason given"
            self._status.line(f"seed {result.seed}: {result.verdict}: {reason}")
        elif self._failures_shown == FAILURES_SHOWN_MAX + 1:
            self._status.line("more seeds fail; the summary lists them")

    def show(self) -> None:
        """Say where it stands, if it is time to.

        Not before the results that arrived together are all taken: a rate and a time to go of the
        first of them would be far off.
        """
        if self._tally.seeds > self._before and self._status.due_s() is not None:
            self._status.show(self.line(time.monotonic() - self._begin_s))

    def line(self, elapsed_s: float) -> str:
        """Where it stands, `elapsed_s` after the start of this session."""
        done = self._tally.seeds
        here = done - self._before
        failures = ", ".join(
            f"{count} {name}"
            for name, count in self._tally.verdicts.items()
            if count and name not in PASSING
        )
        text = f"{done}/{self._total} seeds, {failures or 'all valid'}"
        if here:
            rate = here / max(elapsed_s, 1e-9)
            pace = f"{rate:.1f} seeds/s" if rate >= RATE_MIN else f"{1 / rate:.0f} s a seed"
            text += f", {pace}"
            if done < self._total:
                text += f", about {duration_text((self._total - done) / rate)} to go"
        return text

    def finish(self) -> None:
        """End the rewritten line."""
        self._status.finish()
