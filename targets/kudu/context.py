"""A node's identity, its door to the world, its flags and switches, for all its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.env import Env
from targets.kudu.bugs import Bug
from targets.kudu.flags import Flags
from targets.kudu.rpc import RpcClient

SOFTWARE_VERSION: Final = "0.1.0"
"""What servers say they run: the release of the harness that they come with."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """One master or tablet server, from its start to its end.

    Made once its uuid is known. `bugs` are the rows of its profile and the further switches.
    """

    env: Env
    uuid: str
    address: str
    flags: Flags
    bugs: frozenset[Bug]
    rpc: RpcClient

    def check_failed(self, why: str) -> None:
        """End this node, as a failed CHECK ends Kudu's. Only broken paths come here."""
        self.env.spawn(_raise(why), name="check-failed")

    def new_id(self) -> str:
        """A fresh id of 32 hex digits."""
        return f"{self.env.random.getrandbits(128):032x}"


async def _raise(why: str) -> None:
    raise AssertionError(f"check failed: {why}")
