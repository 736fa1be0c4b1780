"""One member of a Raft group: the shell that carries out what the core decides.

The core (`core.py`) is stepped synchronously, one event at a time. Its effects run in order; the
two that must be durable before anything else happens (`SaveMeta`, `InstallSnapshot`) stop the line
until they are, while later events queue up. Log writes do not stop it: they are committed in groups
by one task, and the core holds back what waits for them. So an idle heartbeat costs no task, no
disk access and no timer operation: the election deadline is a number that the one timer of the
replica looks at when it fires.

A replica is bounded: a snapshot of the state machine is taken every `snapshot_every` entries (or
`log_cache_size_limit_kb`), the log behind it is dropped from memory and disk, and peers that fell
behind it are sent the snapshot.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from harness.env import Env
from targets.kudu.flags import Flags
from targets.kudu.messages import RaftConfig
from targets.kudu.raft import cmeta
from targets.kudu.raft import events as ev
from targets.kudu.raft import messages as msg
from targets.kudu.raft.calls import ConsensusCalls
from targets.kudu.raft.checkpoints import Checkpoints
from targets.kudu.raft.core import CoreOptions, RaftCore, Role
from targets.kudu.raft.dump import describe
from targets.kudu.raft.errors import (
    IndeterminateError,
    NotAppendedError,
    NotLeaderError,
    OverloadedError,
    RaftError,
)
from targets.kudu.raft.journal import Journal
from targets.kudu.raft.machine import StateMachine, Waiter
from targets.kudu.raft.recovery import recover, vote_state_path
from targets.kudu.raft.senders import Senders, ask_to_run, ask_vote
from targets.kudu.raft.service import ConsensusService
from targets.kudu.raft.snapshots import Snapshots
from targets.kudu.raft.timer import ElectionTimeouts, LazyTimer
from targets.kudu.raft.wal import Wal
from targets.kudu.rpc import RpcClient

__all__ = [
    "SYS_CATALOG_ID",
    "ConsensusService",
    "IndeterminateError",
    "NotAppendedError",
    "NotLeaderError",
    "OverloadedError",
    "RaftError",
    "Replica",
    "StateMachine",
]

SYS_CATALOG_ID: Final = "0" * 32
"""The masters' own group, called `master` in events."""

_PROPOSALS_MAX: Final = 1024
_WAITERS_MAX: Final = 4096
_MESSAGE_OVERHEAD_BYTES: Final = 64 * 1024
_NS: Final = 1_000_000_000
_NEVER_NS: Final = 1 << 62


