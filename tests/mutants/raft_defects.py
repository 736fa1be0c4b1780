"""Defects of Raft and of its files."""

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.consensus_queue import Leader
from targets.kudu.consensus.failure_detector import ElectionTimeouts
from targets.kudu.consensus.follower import Follower
from targets.kudu.consensus.log import Wal
from targets.kudu.consensus.raft_core import RaftCore
from targets.kudu.consensus.state import RaftState
from targets.kudu.consensus.tablet_copy import Snapshots
from tests.mutants.plant import mutant


@mutant("vote-not-saved", "raft")
def vote_not_saved(patch):
    """The vote for another is not written to the vote state"""
    save = RaftState.save_meta

    def forgetful(self):
        voted_for = self.voted_for
        if voted_for != self.uuid:
            self.voted_for = None
        save(self)
        self.voted_for = voted_for

    patch.setattr(RaftState, "save_meta", forgetful)


@mutant("ack-before-durable", "raft")
def ack_before_durable(patch):
    """A follower acknowledges entries before they are durable"""
    original = Follower.update

    def hasty(self, event):
        original(self, event)
        while self._acks:
            matched, reply = self._acks.popleft()
            self._acknowledge(reply, matched)

    patch.setattr(Follower, "update", hasty)


@mutant("wal-never-syncs", "raft")
def wal_never_syncs(patch):
    """The write-ahead log is never synced"""
    original = Wal.__init__

    def lazy(self, *args, **options):
        original(self, *args, **{**options, "sync": False})

    patch.setattr(Wal, "__init__", lazy)


@mutant("recovery-drops-last", "raft")
def recovery_drops_last(patch):
    """Recovery takes the last good record for a torn one"""
    original = Wal.recover

    async def dropping(self, base):
        return (await original(self, base))[:-1]

    patch.setattr(Wal, "recover", dropping)


@mutant("old-terms-by-counting", "raft")
def old_terms_by_counting(patch):
    """Entries of older terms commit by counting (figure 8)"""
    patch.setattr(Leader, "_may_commit", lambda self, index: True)


@mutant("long-lease", "raft")
def long_lease(patch):
    """Reads are served under a lease that is longer than an election"""
    original = Leader.read
    lease_ns = 10_000_000_000

    def leased(self, event):
        now_ns = self._state.now_ns
        fresh = self._reached(now_ns, lambda peer: peer.contact_ns) > now_ns - lease_ns
        if fresh and self.committed_in_term:
            self._state.effects.append(ev.ReadReady(event.token, self._log.commit_index))
        else:
            original(self, event)

    patch.setattr(Leader, "read", leased)


@mutant("late-elections", "raft")
def late_elections(patch):
    """Followers wait 15 s before they run"""
    original = ElectionTimeouts.current_ns

    def late(self, failed_elections):
        return original(self, failed_elections) + 15_000_000_000

    patch.setattr(ElectionTimeouts, "current_ns", late)


@mutant("any-log-wins", "raft")
def any_log_wins(patch):
    """Votes are granted to candidates whose log is behind"""
    patch.setattr(RaftCore, "_log_is_current", lambda self, last_logged: True)


@mutant("commits-unmatched", "raft")
def commits_unmatched(patch):
    """A follower commits what the leader says, matched or not (KUDU-639)"""
    original = Follower.update

    def trusting(self, event):
        original(self, event)
        self._state.commit_to(min(event.request.committed_index, self._log.last_index))

    patch.setattr(Follower, "update", trusting)


@mutant("term-not-saved", "raft")
def term_not_saved(patch):
    """A follower does not write down a newer term"""
    original = RaftCore._become_follower

    def forgetful(self, term, leader_uuid):
        effects = self._state.effects
        count = len(effects)
        original(self, term, leader_uuid)
        effects[count:] = [e for e in effects[count:] if type(e) is not ev.SaveMeta]

    patch.setattr(RaftCore, "_become_follower", forgetful)


@mutant("leader-counts-before-durable", "raft")
def leader_counts_before_durable(patch):
    """The leader and one follower that is not durable make a majority"""

    def hasty(self):
        index = self._reached(self._log.last_index, lambda peer: peer.match_index)
        if index > self._log.commit_index and self._may_commit(index):
            self._state.commit_to(index)
            self._resolve_reads()

    patch.setattr(Leader, "advance_commit", hasty)


async def _restore_nothing(data, index):
    """Replace `StateMachine.restore` by a function that does nothing."""


@mutant("stale-install", "raft")
def stale_install(patch):
    """An installed snapshot is saved, but the state machine stays as it was until the restart"""
    original = Snapshots.install

    async def stale(self, effect):
        machine = self._applier._machine
        restore = machine.restore
        machine.restore = _restore_nothing
        try:
            return await original(self, effect)
        finally:
            machine.restore = restore

    patch.setattr(Snapshots, "install", stale)


@mutant("snapshot-not-restored", "raft")
def snapshot_not_restored(patch):
    """A restarted replica does not restore its snapshot"""
    original = Snapshots.resume

    async def forgetful(self, snapshot):
        machine = self._applier._machine
        restore = machine.restore
        machine.restore = _restore_nothing
        try:
            return await original(self, snapshot)
        finally:
            machine.restore = restore

    patch.setattr(Snapshots, "resume", forgetful)


@mutant("snapshots-for-entries", "copies", workload="rows")
def snapshots_for_entries(patch):
    """A leader sends every tenth update as a snapshot, although it has the entries"""
    original = Leader._send_update

    def wholesale(self, peer):
        if self._request_count % 10 == 0 and self._log.base.index:
            peer.next_index = min(peer.next_index, self._log.base.index)
        original(self, peer)

    patch.setattr(Leader, "_send_update", wholesale)
