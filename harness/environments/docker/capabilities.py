"""The faults that can be injected into containers, and the fidelity of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harness.cluster import STREAMS, Capability, Fidelity, LinkQuality, StreamQuality
from harness.environments.host.capabilities import EVERYWHERE
from harness.errors import UsageError

ENVIRONMENT: Final = "docker"
CAPABILITIES: Final[Mapping[Capability, Fidelity]] = MappingProxyType(
    dict.fromkeys((*EVERYWHERE, Capability.DROP, Capability.DUPLICATE), Fidelity.EXACT)
    | dict.fromkeys(
        (
            # Without netem, a user-space program delays the packets. It is late if no CPU is free.
            Capability.DELAY,
            Capability.REORDER,  # a packet stays in order unless another one follows soon
            Capability.THROTTLE,
            *STREAMS,  # they reset open connections, and affect only declared ports
            Capability.SLOW_CPU,  # a slowed node runs at full speed for part of each 0.1 s
        ),
        Fidelity.APPROXIMATE,
    )
)
LINK_QUALITY: Final = (
    Capability.DELAY,
    Capability.DROP,
    Capability.DUPLICATE,
    Capability.REORDER,
    Capability.THROTTLE,
    Capability.STALL,
)
"""The link faults that an engine lacks if its kernel cannot delay and queue packets (netem)."""


def check_shape(quality: LinkQuality | StreamQuality, missing: Mapping[Capability, str]) -> None:
    """Raise `UsageError` if `quality` is invalid or needs one of the `missing` capabilities."""
    if isinstance(quality, StreamQuality):
        quality.check()
        for what in STREAMS & missing.keys():
            raise UsageError(
                "docker: streams cannot be sliced or reset, since the engine's kernel does not "
                f"redirect connections ({missing[what]}); load the modules xt_owner and "
                "xt_REDIRECT on the engine's host, or use --env process"
            )
        return
    quality.check()
    if quality == LinkQuality():
        raise UsageError(f"{quality} would not change the links; set delay_ms, drop, ...")
    if Capability.DELAY in missing:
        raise UsageError(
            "docker: links cannot be shaped, since the engine's kernel lacks packet queues "
            f"({missing[Capability.DELAY]}); load the modules xt_NFQUEUE and nfnetlink_queue on "
            "the engine's host, or use --env sim"
        )
    if quality.duplicate and Capability.DUPLICATE in missing:
        raise UsageError(
            "docker: packets cannot be duplicated, since the engine's kernel does not copy them "
            f"({missing[Capability.DUPLICATE]}); load the module xt_TEE on the engine's host, or "
            "use --env sim"
        )