class Replica:
    """One member of a Raft group.

    `start` recovers and joins in; `replicate` and `confirm_leadership` are for its leader. The
    properties are snapshots of the core and may be read at any time.
    """

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
        snapshot_every: int,
        checkpoint_every: int = 1,
        on_role_change: Callable[[Replica], None] | None = None,
        trace_steps: bool = False,
        needs_majority: bool = True,
    ) -> None:
        """`initial_config` is used when the folder is empty. `on_role_change` is called whenever
        role, term, leader or committed configuration changed; it must not block. `trace_steps`
        announces every append, sync, vote, commit and apply as an event, for nemeses that
        trigger on them. Without `needs_majority` a leader that has lost contact to its majority
        leads on in its own eyes, as Kudu's does, instead of stepping down.
        """
        self.env = env
        self.group_id = group_id
        self.local_uuid = local_uuid
        self.flags = flags
        self.state_text = "NOT_INITIALIZED"
        self.calls = ConsensusCalls(self)
        self._consensus = consensus
        self._folder = folder
        self._initial_config = initial_config
        self._machine = machine
        self._on_role_change = on_role_change
        self._trace_steps = trace_steps
        self._needs_majority = needs_majority
        self._monotonic_ns = env.clock.monotonic_ns
        self._group_label = "master" if group_id == SYS_CATALOG_ID else group_id
        self._heartbeat_ns = flags.raft_heartbeat_interval_ms * 1_000_000
        self._election = ElectionTimeouts(flags, env.random)
        self._core: RaftCore | None = None
        self._wal = Wal(
            env,
            folder,
            sync=flags.log_force_fsync_all,
            segment_bytes=flags.log_segment_size_kb * 1024,
            segments_min=flags.log_min_segments_to_retain,
            on_durable=self._on_durable,
        )
        self._events: deque[ev.Event] = deque()
        self._effects: deque[ev.Effect] = deque()
        self._busy = False
        self._journal = Journal(msg.OpId(0, 0))
        self._announced: tuple[Role, int] | None = None
        self._senders = Senders(self)
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._task_count = 0
        self._proposals: dict[int, Waiter] = {}
        self._applied_waiters: list[tuple[int, Waiter]] = []
        self._checkpoints = Checkpoints(env, self._group_label, every=checkpoint_every)
        self._snapshots = Snapshots(
            env.disk,
            folder,
            self._wal,
            machine,
            self._checkpoints,
            every=snapshot_every,
            log_bytes_max=flags.log_cache_size_limit_kb * 1024,
        )
        self._timer = LazyTimer(env, self._timer_fired, self._panic)

    # --- reading ----------------------------------------------------------------------------

    @property
    def core(self) -> RaftCore:
        """The core, once started; to be read, never stepped from outside."""
        assert self._core is not None, "not started"
        return self._core

    @property
    def rpc_client(self) -> RpcClient:
        """The server's client, shared by all its groups."""
        return self._consensus.rpc_client

    @property
    def role(self) -> str:
        """LEADER, FOLLOWER, CANDIDATE, LEARNER (a non-voter) or NON_PARTICIPANT."""
        return Role.NON_PARTICIPANT.value if self._core is None else self._core.role.value

    @property
    def term(self) -> int:
        """The current term; 0 before the start."""
        return 0 if self._core is None else self._core.term

    @property
    def leader_uuid(self) -> str | None:
        """The leader of the current term, if it is known."""
        return None if self._core is None else self._core.leader_uuid

    @property
    def commit_index(self) -> int:
        """The highest index known to be committed."""
        return 0 if self._core is None else self._core.commit_index

    @property
    def applied_index(self) -> int:
        """The highest index applied to the state machine."""
        return self._journal.index

    @property
    def last_log_index(self) -> int:
        """The end of the log, committed or not."""
        return 0 if self._core is None else self._core.log.last_index

    @property
    def config(self) -> RaftConfig:
        """The active configuration; before the start the initial one."""
        if self._core is not None:
            return self._core.config
        return self._initial_config or RaftConfig(-1, ())

    @property
    def committed_config(self) -> RaftConfig:
        """The newest committed configuration."""
        return self.config if self._core is None else self._core.configs.committed

    @property
    def committed_in_term(self) -> bool:
        """Whether this replica leads and an entry of its own term has committed (KUDU-765)."""
        return self._core is not None and self._core.committed_in_term

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover from disk, then serve consensus calls and run the timers.

        The state machine is restored from the snapshot; entries after it are applied as the commit
        index advances. Raises `DamagedFileError`, `wal.WalCorruptionError`.
        """
        assert self.state_text == "NOT_INITIALIZED", f"the replica is {self.state_text}"
        self.state_text = "BOOTSTRAPPING"
        self._core = core = await self._recover()
        self.state_text = "RUNNING"
        self._spawn(self._wal.run(), "wal")
        self._consensus.add(self)
        if core.is_new and self.flags.raft_enable_pre_election:
            # The first contact with a leader, or the first election, sets the usual timeout.
            self._timer.set_deadline(self._monotonic_ns() + self._election.draw_first_ns())
        else:
            self._reset_election_timer()
        self._announce()
        if core.config.peers == tuple(p for p in core.config.peers if p.uuid == self.local_uuid):
            self.step(ev.ElectionTimeout())  # nobody else to wait for

    async def _recover(self) -> RaftCore:
        found = await recover(self.env.disk, self._folder, self._wal, self._initial_config)
        snapshot = found.snapshot
        if snapshot is not None:
            self._machine.restore(snapshot.data, found.base.index)
            self._journal = Journal(found.base, snapshot.digest)
            self._snapshots.index = found.base.index
            await self._wal.collect(found.base.index)  # a crash came before, right after the save
            self._checkpoints.held(self._journal, self._machine.snapshot())
        return RaftCore(
            self.local_uuid,
            self.group_id,
            term=found.vote_state.current_term,
            voted_for=found.vote_state.voted_for,
            config=found.config,
            base=found.base,
            entries=found.entries,
            options=CoreOptions(
                leader_alive_ns=self._election.min_ns,
                step_down_ns=self._election.max_ns(0) if self._needs_majority else _NEVER_NS,
                batch_bytes_max=self.flags.consensus_max_batch_size_bytes,
                pre_election=self.flags.raft_enable_pre_election,
            ),
        )

    async def stop(self) -> None:
        """Stop timers and tasks; those who wait get an error. Safe to call twice."""
        if self.state_text == "STOPPED":
            return
        self.state_text = "STOPPED"
        self._consensus.remove(self.group_id)
        self._timer.stop()
        self._senders.drop()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._wal.close()
        stopped = NotLeaderError("the replica was stopped")
        for event in self._events:
            if isinstance(event, ev.Propose | ev.ReadRequested):
                event.token.finish(stopped)
        self._events.clear()
        self._effects.clear()
        self._fail_proposals("the replica was stopped")
        for _, waiter in self._applied_waiters:
            waiter.finish(stopped)
        self._applied_waiters.clear()
        self.calls.stop()

    async def delete_data(self) -> None:
        """Remove everything below the folder; only when stopped or never started.

        Vote state goes last: without it, what is left of a log is refused at the next start.
        """
        assert self.state_text in {"STOPPED", "NOT_INITIALIZED"}, f"it is {self.state_text}"
        paths = await self.env.disk.list(f"{self._folder}/")
        for path in sorted(paths, key=lambda path: (path == vote_state_path(self._folder), path)):
            await self.env.disk.remove(path)

    def _spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a task of this replica: it ends with `stop`, its failure panics the node."""
        self._task_count += 1
        key = self._task_count
        task = self.env.spawn(coro, name=f"raft {name} {self._group_label}")
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return task

    # --- stepping ---------------------------------------------------------------------------

    def step(self, event: ev.Event) -> None:
        """Give the core an event; after a stop, nothing happens."""
        if self.state_text != "RUNNING":
            return
        self._events.append(event)
        if not self._busy:
            self._busy = True
            self._carry_on()

    def _carry_on(self) -> None:
        """Carry out effects and take events until there are none, or a barrier must be passed."""
        core, effects, events = self.core, self._effects, self._events
        methods = self._CARRY_OUT
        while self.state_text == "RUNNING":
            if effects:
                effect = effects.popleft()
                carry_out = methods.get(type(effect))
                if carry_out is None:
                    self._spawn(self._pass_barrier(effect), "barrier")
                    return
                carry_out(self, effect)
            elif events:
                effects += core.step(events.popleft(), self._monotonic_ns())
            else:
                self._busy = False
                return

    async def _pass_barrier(self, effect: ev.Effect) -> None:
        if isinstance(effect, ev.SaveMeta):
            state = cmeta.VoteState(effect.term, effect.voted_for, effect.committed_config)
            await cmeta.save(self.env.disk, vote_state_path(self._folder), state)
        else:
            assert isinstance(effect, ev.InstallSnapshot), effect
            self._journal = await self._snapshots.install(effect)
            self._wake_applied_waiters()
        self._carry_on()

    def _on_durable(self, sequence: int) -> None:
        self._trace("synced")
        self.step(ev.Synced(sequence))

    def _trace(self, kind: str, **data: Any) -> None:
        if self._trace_steps:
            self.env.event(kind, group=self._group_label, term=self.term, **data)

    # --- effects ----------------------------------------------------------------------------

    def _append_log(self, effect: ev.AppendLog) -> None:
        self._trace("appended", index=effect.entries[-1].index)
        self._wal.append(effect.sequence, effect.preceding, effect.entries)

    def _send_vote(self, effect: ev.SendVote) -> None:
        timeout_s = self._election.min_ns / _NS
        self._spawn(ask_vote(self, effect, timeout_s), "vote")

    def _send_update(self, effect: ev.SendUpdate) -> None:
        self._senders.send_update(effect)

    def _send_snapshot(self, effect: ev.SendSnapshot) -> None:
        self._senders.send_snapshot(effect)

    def _send_run_election(self, effect: ev.SendRunElection) -> None:
        self._spawn(ask_to_run(self, effect, self._election.min_ns / _NS), "hand over")

    def _reply(self, effect: ev.Reply) -> None:
        if self._trace_steps:
            is_vote = isinstance(effect.response, msg.RequestConsensusVoteResponse)
            self._trace("voted" if is_vote else "acked")
        effect.reply.set(effect.response)

    def _committed(self, effect: ev.Committed) -> None:
        """Apply what is committed; the proposers that wait get their results."""
        core = self.core
        journal = self._journal
        self._trace("committed", index=effect.index)
        for entry in core.log.between(journal.index + 1, effect.index):
            result: Any = None
            if entry.kind is msg.EntryKind.WRITE:
                result = self._machine.apply(entry.index, entry.term, entry.payload)
            journal.add(entry)
            self._checkpoints.applied(journal)
            waiter = self._proposals.pop(entry.index, None)
            if waiter is not None and waiter.term == entry.term:
                waiter.finish((entry.index, entry.term, result))
            elif waiter is not None:
                # One step of a deposed leader may take the new leader's entries and commit them,
                # before its change of role is told: another entry stands at this index now.
                waiter.finish(IndeterminateError("leadership was lost"))
        self._trace("applied", index=effect.index)
        if self._applied_waiters:
            self._wake_applied_waiters()
        if self._snapshots.begin(core, journal):
            self._spawn(self._take_snapshot(), "snapshot")

    def _wake_applied_waiters(self) -> None:
        waiting: list[tuple[int, Waiter]] = []
        for index, waiter in self._applied_waiters:
            if index <= self._journal.index:
                waiter.finish(index)
            elif not waiter.future.done():
                waiting.append((index, waiter))
        self._applied_waiters = waiting

    def _proposal_accepted(self, effect: ev.ProposalAccepted) -> None:
        effect.token.term = effect.opid.term
        self._proposals[effect.opid.index] = effect.token

    def _proposal_rejected(self, effect: ev.ProposalRejected) -> None:
        effect.token.finish(NotLeaderError(effect.reason))

    def _read_ready(self, effect: ev.ReadReady) -> None:
        assert effect.index <= self._journal.index, "a read is ready before it was applied"
        effect.token.finish(effect.index)

    def _read_rejected(self, effect: ev.ReadRejected) -> None:
        message = f"not the leader; that is {self.leader_uuid or 'unknown'}"
        effect.token.finish(NotLeaderError(message))

    def _state_changed(self, _: ev.StateChanged) -> None:
        core = self.core
        if core.role is Role.LEADER:
            self._timer.set_deadline(self._monotonic_ns() + self._heartbeat_ns)
        else:
            self._senders.drop()
            self._fail_proposals("leadership was lost")
        self._announce()
        if self._on_role_change is not None:
            self._on_role_change(self)

    def _announce(self) -> None:
        """Tell the world about a new role or term."""
        core = self.core
        now = (core.role, core.term)
        if now == self._announced:
            return
        self._announced = now
        passive = {Role.LEARNER: "follower", Role.NON_PARTICIPANT: "follower"}
        kind = passive.get(core.role, core.role.value.lower())
        self.env.event(kind, group=self._group_label, term=core.term)

    def _fail_proposals(self, reason: str) -> None:
        proposals, self._proposals = self._proposals, {}
        for index, waiter in proposals.items():
            waiter.finish(
                IndeterminateError(f"{reason} before entry {waiter.term}.{index} was committed")
            )

    # --- timers -----------------------------------------------------------------------------

    def _reset_election_timer(self, _: ev.ResetElectionTimer | None = None) -> None:
        """Wait for a whole election timeout from now on."""
        core = self.core
        if core.role is not Role.LEADER:
            timeout_ns = self._election.current_ns(core.failed_elections)
            self._timer.set_deadline(self._monotonic_ns() + timeout_ns)

    def _panic(self, error: Exception) -> None:
        self._spawn(_raise(error), "timer")

    def _timer_fired(self) -> None:
        core = self.core
        event: ev.Event
        if core.role is Role.LEADER:
            now_ns, due_ns = self._monotonic_ns(), core.all_sent_ns + self._heartbeat_ns
            if due_ns > now_ns:
                self._timer.set_deadline(due_ns)  # what it sent was as good as a heartbeat
                return
            self._timer.set_deadline(now_ns + self._heartbeat_ns)
            event = ev.HeartbeatDue()
        else:
            self._election.redraw()
            self._reset_election_timer()
            event = ev.ElectionTimeout()
        # A replica that waits for its disk must not run through all it missed at once.
        if not self._busy:
            self.step(event)

    # --- snapshots --------------------------------------------------------------------------

    async def _take_snapshot(self) -> None:
        core = self.core
        index = await self._snapshots.take(core, lambda: self._journal)
        if index > core.log.base.index:
            self.step(ev.Compact(index))

    async def load_snapshot(self) -> cmeta.Snapshot | None:
        """The snapshot on disk."""
        return await self._snapshots.load()

    # --- for the owner ----------------------------------------------------------------------

    async def replicate(
        self,
        payload: bytes,
        *,
        timeout_s: float | None = None,
    ) -> tuple[int, int, Any]:
        """Replicate one write; returns its index, its term and what `apply` returned.

        Raises `NotLeaderError` or `OverloadedError` when nothing was appended, and
        `IndeterminateError` when it was, but leadership or the time ran out: it may still commit.
        """
        limit = self.flags.rpc_max_message_size - _MESSAGE_OVERHEAD_BYTES
        if len(payload) > limit:
            raise OverloadedError(
                f"a payload of {len(payload)} bytes; the limit is {limit} (KUDU-3036)"
            )
        return await self._propose(msg.EntryKind.WRITE, payload, timeout_s)

    async def _propose(
        self, kind: msg.EntryKind, payload: bytes, timeout_s: float | None
    ) -> tuple[int, int, Any]:
        self._check_running()
        if len(self._proposals) + len(self._events) >= _PROPOSALS_MAX:
            raise OverloadedError(f"{len(self._proposals)} writes wait for their commit already")
        waiter = Waiter()
        self.step(ev.Propose(kind, payload, waiter))
        try:
            outcome: tuple[int, int, Any] = await waiter.wait(timeout_s)
        except TimeoutError as error:
            message = f"not committed within {timeout_s} s; it may be later"
            raise IndeterminateError(message) from error
        return outcome

    async def confirm_leadership(self, *, timeout_s: float) -> int:
        """Make sure that this replica leads *now* and has applied all that was acknowledged before.

        Waits until a majority has answered a request sent after this call, until an entry of the
        own term has committed, and until everything up to the read index is applied; returns that
        index. Raises `NotLeaderError`, `TimeoutError`.
        """
        self._check_running()
        waiter = Waiter()
        self.step(ev.ReadRequested(waiter))
        index: int = await waiter.wait(timeout_s)
        return index

    async def wait_applied(self, index: int, *, timeout_s: float) -> None:
        """Wait until `index` is applied here. Raises `TimeoutError`; `NotLeaderError` when the
        replica stops, `OverloadedError` when too many wait.
        """
        self._check_running()
        if index <= self._journal.index:
            return
        if len(self._applied_waiters) >= _WAITERS_MAX:
            raise OverloadedError(f"{len(self._applied_waiters)} wait for an index already")
        waiter = Waiter()
        self._applied_waiters.append((index, waiter))
        await waiter.wait(timeout_s)

    def step_down(self, *, new_leader_uuid: str | None = None) -> None:
        """Give up leadership, to `new_leader_uuid` if given; nothing happens on a follower."""
        self.step(ev.StepDown(new_leader_uuid))

    def run_election(self) -> None:
        """Run for leader now, in spite of a live one; nothing happens on a leader."""
        self.step(ev.RunElection())

    def _check_running(self) -> None:
        if self.state_text != "RUNNING":
            raise NotLeaderError(f"the replica is {self.state_text}")

    def counters(self) -> dict[str, int]:
        """What must not grow without end: the log on disk, and what waits."""
        waiting = len(self._proposals) + len(self._applied_waiters)
        return {**self._wal.counters(self.core.log.base.index), "waiting requests": waiting}

    def dump(self) -> dict[str, Any]:
        """Plain JSON; see `dump.py`."""
        return describe(self, self._journal, started=self._core is not None)

    # What is not here is a barrier.
    _CARRY_OUT: Final[dict[type, Callable[[Any, Any], None]]] = {
        ev.AppendLog: _append_log,
        ev.SendVote: _send_vote,
        ev.SendUpdate: _send_update,
        ev.SendSnapshot: _send_snapshot,
        ev.SendRunElection: _send_run_election,
        ev.Reply: _reply,
        ev.Committed: _committed,
        ev.ProposalAccepted: _proposal_accepted,
        ev.ProposalRejected: _proposal_rejected,
        ev.ReadReady: _read_ready,
        ev.ReadRejected: _read_rejected,
        ev.ResetElectionTimer: _reset_election_timer,
        ev.StateChanged: _state_changed,
    }


async def _raise(error: Exception) -> None:
    raise error
