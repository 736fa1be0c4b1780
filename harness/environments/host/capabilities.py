"""The faults that every real node can have, in a process or a container."""

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
        Capability.AIM_AT_EVENTS: Fidelity.APPROXIMATE,  # it does not stop meanwhile
        Capability.CLOCK_SKEW: Fidelity.EXACT,
        Capability.CLOCK_DRIFT: Fidelity.APPROXIMATE,  # of the wall clock; the other stays true
    }
)
"""Faults that reach foreign programs in another way, or less faithfully; clocks by libfaketime."""
_SLOW_FACTOR_MAX: Final = 100.0
"""A kernel grants a control group a hundredth of a processor or more."""


def check_slow(environment: str, factor: float) -> None:
    """Raise `UsageError` for a factor by which no real processor is made slower."""
    if not 1.0 <= factor <= _SLOW_FACTOR_MAX:
        raise UsageError(
            f"factor is {factor}; in {environment} it must be in 1 (normal) .. "
            f"{_SLOW_FACTOR_MAX:g}, also of all faults on a node together"
        )
