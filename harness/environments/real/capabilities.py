"""What is done to every real node, in a process or a container, and exactly."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harness.cluster import ENV_NODES_ONLY, Capability, Fidelity

__all__ = ["EVERYWHERE", "FOREIGN"]

EVERYWHERE: Final = (
    Capability.START,
    Capability.STOP,
    Capability.KILL,
    Capability.PAUSE,
    Capability.WIPE,
    Capability.PARTITION,
    Capability.PARTITION_ONE_WAY,
    Capability.STALL,
    Capability.RESET,
    Capability.AIM_AT_EVENTS,
    Capability.SINGLE_CLIENTS,
    *ENV_NODES_ONLY,
)

FOREIGN: Final[Mapping[Capability, Fidelity]] = MappingProxyType(
    {
        Capability.AIM_AT_EVENTS: Fidelity.APPROXIMATE,  # it does not stand still meanwhile
        Capability.CLOCK_SKEW: Fidelity.EXACT,
        Capability.CLOCK_DRIFT: Fidelity.APPROXIMATE,  # of the wall clock; the other stays true
    }
)
"""What is done to foreign programs in another way, or less faithfully; clocks by libfaketime."""
