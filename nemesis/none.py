"""No fault at all: the control every chaos run is compared with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from harness.case import Fault
from harness.cluster import Bite, Capability, Cluster
from harness.plugins import API_VERSION, Injection, Roles

__all__ = ["NoNemesis"]


class NoNemesis:
    """Breaks nothing."""

    api_version: ClassVar[int] = API_VERSION
    name: ClassVar[str] = "none"
    doc: ClassVar[str] = "break nothing: the control"
    kind: ClassVar[str] = "other"
    needs_leader: ClassVar[bool] = False
    requires: ClassVar[frozenset[Capability]] = frozenset()

    def plan(
        self, rng: random.Random, *, horizon_ns: int, interval_ns: int, duration_ns: int
    ) -> Sequence[Fault]:
        """An empty schedule."""
        del rng, horizon_ns, interval_ns, duration_ns
        return ()

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        """Never planned; does nothing."""
        del cluster, roles, fault, lease_s
        return Injection(targets=(), note="nothing to break")

    async def heal(self, cluster: Cluster, injection: Injection) -> Bite:
        """Nothing to heal."""
        del cluster, injection
        return Bite(0, "faults")
