"""Applies committed entries to a group's state machine, and delivers the results.

Each replica reports its progress as events `checkpoint`, so that the harness can compare replicas
during a run (`harness.run.divergence`). The event names the group, the last applied index and the
digest of all entries up to that index (`journal.py`). When a snapshot is taken or restored, the
event also has a digest of the whole state. All replicas of a group must report the same digest for
the same index, including replicas that no longer exist.
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
_WRITE: Final = EntryKind.WRITE


class StateMachine(Protocol):
    """The state that a group replicates. All methods of a state machine are deterministic."""

    def apply(self, index: int, term: int, payload: bytes) -> Any:
        """Apply one committed write and return its result for the waiting proposer."""
        ...

    def snapshot(self) -> bytes:
        """Return the whole state, serialized, as of the last applied index."""
        ...

    async def restore(self, data: bytes, index: int) -> None:
        """Replace the whole state with `data`, a snapshot of the state after entry `index`.

        Until this method returns, readers see the old state. The caller applies no entry meanwhile.
        """
        ...


class SnapshotFiles(Protocol):
    """Stores snapshots in files, for a state machine that is too large to write whole each time.

    `save` writes the result of `StateMachine.snapshot` to files. The Raft snapshot then holds only
    a *manifest*, the names of these files. Peers get the whole state, because
    `StateMachine.restore` requires it.
    """

    def digest(self) -> bytes:
        """Return a digest of the state as of the last applied index, equal on all replicas."""
        ...

    async def save(self, taken: bytes) -> bytes:
        """Write `taken` to new files. Return the manifest of all files that now hold the state.

        `taken` is either what `StateMachine.snapshot` returned or a whole state. Files that this
        manifest no longer lists are kept until `sweep` removes them.
        """
        ...

    async def load(self, manifest: bytes) -> bytes:
        """Return the whole state, read from the files that `manifest` lists."""
        ...

    async def sweep(self) -> None:
        """Remove files that the last manifest does not list. That manifest must be durable."""
        ...


class Waiter:
    """The outcome that a task waits for.

    `finish` stores even a `RaftError` as a result, and `wait` raises it. The future never has an
    exception, so asyncio never warns about an exception that no task retrieved.
    """

    __slots__ = ("future", "term")

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.term = 0

    def finish(self, outcome: Any) -> None:
        """Resume the waiting task with `outcome`, unless the task has given up."""
        if not self.future.done():
            self.future.set_result(outcome)

    async def wait(self, timeout_s: float | None) -> Any:
        """Wait for the outcome and return it, or raise it if it is a `RaftError`.

        Raises `TimeoutError` after `timeout_s`.
        """
        if timeout_s is None:
            outcome = await self.future
        else:
            # Every catalog read waits here, and a plain timer is cheaper than `asyncio.timeout`.
            timer = self.future.get_loop().call_later(timeout_s, self.finish, _TIMED_OUT)
            try:
                outcome = await self.future
            finally:
                timer.cancel()
            if outcome is _TIMED_OUT:
                raise TimeoutError(f"there was no outcome within {timeout_s} s")
        if isinstance(outcome, RaftError):
            raise outcome
        return outcome


class Applier:
    """Applies committed entries to the state machine and records them in `journal`.

    `group` names the group in events. `digest` returns a digest of the whole state; without it, the
    applier hashes the state machine's snapshot.
    """

    def __init__(
        self,
        env: Env,
        machine: StateMachine,
        group: str,
        *,
        digest: Callable[[], bytes] | None = None,
    ) -> None:
        self._env = env
        self._digest = digest
        self._machine = machine
        self._group = group
        self._proposals: dict[int, Waiter] = {}
        self.journal = Journal(OpId(0, 0))

    @property
    def waiting_count(self) -> int:
        return len(self._proposals)

    def accept(self, effect: ev.ProposalAccepted) -> None:
        """Register the proposer of an entry. The proposer waits until the entry is applied."""
        effect.token.term = effect.opid.term
        self._proposals[effect.opid.index] = effect.token

    def apply(self, entries: Iterable[Entry]) -> None:
        """Apply the next committed entries, and give the waiting proposers their results."""
        journal = self.journal
        for entry in entries:
            result: Any = None
            if entry.kind is _WRITE:
                result = self._machine.apply(entry.index, entry.term, entry.payload)
            journal.add(entry)
            self._announce()
            waiter = self._proposals.pop(entry.index, None)
            if waiter is not None and waiter.term == entry.term:
                waiter.finish((entry.index, entry.term, result))
            elif waiter is not None:
                # Another entry replaced the proposal. A deposed leader may append and commit the
                # new leader's entries in the same step in which it loses its role.
                waiter.finish(IndeterminateError("leadership was lost"))

    def fail(self, reason: str) -> None:
        """Fail the waiting proposers with `IndeterminateError`: their entries may still commit.

        `reason` becomes the start of the error's message.
        """
        proposals, self._proposals = self._proposals, {}
        for index, waiter in proposals.items():
            waiter.finish(
                IndeterminateError(f"{reason} before entry {waiter.term}.{index} was committed")
            )

    def snapshot(self, config: RaftConfig) -> Snapshot:
        """Take a snapshot of the state machine; `config` is the committed configuration."""
        journal, data = self.journal, self._machine.snapshot()
        self._announce(state=self._hash(data))
        return Snapshot(OpId(journal.term, journal.index), config, journal.digest, data)

    async def restore(self, snapshot: Snapshot) -> None:
        await self._machine.restore(snapshot.data, snapshot.last_included.index)
        self.journal = Journal(snapshot.last_included, snapshot.digest)
        self._announce(state=self._hash(None))

    def _hash(self, data: bytes | None) -> str:
        if self._digest is not None:
            state = self._digest()
        else:
            state = self._machine.snapshot() if data is None else data
        return hashlib.blake2b(state, digest_size=_DIGEST_BYTES).hexdigest()

    def _announce(self, **state: str) -> None:
        journal = self.journal
        self._env.event(
            "checkpoint", group=self._group, index=journal.index, log=journal.digest.hex(), **state
        )
