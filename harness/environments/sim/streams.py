"""The random streams of a simulated world, which can all switch to fresh ones at one moment.

Runs with equal seeds are equal until the switch, and independent of each other after it. So the
share of such runs that fail is the probability of the failure, given all that happened before the
switch (the knobs `reseed_at_s` and `reseed`). Only random draws are fresh after the switch. Data of
the case stays as planned: faults with their arguments, the places of bit rot, and explicit
operations.
"""

from __future__ import annotations

from random import Random

from harness.case import stream


class Streams:
    """All random streams of one world, by label."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        """the seed of the case, which the switch does not change"""
        self._root = str(seed)
        self._streams: list[tuple[str, Random]] = []

    def open(self, label: str) -> Random:
        """Return the stream for `label`, which is fresh if the switch has happened."""
        return self.adopt(label, stream(self._root, label))

    def adopt(self, label: str, random: Random) -> Random:
        """Include a stream that was opened elsewhere; return the same object."""
        self._streams.append((label, random))
        if self._root != str(self.seed):
            self._refresh(label, random)
        return random

    def switch(self, reseed: int) -> None:
        """Make all streams fresh, in place; `reseed` decides all later draws."""
        self._root = f"{self.seed}/reseed/{reseed}"
        for label, random in self._streams:
            self._refresh(label, random)

    def _refresh(self, label: str, random: Random) -> None:
        random.setstate(stream(self._root, label).getstate())
