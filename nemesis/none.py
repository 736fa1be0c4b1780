"""The nemesis `none`, which plans no faults: the control group for chaos runs."""

from __future__ import annotations

import random
from collections.abc import Sequence

from harness.case import Fault
from harness.cluster import Capability
from harness.nodes.faults import Aim
from harness.plugins import NEMESIS_API_VERSION, Nemesis, Scene, override


class NoNemesis(Nemesis):
    """The nemesis that breaks nothing."""

    api_version = NEMESIS_API_VERSION
    name = "none"
    doc = "break nothing: the control"
    requires = frozenset[Capability]()

    def plan(
        self, rng: random.Random, *, horizon_ns: int, interval_ns: int, duration_ns: int
    ) -> Sequence[Fault]:
        del rng, horizon_ns, interval_ns, duration_ns
        return ()

    def aim(self, scene: Scene, fault: Fault) -> Aim:
        """Raise `AssertionError`. The method is never called, since `plan` returns no faults."""
        raise AssertionError(f"{self.name!r} plans no fault, but got {fault} in {scene}")

    @override
    def needs_leader(self, fault: Fault) -> bool:
        del fault
        return False
