"""interfaces first; bodies follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from harness.env import Env
from targets.kudu.flags import Flags
from targets.kudu.messages import RaftConfig
from targets.kudu.rpc import RpcClient, RpcServer

__all__ = [
    "ConsensusService",
    "IndeterminateError",
    "NotAppendedError",
    "NotLeaderError",
    "OverloadedError",
    "RaftError",
    "Replica",
    "StateMachine",
]


class RaftError(Exception):
    """The root of what a replica raises on purpose."""


class NotAppendedError(RaftError):
    """Nothing was appended: the write did not and will not happen."""


class NotLeaderError(NotAppendedError):
    """This replica does not lead (for a read: could not confirm that it does)."""


class OverloadedError(NotAppendedError):
    """Too many writes wait for their commit, or the payload is larger than one message."""


class IndeterminateError(RaftError):
    """The write was appended, then leadership or the time ran out: it may still commit."""


class StateMachine(Protocol):
    """What a group replicates. All three are synchronous and deterministic."""

    def apply(self, index: int, term: int, payload: bytes) -> Any:
        """Apply one committed write; the result goes to the proposer that waits for it."""
        ...

    def snapshot(self) -> bytes:
        """The whole state as of the last applied index."""
        ...

    def restore(self, data: bytes, index: int) -> None:
        """Replace the whole state by a `snapshot` taken at `index`."""
        ...


class ConsensusService:
    """`__init__` registers ConsensusService.* on `rpc_server`; routes calls by (dest_uuid, tablet_id)."""

    def __init__(
        self, env: Env, rpc_server: RpcServer, rpc_client: RpcClient, local_uuid: str, flags: Flags
    ) -> None: ...

    def add(self, replica: Replica) -> None:
        """Route calls for `replica.group_id` to it (`Replica.start` does it by itself)."""

    def remove(self, tablet_id: str) -> None:
        """Stop routing; calls are answered with TABLET_NOT_FOUND."""


class Replica:
    """One member of a Raft group."""

    role: str  # LEADER, FOLLOWER, CANDIDATE, LEARNER (non-voter), NON_PARTICIPANT
    term: int
    leader_uuid: str | None
    commit_index: int
    applied_index: int
    last_log_index: int
    config: RaftConfig  # active
    committed_config: RaftConfig
    committed_in_term: bool  # as leader: an entry of the current term has committed
    state_text: str  # NOT_INITIALIZED, BOOTSTRAPPING, RUNNING, STOPPED
    group_id: str

    def __init__(
        self,
        env: Env,
        *,
        consensus: ConsensusService,
        group_id: str,
        folder: str,
        local_uuid: str,
        initial_config: RaftConfig | None,
        flags: Flags,
        machine: StateMachine,
        on_role_change: Callable[[Replica], None] | None = None,
        snapshot_every: int = 500,
        trace_steps: bool = False,
    ) -> None: ...

    async def start(self) -> None:
        """Recover from disk, register with the consensus service, run the timers."""

    async def stop(self) -> None:
        """Stop timers and tasks; waiting proposers get `IndeterminateError`."""

    async def delete_data(self) -> None:
        """Remove everything below the folder; only when stopped."""

    async def replicate(
        self, payload: bytes, *, timeout_s: float | None = None
    ) -> tuple[int, int, Any]:
        """(index, term, result of apply). NotAppendedError family or IndeterminateError."""
        raise NotImplementedError

    async def confirm_leadership(self, *, timeout_s: float) -> int:
        """Wait until a majority confirmed this leader after the call and it applied the read index,
        which is returned. NotLeaderError, TimeoutError.
        """
        raise NotImplementedError

    async def wait_applied(self, index: int, *, timeout_s: float) -> None:
        """Wait until `index` is applied here. TimeoutError, NotLeaderError when stopped."""

    def step_down(self, *, new_leader_uuid: str | None = None) -> None:
        """Give up leadership; NotLeaderError."""

    def dump(self) -> dict[str, Any]:
        """Plain JSON."""
        raise NotImplementedError
