"""The event loop of a node, whose timers go wrong with its clock.

`time()` is the node's monotonic clock, as `harness.env.Clock` promises. The kernel waits by the
right time, so a wait is made shorter for a fast clock and longer for a slow one; a change of rate
comes through the loop itself, which then looks at its timers again.
"""

from __future__ import annotations

import asyncio
import selectors

from harness.environments.faulty import FaultyClock


class _Selector(selectors.DefaultSelector):
    """Waits by a clock that may be wrong."""

    def __init__(self, clock: FaultyClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # The kernel rounds up to its own ms.
        if timeout is not None and timeout > 0:
            timeout /= self._clock.rate
        return super().select(timeout)


class DriftingLoop(asyncio.SelectorEventLoop):
    """A loop on which `timeout_s` are seconds of the node's own clock."""

    def __init__(self, clock: FaultyClock) -> None:
        super().__init__(_Selector(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.monotonic_ns() / 1e9
