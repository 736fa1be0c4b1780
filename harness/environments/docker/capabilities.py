"""What can be done to containers, and how faithfully."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harness.cluster import Capability, Fidelity
from harness.environments.real.capabilities import EVERYWHERE

__all__ = ["CAPABILITIES", "LINK_QUALITY"]

CAPABILITIES: Final[Mapping[Capability, Fidelity]] = MappingProxyType(
    dict.fromkeys((*EVERYWHERE, Capability.DROP), Fidelity.EXACT)
    | dict.fromkeys(
        (
            Capability.DELAY,  # by a program that waits for a processor like all others
            Capability.REORDER,  # where another packet comes soon enough to overtake
            Capability.THROTTLE,
            Capability.SLOW_CPU,  # at full speed for a part of each tenth of a second
        ),
        Fidelity.APPROXIMATE,
    )
)
LINK_QUALITY: Final = (
    Capability.DELAY,
    Capability.DROP,
    Capability.REORDER,
    Capability.THROTTLE,
    Capability.STALL,
)
"""Of links; an engine whose kernel lacks what it takes has none of these."""
