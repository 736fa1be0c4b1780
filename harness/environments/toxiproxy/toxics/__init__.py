"""The toxics, one small file each, and their registry."""

from __future__ import annotations

from typing import Final

from harness.environments.toxiproxy.toxics.bandwidth import Bandwidth
from harness.environments.toxiproxy.toxics.base import Stub, Toxic
from harness.environments.toxiproxy.toxics.blackhole import Blackhole
from harness.environments.toxiproxy.toxics.latency import Latency
from harness.environments.toxiproxy.toxics.limit_data import LimitData
from harness.environments.toxiproxy.toxics.noop import Noop
from harness.environments.toxiproxy.toxics.reset_peer import ResetPeer
from harness.environments.toxiproxy.toxics.slicer import Slicer
from harness.environments.toxiproxy.toxics.slow_close import SlowClose
from harness.environments.toxiproxy.toxics.timeout import Timeout

__all__ = ["TOXICS", "Noop", "Stub", "Toxic"]

TOXICS: Final[dict[str, type[Toxic]]] = {
    "bandwidth": Bandwidth,
    "blackhole": Blackhole,
    "latency": Latency,
    "limit_data": LimitData,
    "noop": Noop,
    "reset_peer": ResetPeer,
    "slicer": Slicer,
    "slow_close": SlowClose,
    "timeout": Timeout,
}
