"""Links between nodes, the faults laid on them, and how long a frame takes.

A link is one direction between two nodes. Any number of faults may lie on it; `whole` is false
while there is one, so that the common path tests one flag. Each fault counts the frames it
touched: that is its `Bite`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from harness.cluster import Link, LinkQuality
from harness.environments.sim.knobs import Knobs

_MS: Final = 1_000_000
_TAIL_NS_MIN: Final = 300_000
_TAIL_DOUBLINGS: Final = 12.7  # 0.3 ms times 2**12.7 is 2 s


def latency_law(knobs: Knobs, random: Random) -> Callable[[], int]:
    """A function that draws one latency in ns, from one random number.

    The long tail is piecewise linear in the mantissa instead of a power: `pow` and `log` depend
    on the C library, and a seed must replay everywhere.
    """
    low = int(knobs.latency_ms_min * _MS)
    span = int(knobs.latency_ms_max * _MS) - low
    draw = random.random

    def uniform() -> int:
        return low + int(draw() * span)

    def lan() -> int:
        u = draw()
        return low + int(u * u * span)

    def tail() -> int:
        u = draw()
        if u >= knobs.tail_share:
            return low + int(u * span)
        doublings = u / knobs.tail_share * _TAIL_DOUBLINGS
        whole = int(doublings)
        return int((_TAIL_NS_MIN << whole) * (1.0 + doublings - whole))

    return {"uniform": uniform, "lan": lan, "tail": tail}[knobs.latency]


class LinkFault:
    """One fault on some links: a cut (no quality), or a worse quality."""

    __slots__ = ("links", "quality", "since_ns", "touched")

    def __init__(self, links: list[LinkState], quality: LinkQuality | None, since_ns: int) -> None:
        self.links = links  # those it still lies on
        self.quality = quality
        self.since_ns = since_ns
        self.touched = 0  # frames


class LinkState:
    """One direction between two nodes and the faults on it."""

    __slots__ = ("blocked", "cuts", "free_at_ns", "link", "quality", "shapes", "whole")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.cuts: list[LinkFault] = []
        self.shapes: list[LinkFault] = []
        self.whole = True  # no fault at all
        self.blocked = False  # nothing passes
        self.quality = LinkQuality()
        self.free_at_ns = 0  # when a throttled link has sent what was queued

    def add(self, fault: LinkFault) -> None:
        """Lay a fault on the link."""
        (self.cuts if fault.quality is None else self.shapes).append(fault)
        self._recompute()

    def remove(self, fault: LinkFault) -> None:
        """Take a fault off the link."""
        (self.cuts if fault.quality is None else self.shapes).remove(fault)
        self._recompute()

    def touch_cuts(self) -> None:
        """A frame was swallowed."""
        for fault in self.cuts:
            fault.touched += 1

    def touch_shapes(self) -> None:
        """A frame was held, delayed, dropped, doubled or reordered."""
        for fault in self.shapes:
            fault.touched += 1

    def _recompute(self) -> None:
        shapes = [fault.quality for fault in self.shapes if fault.quality is not None]
        self.quality = LinkQuality.together(shapes)
        self.blocked = self.quality.stall or bool(self.cuts)
        self.whole = not self.cuts and not self.shapes
