"""One member of a Raft group: the shell that carries out the core's decisions.

The shell steps the core (`raft_core.py`) with one event at a time, and carries out its effects in
order. Two effects (`SaveMeta`, `InstallSnapshot`) are barriers: until their data are durable, later
effects and events wait. Log writes do not block: one task writes log entries in groups, and the
core holds back the effects that depend on these entries.

The log of a replica is bounded. After `snapshot_every` entries (or `log_cache_size_limit_kb` of
log), the replica takes a snapshot of the state machine, and drops the covered log from memory and
disk. A peer that needs dropped entries gets the snapshot.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec

from harness.env import Env
from targets.kudu.consensus import consensus_meta as cmeta
from targets.kudu.consensus import events as ev
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.applier import Applier, SnapshotFiles, StateMachine, Waiter
from targets.kudu.consensus.consensus_peers import Senders, entry_limit
from targets.kudu.consensus.consensus_service import ConsensusCalls, ConsensusService
from targets.kudu.consensus.errors import (
    ConfigRefusedError,
    IndeterminateError,
    NotLeaderError,
    OverloadedError,
    RaftError,
)
from targets.kudu.consensus.failure_detector import ElectionTimeouts, ReplicaTimer
from targets.kudu.consensus.log import Wal
from targets.kudu.consensus.log_cache import MemoryLog
from targets.kudu.consensus.raft_core import RaftCore, Role
from targets.kudu.consensus.state import CoreOptions
from targets.kudu.consensus.tablet_copy import Snapshots
from targets.kudu.flags import Flags
from targets.kudu.messages import PeerHealth, RaftConfig

SYS_CATALOG_ID: Final = "0" * 32
"""The id of the masters' own Raft group; events call this group "master"."""

NO_PROXY: Final = "could not obtain a remote proxy to the peer"
_PROPOSALS_MAX: Final = 1024
_NS: Final = 1_000_000_000
_NEVER_NS: Final = 1 << 62
_LEADER: Final = Role.LEADER  # reading attributes of an enum is slow in Python 3.11
_CONFIG: Final = msg.EntryKind.CONFIG
_WRITE: Final = msg.EntryKind.WRITE


