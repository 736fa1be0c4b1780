"""No fault at all: the control every chaos run is compared with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from harness.case import Fault
from harness.cluster import Capability
from harness.nodes.faults import Aim
from harness.plugins import NEMESIS_API_VERSION, Scene

__all__ = ["NoNemesis"]


class NoNemesis:
    """Breaks nothing."""

    api_version: ClassVar[int] = NEMESIS_API_VERSION
    name: ClassVar[str] = "none"
    doc: ClassVar[str] = "break nothing: the control"
    needs_leader: ClassVar[bool] = False
    requires: ClassVar[frozenset[Capability]] = frozenset()

    def plan(
        self, rng: random.Random, *, horizon_ns: int, interval_ns: int, duration_ns: int
    ) -> Sequence[Fault]:
        """An empty schedule."""
        del rng, horizon_ns, interval_ns, duration_ns
        return ()

    def aim(self, scene: Scene, fault: Fault) -> Aim:
        """Never planned, so never asked."""
        raise AssertionError(f"{self.name!r} plans no fault, but got {fault} in {scene}")
