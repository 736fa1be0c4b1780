"""Links between nodes, the faults on them, and the latency of a frame.

A link is one direction between two nodes and may have any number of faults. The flag `whole` is
true while a link has no fault, so that the common case tests only one flag. Each fault counts the
frames that it affects on the link, for its `Bite` (measured effect).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from harness.cluster import Link, LinkQuality
from harness.environments.sim.knobs import Knobs

_MS: Final = 1_000_000
_TAIL_NS_MIN: Final = 300_000
_TAIL_DOUBLINGS: Final = 12.7  # the longest tail latency is 0.3 ms * 2**12.7, or 2 s


def latency_law(knobs: Knobs, random: Random) -> Callable[[], int]:
    """Return a function that draws one latency in ns from the distribution that `knobs` name.

    The long tail is piecewise linear in the mantissa instead of a power: `pow` and `log` depend on
    the C library, but a seed must replay on every machine.
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


class FaultOnLink:
    """A fault on one link: a cut (`quality` is `None`) or a worse quality."""

    __slots__ = ("quality", "since_ns", "touched")

    def __init__(self, quality: LinkQuality | None, since_ns: int) -> None:
        self.quality = quality
        self.since_ns = since_ns
        self.touched = 0  # the number of frames that the fault has affected


class Direction:
    """One link, from one node to another, with the faults on it."""

    __slots__ = ("blocked", "cuts", "faults", "free_at_ns", "link", "quality", "shapes", "whole")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.faults: dict[str, FaultOnLink] = {}
        self.cuts: list[FaultOnLink] = []
        self.shapes: list[FaultOnLink] = []
        self.whole = True  # the link has no fault
        self.blocked = False  # no frame passes the link
        self.quality = LinkQuality()
        self.free_at_ns = 0  # when a throttled link has sent all of its queue

    def set(self, wanted: Mapping[str, LinkQuality | None], now_ns: int) -> dict[str, FaultOnLink]:
        """Set the faults on the link, by id. Returns the faults that were removed, by id."""
        old = self.faults
        self.faults = {
            fault: old.get(fault) or FaultOnLink(quality, now_ns)
            for fault, quality in wanted.items()
        }
        self.cuts = [fault for fault in self.faults.values() if fault.quality is None]
        self.shapes = [fault for fault in self.faults.values() if fault.quality is not None]
        self.quality = LinkQuality.together(
            [fault.quality for fault in self.shapes if fault.quality]
        )
        self.blocked = self.quality.stall or bool(self.cuts)
        self.whole = not self.faults
        return {fault: each for fault, each in old.items() if fault not in wanted}

    def touch_cuts(self) -> None:
        for fault in self.cuts:
            fault.touched += 1

    def touch_shapes(self) -> None:
        """Count one affected frame for each quality fault on the link."""
        for fault in self.shapes:
            fault.touched += 1
