"""The faults that any real node can have, in a process or in a container."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harness.cluster import ENV_NODES_ONLY, Capability, Fidelity
from harness.errors import UsageError

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
        Capability.AIM_AT_EVENTS: Fidelity.APPROXIMATE,  # the program goes on after the event
        Capability.CLOCK_SKEW: Fidelity.EXACT,
        Capability.CLOCK_DRIFT: Fidelity.APPROXIMATE,  # only the wall clock drifts
    }
)
"""How faithful a fault is on a foreign program, where this differs from a node on `Env`.

Clock faults use libfaketime."""
_SLOW_FACTOR_MAX: Final = 100.0
"""The kernel's smallest CPU limit is a hundredth of a CPU."""


def check_slow(environment: str, factor: float) -> None:
    """Raise `UsageError` for a slow-down factor that no CPU limit can achieve."""
    if not 1.0 <= factor <= _SLOW_FACTOR_MAX:
        raise UsageError(
            f"the slow-down factor is {factor}; in {environment} it must be from 1 (normal speed) "
            f"to {_SLOW_FACTOR_MAX:g}, as must the product of all factors on a node"
        )
