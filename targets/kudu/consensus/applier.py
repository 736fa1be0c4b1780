"""The state machine a group replicates: applying to it, and the proposers who wait for that.

A replica says along the run how far it is, for the harness to compare (`harness.run.divergence`).
The event `checkpoint` names the group, the index applied last and the digest of everything applied
up to there (`journal.py`); where the whole state is at hand anyway, before a snapshot is written
and after one was restored, also a digest of that. Every node that was ever at an index of a group
must have reported the same of it, even if the node is gone by now.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from harness.env import Env
from targets.kudu.consensus import events as ev
from targets.kudu.consensus.consensus_meta import Snapshot
from targets.kudu.consensus.errors import IndeterminateError, RaftError
from targets.kudu.consensus.journal import Journal
from targets.kudu.consensus.messages import Entry, EntryKind, OpId
from targets.kudu.messages import RaftConfig

_TIMED_OUT: Final = object()
_DIGEST_BYTES: Final = 8


class StateMachine(Protocol):
    """The state that a group replicates. All three methods are deterministic."""

    def apply(self, index: int, term: int, payload: bytes) -> Any:
        """Apply one committed write; the result goes to the proposer that waits for it."""
        ...

    def snapshot(self) -> bytes:
        """The whole state as of the last applied index."""
        ...

    async def restore(self, data: bytes, index: int) -> None:
        """Replace the whole state by a `snapshot` taken at `index`, in one step at the end. Nothing
        is applied meanwhile.
        """
        ...


class SnapshotFiles(Protocol):
    """For a machine whose snapshots are too large to write whole each time: what its `snapshot`
    gives is turned into files, and a Raft snapshot holds a manifest of them. Peers are sent the
    whole, as `restore` needs it.
    """

    def digest(self) -> bytes:
        """Of the whole state as of the last applied index, alike on all replicas."""
        ...

    async def save(self, taken: bytes) -> bytes:
        """Write what `snapshot` gave, or a whole state; returns the manifest. Files of the manifest
        before it stay.
        """
        ...

    async def load(self, manifest: bytes) -> bytes:
        """The whole state behind a manifest."""
        ...

    async def sweep(self) -> None:
        """The last manifest is durable: remove what it does not name."""
        ...


class Waiter:
    """A task that waits. Errors travel as results, so that none is ever left unretrieved."""

    __slots__ = ("future", "term")

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.term = 0

    def finish(self, outcome: Any) -> None:
        """Let the waiter go on with `outcome`, unless it has given up."""
        if not self.future.done():
            self.future.set_result(outcome)

    async def wait(self, timeout_s: float | None) -> Any:
        """The outcome. Raises `TimeoutError`, or the outcome itself if it is a `RaftError`."""
        if timeout_s is None:
            outcome = await self.future
        else:
            # Cheaper than `asyncio.timeout`, and every read of a catalog waits here.
            timer = self.future.get_loop().call_later(timeout_s, self.finish, _TIMED_OUT)
            try:
                outcome = await self.future
            finally:
                timer.cancel()
            if outcome is _TIMED_OUT:
                raise TimeoutError(f"nothing happened within {timeout_s} s")
        if isinstance(outcome, RaftError):
            raise outcome
        return outcome


class Applier:
    """Applies committed entries. `journal` says how far; `group` is the group's name in events.

    The journal is announced at multiples of `checkpoint_every`, where all replicas pass. `digest`
    is of the whole state; without it a snapshot is the whole state, and is hashed.
    """

    def __init__(
        self,
        env: Env,
        machine: StateMachine,
        group: str,
        *,
        checkpoint_every: int,
        digest: Callable[[], bytes] | None = None,
    ) -> None:
        self._env = env
        self._digest = digest
        self._machine = machine
        self._group = group
        self._checkpoint_every = checkpoint_every
        self._proposals: dict[int, Waiter] = {}
        self.journal = Journal(OpId(0, 0))

    @property
    def waiting_count(self) -> int:
        return len(self._proposals)

    def accept(self, effect: ev.ProposalAccepted) -> None:
        """Let the proposer of an entry wait until that is applied."""
        effect.token.term = effect.opid.term
        self._proposals[effect.opid.index] = effect.token

    def apply(self, entries: Iterable[Entry]) -> None:
        """Apply the next committed entries; the proposers that wait get their results."""
        journal = self.journal
        for entry in entries:
            result: Any = None
            if entry.kind is EntryKind.WRITE:
                result = self._machine.apply(entry.index, entry.term, entry.payload)
            journal.add(entry)
            if journal.index % self._checkpoint_every == 0:
                self._announce()
            waiter = self._proposals.pop(entry.index, None)
            if waiter is not None and waiter.term == entry.term:
                waiter.finish((entry.index, entry.term, result))
            elif waiter is not None:
                # One step of a deposed leader may take the new leader's entries and commit them,
                # before its change of role is reported: another entry is at this index now.
                waiter.finish(IndeterminateError("leadership was lost"))

    def fail(self, reason: str) -> None:
        """Fail the proposers that wait: their entries may still commit, but no client will know."""
        proposals, self._proposals = self._proposals, {}
        for index, waiter in proposals.items():
            waiter.finish(
                IndeterminateError(f"{reason} before entry {waiter.term}.{index} was committed")
            )

    def snapshot(self, config: RaftConfig) -> Snapshot:
        """The state machine as it is now; `config` is the committed configuration."""
        journal, data = self.journal, self._machine.snapshot()
        self._announce(self._hash(data))
        return Snapshot(OpId(journal.term, journal.index), config, journal.digest, data)

    async def restore(self, snapshot: Snapshot) -> None:
        await self._machine.restore(snapshot.data, snapshot.last_included.index)
        self.journal = Journal(snapshot.last_included, snapshot.digest)
        self._announce(self._hash(None))

    def _hash(self, data: bytes | None) -> str:
        """A digest of the state; `data` is a snapshot of it, if there is one already."""
        if self._digest is not None:
            state = self._digest()
        else:
            state = self._machine.snapshot() if data is None else data
        return hashlib.blake2b(state, digest_size=_DIGEST_BYTES).hexdigest()

    def _announce(self, state: str | None = None) -> None:
        at: dict[str, Any] = {"index": self.journal.index, "log": self.journal.digest.hex()}
        if state is not None:
            at["state"] = state
        self._env.event("checkpoint", group=self._group, **at)
