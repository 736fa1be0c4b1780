"""The random streams of a simulated world, all of which can be reseeded at one moment.

Runs with the same seed but different values of the knob `reseed` are identical up to the time
`reseed_at_s` (the *switch* to fresh streams), and independent afterwards. The share of them that
fails estimates how likely a failure is after this common beginning. Only random choices change.
All that the case fixes in advance stays the same: faults with their arguments, the places of bit
rot, and explicit operations.
"""

from __future__ import annotations

from random import Random

from harness.case import stream


class Streams:
    """All random streams of one world, by label."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        """the case's seed, which stays the same after the switch"""
        self._root = str(seed)
        self._streams: list[tuple[str, Random]] = []

    def open(self, label: str) -> Random:
        """Return the stream for `label`; after the switch, a fresh one."""
        return self.adopt(label, stream(self._root, label))

    def adopt(self, label: str, random: Random) -> Random:
        """Add a stream that was created elsewhere, and return it."""
        self._streams.append((label, random))
        if self._root != str(self.seed):
            self._refresh(label, random)
        return random

    def switch(self, reseed: int) -> None:
        """Reseed all streams in place; `reseed` determines all later choices."""
        self._root = f"{self.seed}/reseed/{reseed}"
        for label, random in self._streams:
            self._refresh(label, random)

    def _refresh(self, label: str, random: Random) -> None:
        random.setstate(stream(self._root, label).getstate())
