"""The parameters ("knobs") of the simulated world, checked once when they are read.

A swarm of seeds (Groce et al., "Swarm Testing", ISSTA 2012) varies some knobs: the latency law of
links, and the speed of CPUs and disks (`draw_knobs`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from harness.errors import UsageError

USUAL_DISK_MS_MAX: Final = 12.5
"""With a disk no slower than this, the target gets its usual time to recover."""
PATIENCE_MAX: Final = 10.0


class Knobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The knobs of a simulated world, with their defaults.

    The knob `latency` is the distribution of frame latencies. With `lan`, most frames are near the
    minimum. With `uniform`, all latencies from the minimum to the maximum are equally likely. With
    `tail`, the same holds, except that the share `tail_share` of latencies is log-uniform from 0.3
    ms to 2 s. Connections are ordered, so a late frame delays all later frames.
    """

    latency: Literal["lan", "uniform", "tail"] = "lan"
    latency_ms_min: float = 0.2
    latency_ms_max: float = 1.0
    tail_share: float = 0.1
    cpu_us: float = 20.0  # the virtual time of one callback of a node
    disk_ms_min: float = 0.2  # the time of a sync, replace or remove
    disk_ms_max: float = 2.0
    append_us_max: float = 50.0  # the longest request to the page cache, such as an append
    clock_error_ms: float = 1.0  # the bound on clock differences that nodes report (`max_error_ns`)
    retransmit: float = 0.5  # the probability that a connection survives a cut
    rto_ms_max: float = 1000.0  # the longest wait, after a heal, for late delivery or a reset
    tcp_timeout_s: float = 15.0  # a sender retransmits for this long before its connection is reset
    stop_s: float = 10.0  # the time for a graceful stop before the node is killed
    virtual_s_max: float = 7 * 24 * 3600.0
    events_max: int = 200_000_000
    trace: str | None = None  # the path of a file that records every message and event
    # At this virtual time, all random streams are replaced. Earlier events stay the same.
    reseed_at_s: float | None = None
    reseed: int = 0  # selects the new streams; only with `reseed_at_s`

    @property
    def patience(self) -> float:
        """The factor by which the target may take longer to recover (`Session.patience`).

        Before a fault heals, a backlog of creations and elections may build up, and the disk works
        it off one sync at a time.
        """
        return min(max(1.0, self.disk_ms_max / USUAL_DISK_MS_MAX), PATIENCE_MAX)

    def __post_init__(self) -> None:
        """Raise `ValueError` for a knob out of range; msgspec makes it its own error."""
        for name in ("latency_ms", "disk_ms"):
            low, high = getattr(self, f"{name}_min"), getattr(self, f"{name}_max")
            if not 0 <= low <= high <= 60_000:
                raise ValueError(
                    f"{name}_min {low} and {name}_max {high} must satisfy 0 <= min <= max <= 60000"
                )
        for name in ("tail_share", "retransmit"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be from 0 to 1")
        limits = {
            "cpu_us": (0.0, 1e6),
            "append_us_max": (0.0, 1e6),
            "clock_error_ms": (0.0, 1e6),
            "rto_ms_max": (0.0, 6e4),
            "tcp_timeout_s": (0.001, 1e6),
            "stop_s": (0.001, 1e6),
            "virtual_s_max": (0.001, 1e9),
            "events_max": (1, 2**53),
            "reseed_at_s": (0.0, 1e9),
            "reseed": (0, 2**53),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} is {value}; it must be in {low} .. {high}")
        if self.reseed and self.reseed_at_s is None:
            raise ValueError(f"reseed is {self.reseed}, but reseed_at_s is missing; give both")


NETWORKS: Final[tuple[dict[str, Any], ...]] = (
    {},  # the defaults: a fast local network
    {"latency_ms_min": 1.0, "latency_ms_max": 10.0},
    {"latency": "uniform", "latency_ms_min": 0.2, "latency_ms_max": 40.0},
)
DISKS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"disk_ms_min": 2.0, "disk_ms_max": 25.0},
    # so slow that much data is not yet durable when a node dies
    {"disk_ms_min": 5.0, "disk_ms_max": 50.0},
)
PROCESSORS: Final[tuple[dict[str, Any], ...]] = ({}, {"cpu_us": 100.0})


def draw_knobs(rng: random.Random) -> dict[str, Any]:
    """Choose the speed of network, disk and CPU for the world of one seed."""
    drawn: dict[str, Any] = {}
    for choices in (NETWORKS, DISKS, PROCESSORS):
        drawn |= choices[rng.randrange(len(choices))]
    return drawn


def parse_knobs(given: Mapping[str, Any]) -> Knobs:
    """Check the knobs of a case. Raises a `UsageError` with the wrong knob and the reason."""
    names = ", ".join(Knobs.__struct_fields__)
    unknown = sorted(set(given) - set(Knobs.__struct_fields__))
    if unknown:
        raise UsageError(f"the simulation has no knob {unknown[0]!r}; its knobs are {names}")
    for name, hint in get_type_hints(Knobs).items():
        if get_origin(hint) is Literal and given.get(name, get_args(hint)[0]) not in get_args(hint):
            laws = ", ".join(get_args(hint))
            raise UsageError(f"the knob {name} is {given[name]!r}; it must be one of: {laws}")
    try:
        return msgspec.convert(dict(given), Knobs)
    except msgspec.ValidationError as error:
        raise UsageError(f"a knob of the simulation is wrong: {error}") from error
