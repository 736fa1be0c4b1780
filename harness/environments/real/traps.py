"""Faults at events: a node on `Env` stands still at an event until its springs have run.

What a node would do next, it does not do before the driver tells it to go on (`real.control`), so
nothing that it sends or writes comes between the event and the fault. It waits for a second at
most: a driver that is busy, or a spring that waits for the very node (to stop it in order, say),
holds up nobody for longer. What a thread of its disk had begun goes on, as a device would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from harness.cluster import Spring
from harness.environments.real.control import NodeControl
from harness.environments.real.logs import EventBus

__all__ = ["Traps"]


class Traps:
    """The traps of one run."""

    def __init__(self, bus: EventBus, controls: Sequence[NodeControl]) -> None:
        """`controls` are of the nodes that stand still."""
        self._bus = bus
        self._controls = controls
        self._kinds: Counter[str] = Counter()

    def set(self, kind: str, spring: Spring) -> Callable[[], None]:
        """Set one (`harness.cluster.Cluster.trap`); nodes know of it a moment later."""
        take_away = self._bus.trap(kind, spring)
        self._count(kind, 1)

        def remove() -> None:
            take_away()
            self._count(kind, -1)

        return remove

    def _count(self, kind: str, number: int) -> None:
        self._kinds[kind] += number
        kinds = tuple(sorted(+self._kinds))
        for control in self._controls:
            control.stop_at(kinds)
