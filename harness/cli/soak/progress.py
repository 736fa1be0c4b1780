"""Shows a soak's progress: a bar and the running seeds on a terminal, or else periodic lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TextIO

from harness.cli.output import note
from harness.cli.run.progress import Progress
from harness.cli.status_line import StatusLine, fitting
from harness.cli.styles import VERDICT_STYLES, bar, joined, styled
from harness.errors import clipped, counted
from harness.soak.result import PASSING, SeedJob, SeedResult, Tally

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPE_INTERVAL_S: Final = 5.0
FAILURES_SHOWN_MAX: Final = 20
FAILURE_CHARACTERS_MAX: Final = 160
RATE_MIN: Final = 0.2  # seeds per second; a slower soak shows seconds per seed


def duration_text(seconds: float) -> str:
    """Format a duration: `45 s`, `12 min`, `3 h 05 min`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


class SoakProgress:
    """The progress display of a soak. Errors of a closed stream are ignored."""

    def __init__(
        self, tally: Tally, total: int, stream: TextIO | None = None, *, may_stop: bool = False
    ) -> None:
        """Show the progress of `tally`, which may already have results, towards `total` seeds.

        `may_stop` means that the soak may end early, after a number of failures.
        """
        self._may_stop = may_stop
        self._tally = tally
        self._total = total
        self._stream = stream
        self._status = StatusLine(stream, pipe_interval_s=PIPE_INTERVAL_S, draw=self._drawn)
        self._begin_s = time.monotonic()
        self._before = tally.seeds
        self._failures_shown = 0
        self._running: dict[int, float] = {}  # seed -> start time
        self._run: Progress | None = None  # the display of the current run in a real environment

    def watched(self, jobs: Iterator[SeedJob]) -> Iterator[SeedJob]:
        """Yield the same jobs; a job counts as running once a worker has taken it."""
        if self._status.terminal:
            self._status.show("")
        for job in jobs:
            self._running[job.seed] = time.monotonic()
            yield job

    def listen(self, seed: int) -> Progress:
        """End the soak's line, and return a display for the run of `seed` in a real environment."""
        self.finish()
        note(f"seed {seed}:")
        self._run = Progress(self._stream)
        return self._run

    def take(self, result: SeedResult) -> None:
        """Record that a seed has ended. Print its failure, unless there were too many."""
        self._running.pop(result.seed, None)
        if self._run is not None:
            self._run.finish()
        if not result.failed:
            return
        self._failures_shown += 1
        if self._failures_shown <= FAILURES_SHOWN_MAX:
            reason = result.reason.splitlines()[0] if result.reason else "no reason given"
            text = f"seed {result.seed}: {result.verdict}: {reason}"
            most = self._status.width if self._status.terminal else FAILURE_CHARACTERS_MAX
            self._status.line(clipped(text, most), VERDICT_STYLES[result.verdict])
        elif self._failures_shown == FAILURES_SHOWN_MAX + 1:
            self._status.line("more seeds fail; the summary lists them")

    def show(self) -> None:
        """Show the progress if the last update is long enough ago.

        Call it after all results that arrive together are counted. With only the first one, the
        rate would be far too low.
        """
        if self._tally.seeds > self._before and self._status.due_s() is not None:
            self._status.show(self.line(time.monotonic() - self._begin_s))

    def line(self, elapsed_s: float) -> str:
        """Format the progress as one line; `elapsed_s` counts from the start or resumption."""
        failures = ", ".join(
            f"{count} {name}"
            for name, count in self._tally.verdicts.items()
            if count and name not in PASSING
        )
        text = f"{self._tally.seeds}/{counted(self._total, 'seed')}, {failures or 'all valid'}"
        return ", ".join([text, *self._pace(elapsed_s)])

    def _pace(self, elapsed_s: float) -> list[str]:
        done = self._tally.seeds
        here = done - self._before
        if not here:
            return []
        rate = here / max(elapsed_s, 1e-9)
        pace = [f"{rate:.1f} seeds/s" if rate >= RATE_MIN else f"{1 / rate:.0f} s per seed"]
        if done < self._total:
            about = "at most" if self._may_stop else "about"
            pace.append(f"{about} {duration_text((self._total - done) / rate)} to go")
        return pace

    def _drawn(self) -> RenderableType:
        from rich.console import Group

        now_s = time.monotonic()
        counts = [
            joined("  ", styled(f"{count} {name}", VERDICT_STYLES[name]))
            for name, count in self._tally.shown.items()
            if count
        ]
        pace = f"  {', '.join(self._pace(now_s - self._begin_s))}"
        done = self._tally.seeds
        text = joined(f"{done}/{counted(self._total, 'seed')}", *counts, pace)
        seeds = [f"seed {seed} ({now_s - at:.0f} s)" for seed, at in list(self._running.items())]
        running = styled(fitting(["running:", *seeds], self._status.width))
        return Group(bar(done, self._total, text), running)

    def finish(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None
        self._status.finish()
