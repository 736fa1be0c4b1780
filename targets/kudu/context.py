"""The data that all parts of a node share: identity, environment, flags and switched-on defects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.env import Env
from targets.kudu.bugs import Bug
from targets.kudu.flags import Flags
from targets.kudu.rpc import RpcClient

SOFTWARE_VERSION: Final = "0.1.0"


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The identity, environment and settings of one running master or tablet server.

    `bugs` are the defects of the profile and the defects that were switched on in addition.
    """

    env: Env
    uuid: str
    address: str
    flags: Flags
    bugs: frozenset[Bug]
    rpc: RpcClient

    def check_failed(self, why: str) -> None:
        """End this node, as a failed CHECK does in Kudu. Only defects in `Bug` call this method."""
        self.env.spawn(_raise(why), name="check-failed")

    def new_id(self) -> str:
        """Return a fresh id of 32 hex digits."""
        return f"{self.env.random.getrandbits(128):032x}"


async def _raise(why: str) -> None:
    raise AssertionError(f"check failed: {why}")