class Replica:
    """One member of a Raft group.

    `start` recovers the replica and joins the group. `replicate` and `confirm_leadership` succeed
    only on the group's leader. The properties show the current state and may be read at any time.
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
        on_role_change: Callable[[Replica], None] | None = None,
        trace_steps: bool = False,
        needs_majority: bool = True,
        files: SnapshotFiles | None = None,
        copy_source: Callable[[], bytes] | None = None,
    ) -> None:
        """Create a member that is not started.

        A replica in an empty folder starts from `initial_config`. `on_role_change` is called after
        every change of the role, term, leader or committed configuration, and on a leader also
        after a change of a peer's health; it must not block.

        A replica announces events at which faults may strike: votes, changes of configuration,
        snapshots, and a leader's appends and commits. With `trace_steps`, every append, sync,
        answer, commit and apply is an event.

        Without `needs_majority`, a leader that loses contact with its majority continues to lead,
        as in Kudu, instead of stepping down. `copy_source` returns a description from which a
        server that lacks this group creates an empty replica (`ConsensusService.on_missing_group`).
        `files` stores the snapshots of a large state machine.
        """
        self.group_id = group_id
        self.state_text = "NOT_INITIALIZED"
        self._env = env
        self._now_ns = env.clock.monotonic_ns
        self._local_uuid = local_uuid
        self._flags = flags
        self._consensus = consensus
        self._folder = folder
        self._initial_config = initial_config
        self._on_role_change = on_role_change
        self._trace_steps = trace_steps
        self._needs_majority = needs_majority
        self._can_copy = copy_source is not None
        self._group_label = "master" if group_id == SYS_CATALOG_ID else group_id
        self._core: RaftCore | None = None
        # if this replica was a tombstone: the last entry of the removed log
        self._last_logged = msg.OpId(0, 0)
        self._calls: ConsensusCalls | None = None
        self._events: deque[ev.Event] = deque()
        self._effects: deque[ev.Effect] = deque()
        self._busy = False
        # forced configurations whose entries are not durable yet
        self._forced: deque[ev.ConfigForced] = deque()
        self._announced: tuple[Role, int] | None = None
        self._announced_vote: tuple[int, str | None] = (0, None)
        self._elections = {"started": 0, "won": 0}  # counts since the start of the node
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._task_count = 0
        self._wal = Wal(
            env,
            folder,
            sync=flags.log_force_fsync_all,
            segment_bytes=flags.log_segment_size_kb * 1024,
            segments_min=flags.log_min_segments_to_retain,
            on_durable=self._on_durable,
        )
        self._applier = Applier(
            env,
            machine,
            self._group_label,
            digest=None if files is None else files.digest,
        )
        self._snapshots = Snapshots(
            env.disk,
            folder,
            self._wal,
            self._applier,
            every=snapshot_every,
            log_bytes_max=flags.log_cache_size_limit_kb * 1024,
            files=files,
            announce=self._trace,
        )
        self._election = ElectionTimeouts(flags, env.random)
        self._timer = ReplicaTimer(env, flags, self._election, self._timer_fired, self._panic)
        self._senders = Senders(
            env,
            consensus.rpc_client,
            flags,
            self._snapshots,
            group_id=group_id,
            local_uuid=local_uuid,
            vote_timeout_s=self._election.min_ns / _NS,
            step=self.step,
            spawn=self._spawn,
            copy_source=copy_source,
        )
        self._carry_out = self._effect_handlers()

    # --- reading ----------------------------------------------------------------------------

    @property
    def core(self) -> RaftCore:
        """The Raft core, available after the start. Callers may read it, but must not step it."""
        assert self._core is not None, "the replica is not started"
        return self._core

    @property
    def role(self) -> str:
        """The role: LEADER, FOLLOWER, CANDIDATE, LEARNER (a non-voter) or NON_PARTICIPANT."""
        return (Role.NON_PARTICIPANT if self._core is None else self._core.role)._value_

    @property
    def term(self) -> int:
        return 0 if self._core is None else self._core.term

    def leads(self, term: int) -> bool:
        """Whether this replica is the leader of `term` now."""
        core = self._core
        return core is not None and core.role is _LEADER and core.term == term

    @property
    def leader_uuid(self) -> str | None:
        return None if self._core is None else self._core.leader_uuid

    @property
    def config(self) -> RaftConfig:
        """The active configuration; before the start, the initial configuration."""
        if self._core is not None:
            return self._core.config
        return self._initial_config or RaftConfig(-1, ())

    @property
    def committed_config(self) -> RaftConfig:
        return self.config if self._core is None else self._core.configs.committed

    @property
    def pending_config(self) -> RaftConfig | None:
        """The pending configuration, which is already active; `None` if no change is pending."""
        if self._core is None or not self._core.configs.pending:
            return None
        return self._core.config

    def peer_health(self) -> dict[str, PeerHealth]:
        """Map the uuid of each member, this leader included, to its health; `{}` on non-leaders."""
        return {} if self._core is None else self._core.peer_health()

    @property
    def has_what_older_terms_committed(self) -> bool:
        """Whether this replica leads and has applied an entry of its term, and thus all older ones.

        A check of the core's commit index would not suffice, because the replica may still have to
        apply entries that the core has committed.
        """
        core = self.core
        return core.committed_in_term and core.log.term_at(self.applied_index) == core.term

    @property
    def applied_index(self) -> int:
        return self._applier.journal.index

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover from disk, then serve consensus calls and run the timers.

        The state machine is restored from the snapshot; later entries are applied as the commit
        index advances. Raises `DamagedFileError`, `log.WalCorruptionError`.
        """
        assert self.state_text == "NOT_INITIALIZED", f"the replica is {self.state_text}"
        self.state_text = "BOOTSTRAPPING"
        self._core = core = await self._recover()
        self._announced_vote = (core.term, core.voted_for)
        self._appended_index = core.log.last_index
        self._saved_config_index = core.configs.committed.opid_index
        self._calls = ConsensusCalls(core, self.step)
        self.state_text = "RUNNING"
        self._spawn(self._wal.run(), "wal")
        self._consensus.add(self.group_id, self._calls)
        self._timer.start(core)
        self._announce()
        if core.config.peers == tuple(p for p in core.config.peers if p.uuid == self._local_uuid):
            # The group has no other member, so this replica need not wait for one.
            self.step(ev.ElectionTimeout())

    async def _recover(self) -> RaftCore:
        recovered = await cmeta.recover(
            self._env.disk, self._folder, self._wal, self._initial_config
        )
        self._last_logged = recovered.vote_state.last_logged
        if recovered.snapshot is not None:
            await self._snapshots.resume(recovered.snapshot)
        return RaftCore(
            self._local_uuid,
            self.group_id,
            last_logged=self._last_logged,
            term=recovered.vote_state.current_term,
            voted_for=recovered.vote_state.voted_for,
            config=recovered.config,
            base=recovered.base,
            entries=recovered.entries,
            options=CoreOptions(
                leader_alive_ns=self._election.min_ns,
                step_down_ns=self._election.max_ns(0) if self._needs_majority else _NEVER_NS,
                batch_bytes_max=self._flags.consensus_max_batch_size_bytes,
                pre_election=self._flags.raft_enable_pre_election,
                failed_ns=int(self._flags.follower_unavailable_considered_failed_sec * _NS),
                tablet_copy=self._can_copy,
            ),
        )

    async def stop(self) -> None:
        """Stop timers and tasks; waiting tasks get an error. Safe to call twice."""
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
            if isinstance(event, ev.Propose | ev.ChangeConfig | ev.ForceConfig | ev.ReadRequested):
                event.token.finish(stopped)
        self._events.clear()
        self._effects.clear()
        self._applier.fail("the replica was stopped")
        for effect in self._forced:
            effect.token.finish(IndeterminateError("the replica was stopped"))
        self._forced.clear()
        if self._calls is not None:
            self._calls.stop()

    async def keep_last_logged(self) -> None:
        """Store the `OpId` of the last log entry in the vote state, before the log is removed.

        Call this only after `start` and `stop`.
        """
        assert self.state_text == "STOPPED", f"the replica is {self.state_text}"
        core = self.core
        ends = (self._last_logged, core.log.last)
        self._last_logged = max(ends, key=lambda opid: (opid.term, opid.index))
        await self._save_votes(core.term, core.voted_for, core.configs.committed)

    async def delete_data(self, *, keep_votes: bool = False) -> None:
        """Remove all files of the replica or, with `keep_votes`, all except the vote state.

        The remaining vote state is a tombstone; call `keep_last_logged` before. The replica must be
        stopped or never started. The vote state is removed last, because a replica with a log but
        without a vote state refuses to start.
        """
        assert self.state_text in {"STOPPED", "NOT_INITIALIZED"}, (
            f"the replica is {self.state_text}"
        )
        paths = await self._env.disk.list(f"{self._folder}/")
        last = cmeta.vote_state_path(self._folder)
        for path in sorted(paths, key=lambda path: (path == last, path)):
            if path != last or not keep_votes:
                await self._env.disk.remove(path)

    def _spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task that `stop` cancels. An error in the task ends the node."""
        self._task_count += 1
        key = self._task_count
        task = self._env.spawn(coro, name=f"raft {name} {self._group_label}")
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return task

    # --- stepping ---------------------------------------------------------------------------

    def step(self, event: ev.Event) -> None:
        """Step the core with `event`, or queue `event` while effects run; ignore it if stopped."""
        if self.state_text != "RUNNING":
            return
        if self._busy:
            self._events.append(event)
            return
        assert not self._events, "events are queued, and no task handles them"
        self._busy = True
        self._events.append(event)
        self._carry_on()

    def _carry_on(self) -> None:
        """Carry out effects and handle events, until none is left or a barrier comes."""
        if self.state_text != "RUNNING":
            return
        core, effects, events, methods = self.core, self._effects, self._events, self._carry_out
        while True:
            while effects:
                effect = effects.popleft()
                carry_out = methods.get(type(effect))
                if carry_out is None:
                    self._spawn(self._pass_barrier(effect), "barrier")
                    return
                carry_out(effect)
            if not events:
                self._busy = False
                return
            effects += core.step(events.popleft(), self._now_ns())

    async def _pass_barrier(self, effect: ev.Effect) -> None:
        if isinstance(effect, ev.SaveMeta):
            await self._save_votes(effect.term, effect.voted_for, effect.committed_config)
            index = effect.committed_config.opid_index
            if index > self._saved_config_index:
                self._saved_config_index = index
                self._trace("config-committed", index=index)
        else:
            assert isinstance(effect, ev.InstallSnapshot), effect
            await self._snapshots.install(effect)
        self._carry_on()

    async def _save_votes(self, term: int, voted_for: str | None, config: RaftConfig) -> None:
        state = cmeta.VoteState(term, voted_for, config, self._last_logged)
        await cmeta.save(self._env.disk, cmeta.vote_state_path(self._folder), state)

    def _on_durable(self, sequence: int) -> None:
        if self._trace_steps:
            self._trace("synced")
        self.step(ev.Synced(sequence))
        if self._forced:
            self._answer_forced(self.core.log)

    def _answer_forced(self, log: MemoryLog) -> None:
        while self._forced and self._forced[0].opid.index <= log.durable_index:
            effect = self._forced.popleft()
            lost = IndeterminateError("it was overwritten by another leader's entry")
            effect.token.finish(effect.opid if log.holds(effect.opid) else lost)

    def _trace(self, kind: str, **data: Any) -> None:
        announce = self._env.event if self._trace_steps else self._env.point
        announce(kind, group=self._group_label, term=self.term, **data)

    # --- effects ----------------------------------------------------------------------------

    def _effect_handlers(self) -> dict[type, Callable[[Any], None]]:
        senders = self._senders
        return {
            ev.AppendLog: self._append_log,
            ev.SendVote: senders.send_vote,
            ev.SendUpdate: senders.send_update,
            ev.SendSnapshot: senders.send_snapshot,
            ev.SendStartCopy: senders.send_start_copy,
            ev.SendRunElection: senders.send_run_election,
            ev.Reply: self._reply,
            ev.Committed: self._committed,
            ev.ConfigForced: self._config_forced,
            ev.ProposalAccepted: self._applier.accept,
            ev.ProposalRejected: self._proposal_rejected,
            ev.ReadReady: self._read_ready,
            ev.ReadRejected: self._read_rejected,
            ev.ResetElectionTimer: self._timer.reset,
            ev.StateChanged: self._state_changed,
            ev.HealthChanged: lambda _: self._tell_owner(),
        }

    def _append_log(self, effect: ev.AppendLog) -> None:
        last = effect.entries[-1]
        if effect.entries[0].index <= self._appended_index:
            self._trace("overwrote", index=effect.entries[0].index)
        self._appended_index = last.index
        if last.kind is _CONFIG:
            self._trace("config-appended", index=last.index)
        elif self._trace_steps or (self.core.role is _LEADER and last.kind is _WRITE):
            self._trace("appended", index=last.index)
        self._wal.append(effect.sequence, effect.preceding, effect.entries)

    def _reply(self, effect: ev.Reply) -> None:
        response = effect.response
        if type(response) is msg.RequestConsensusVoteResponse:
            core = self.core
            vote = (core.term, core.voted_for)
            if response.vote_granted and core.voted_for and vote != self._announced_vote:
                self._announced_vote = vote
                self._trace("voted")
        elif self._trace_steps:
            self._trace("acked")
        effect.reply.set(response)

    def _committed(self, effect: ev.Committed) -> None:
        core = self.core
        log = core.log
        if self._trace_steps or core.role is _LEADER:
            self._trace("committed", index=effect.index)
        self._applier.apply(log.between(self._applier.journal.index + 1, effect.index))
        if self._trace_steps:
            self._trace("applied", index=effect.index)
        if self._snapshots.begin(log):
            self._spawn(self._take_snapshot(), "snapshot")

    async def _take_snapshot(self) -> None:
        log = self.core.log
        index = await self._snapshots.take(log)
        if index > log.base.index:
            self.step(ev.Compact(index))

    def _proposal_rejected(self, effect: ev.ProposalRejected) -> None:
        error: RaftError = NotLeaderError(effect.reason)
        if effect.code is not msg.ConsensusErrorCode.NOT_THE_LEADER:
            error = ConfigRefusedError(effect.code, effect.reason)
        effect.token.finish(error)

    def _config_forced(self, effect: ev.ConfigForced) -> None:
        """Announce a forced configuration before this replica stores it or sends it to any peer.

        From now on, entries that the removed members acknowledged may be lost.
        """
        self._forced.append(effect)
        kept = [peer.uuid for peer in effect.config.peers]
        before = self.core.configs.committed.peers
        self._env.event(
            "config-overruled",
            group=self._group_label,
            term=effect.opid.term,
            index=effect.opid.index,
            kept=[peer.address for peer in effect.config.peers],
            left_out=[peer.address for peer in before if peer.uuid not in kept],
        )

    def _read_ready(self, effect: ev.ReadReady) -> None:
        assert effect.index <= self._applier.journal.index, "the read index is not applied yet"
        effect.token.finish(effect.index)

    def _read_rejected(self, effect: ev.ReadRejected) -> None:
        message = f"not the leader; that is {self.leader_uuid or 'unknown'}"
        effect.token.finish(NotLeaderError(message))

    def _state_changed(self, _: ev.StateChanged) -> None:
        if self.core.role is _LEADER:
            self._timer.lead()
        else:
            self._senders.drop()
            self._applier.fail("leadership was lost")
        self._announce()
        self._tell_owner()

    def _tell_owner(self) -> None:
        if self._on_role_change is not None:
            self._on_role_change(self)

    def _announce(self) -> None:
        core = self.core
        now = (core.role, core.term)
        if now == self._announced:
            return
        self._announced = now
        self._elections["started"] += core.role is Role.CANDIDATE
        self._elections["won"] += core.role is Role.LEADER
        if core.role is Role.LEADER and self._consensus.leaders_need_names:
            self._resolve_peers()
        passive = {Role.LEARNER: "follower", Role.NON_PARTICIPANT: "follower"}
        kind = passive.get(core.role, core.role.value.lower())
        self._env.event(kind, group=self._group_label, term=core.term)

    def _resolve_peers(self) -> None:
        """End this node if a new leader cannot resolve the name of a peer (the defect KUDU-2302).

        Without the defect, a call to such a peer fails, and the next call tries again.
        """
        for peer in self.config.peers:
            resolves = self._consensus.rpc_client.resolves(peer.address)
            if peer.uuid != self._local_uuid and not resolves:
                self._panic(AssertionError(f"check failed: {NO_PROXY}: {peer.address}"))

    def _timer_fired(self, event: ev.Event) -> None:
        # Drop timer events during a barrier. If they were queued, all of them would run after it.
        if not self._busy:
            self.step(event)

    def _panic(self, error: Exception) -> None:
        self._spawn(_raise(error), "timer")

    # --- for the owner ----------------------------------------------------------------------

    async def replicate(
        self,
        payload: bytes,
        *,
        timeout_s: float | None = None,
    ) -> tuple[int, int, Any]:
        """Replicate one write; return its index, its term and the result of `StateMachine.apply`.

        Raises `NotLeaderError` or `OverloadedError` if nothing was appended. Raises
        `IndeterminateError` if the write was appended and may still commit: leadership was lost, or
        `timeout_s` has passed.
        """
        limit = entry_limit(self._flags)
        if len(payload) > limit:
            raise OverloadedError(
                f"the payload has {len(payload)} bytes; the limit is {limit} (KUDU-3036)"
            )
        self._check_running()
        waiting = self._applier.waiting_count
        if waiting + len(self._events) >= _PROPOSALS_MAX:
            raise OverloadedError(f"{waiting} writes wait for their commit already")
        waiter = Waiter()
        self.step(ev.Propose(msg.EntryKind.WRITE, payload, waiter))
        try:
            outcome: tuple[int, int, Any] = await waiter.wait(timeout_s)
        except TimeoutError as error:
            message = f"not committed within {timeout_s} s; the write may still commit"
            raise IndeterminateError(message) from error
        return outcome

    async def change_config(
        self,
        changes: Sequence[msg.PeerChange],
        *,
        cas_config_opid_index: int | None = None,
    ) -> RaftConfig:
        """Change the group's members; return the committed configuration that has the change.

        `quorum_util.changed_config` has the rules. No other change may be pending, and an entry of
        this leader's term must have committed (KUDU-872). If `cas_config_opid_index` is given, the
        committed configuration must have that index. A member that is added as NON_VOTER with
        `promote` becomes a voter automatically once it has caught up.

        Raises `NotLeaderError` or `ConfigRefusedError` if nothing was appended. Raises
        `IndeterminateError` if the change was appended and then leadership was lost: it may still
        commit.
        """
        self._check_running()
        waiter = Waiter()
        self.step(ev.ChangeConfig(tuple(changes), cas_config_opid_index, waiter))
        await waiter.wait(None)
        return self.committed_config

    async def confirm_leadership(self, *, timeout_s: float) -> int:
        """Confirm that this replica leads and has applied all acknowledged writes.

        Waits until a majority has answered a request sent after this call, an entry of the leader's
        own term has committed, and all entries up to the read index are applied. Returns the read
        index. Raises `NotLeaderError`, `TimeoutError`.
        """
        self._check_running()
        waiter = Waiter()
        self.step(ev.ReadRequested(waiter))
        index: int = await waiter.wait(timeout_s)
        return index

    def step_down(self) -> None:
        """Give up leadership at once. This has no effect on a replica that does not lead."""
        self.step(ev.StepDown())

    def _check_running(self) -> None:
        if self.state_text != "RUNNING":
            raise NotLeaderError(f"the replica is {self.state_text}")

    def dump(self) -> dict[str, Any]:
        """Return `status` and the digests by which the logs of replicas are compared."""
        data, core = self.status(), self._core
        return data if core is None else data | self._applier.journal.dump(core.log)

    def status(self) -> dict[str, Any]:
        """Return the replica's state, configuration and counters as JSON.

        `counters` has the amounts that must stay bounded: the size of the log on disk and the
        number of waiting requests.
        """
        core, config = self._core, self.config
        data: dict[str, Any] = {
            "group": self.group_id,
            "uuid": self._local_uuid,
            "state": self.state_text,
            "role": self.role,
            "term": self.term,
            "leader_uuid": self.leader_uuid,
            "commit_index": 0 if core is None else core.commit_index,
            "applied_index": self._applier.journal.index,
            "last_index": 0 if core is None else core.log.last_index,
            "config": {
                "opid_index": config.opid_index,
                "peers": [msgspec.structs.asdict(peer) for peer in config.peers],
            },
            "committed_config_index": self.committed_config.opid_index,
            "elections": dict(self._elections),
            "peer_health": dict(self.peer_health()),
        }
        if core is not None:
            data["first_index"] = core.log.base.index + 1
            data["durable_index"] = core.durable_index
            data["counters"] = {
                **self._wal.counters(core.log.base.index),
                "waiting requests": self._applier.waiting_count,
            }
        return data


async def _raise(error: Exception) -> None:
    raise error
