"""What is done to every real node, in a process or a container, and exactly."""

from __future__ import annotations

from typing import Final

from harness.cluster import ENV_NODES_ONLY, Capability

__all__ = ["EVERYWHERE"]

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
    *ENV_NODES_ONLY,
)
