"""Defects of Raft and of what it keeps on disk."""

from targets.kudu.raft import events as ev
from targets.kudu.raft.elections import Elections
from targets.kudu.raft.following import Following
from targets.kudu.raft.leading import Leading
from targets.kudu.raft.replica import Replica
from targets.kudu.raft.snapshots import Snapshots
from targets.kudu.raft.state import RaftState, Role
from targets.kudu.raft.timer import ElectionTimeouts
from targets.kudu.raft.wal import Wal
from tests.mutants.plant import mutant


@mutant("vote-not-saved", "raft")
def vote_not_saved(patch):
    """The vote for another is not written to the vote state"""
    save = RaftState._save_meta

    def forgetful(self):
        voted_for = self.voted_for
        if voted_for != self.uuid:
            self.voted_for = None
        save(self)
        self.voted_for = voted_for

    patch.setattr(RaftState, "_save_meta", forgetful)


@mutant("ack-before-durable", "raft")
def ack_before_durable(patch):
    """A follower acknowledges entries before they are durable"""
    original = Following._on_update_requested

    def hasty(self, event):
        original(self, event)
        while self._acks:
            ack = self._acks.popleft()
            self._reply_update(ack.reply, ack.matched)

    patch.setattr(Following, "_on_update_requested", hasty)


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
    patch.setattr(Leading, "_may_commit", lambda self, index: True)


@mutant("long-lease", "raft")
def long_lease(patch):
    """Reads are served under a lease that is longer than an election"""
    original = Leading._on_read_requested
    lease_ns = 10_000_000_000

    def leased(self, event):
        fresh = (
            sum(
                uuid == self.uuid or self._now_ns - self._peers[uuid].contact_ns < lease_ns
                for uuid in self._voters
            )
            if self.role is Role.LEADER
            else 0
        )
        if fresh >= self._majority and self.committed_in_term:
            self._effects.append(ev.ReadReady(event.token, self.commit_index))
        else:
            original(self, event)

    patch.setattr(Leading, "_on_read_requested", leased)


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
    patch.setattr(Elections, "_log_is_current", lambda self, last_logged: True)


@mutant("commits-unmatched", "raft")
def commits_unmatched(patch):
    """A follower commits what the leader says, matched or not (KUDU-639)"""
    original = Following._on_update_requested

    def trusting(self, event):
        original(self, event)
        request = event.request
        if request.caller_term == self.term:
            self._commit_to(min(request.committed_index, self.log.last_index))

    patch.setattr(Following, "_on_update_requested", trusting)


@mutant("term-not-saved", "raft")
def term_not_saved(patch):
    """A follower does not write down a newer term"""
    original = RaftState._become_follower

    def forgetful(self, term, leader_uuid):
        count = len(self._effects)
        original(self, term, leader_uuid)
        self._effects[count:] = [e for e in self._effects[count:] if type(e) is not ev.SaveMeta]

    patch.setattr(RaftState, "_become_follower", forgetful)


@mutant("leader-counts-before-durable", "raft")
def leader_counts_before_durable(patch):
    """The leader and one follower that is not durable make a majority"""

    def hasty(self):
        matches = sorted(
            self.log.last_index if uuid == self.uuid else self._peers[uuid].match_index
            for uuid in self._voters
        )
        index = matches[len(matches) - self._majority]
        if index > self.commit_index and self._may_commit(index):
            self._commit_to(index)
            self._resolve_reads()

    patch.setattr(Leading, "_advance_commit", hasty)


@mutant("stale-install", "raft")
def stale_install(patch):
    """An installed snapshot is saved, but the state machine stays as it was until the restart"""
    original = Snapshots.install

    async def stale(self, effect):
        restore = self._machine.restore
        self._machine.restore = lambda data, index: None
        try:
            return await original(self, effect)
        finally:
            self._machine.restore = restore

    patch.setattr(Snapshots, "install", stale)


@mutant("snapshot-not-restored", "raft")
def snapshot_not_restored(patch):
    """A restarted replica does not restore its snapshot"""
    original = Replica._recover

    async def forgetful(self):
        restore = self._machine.restore
        self._machine.restore = lambda data, index: None
        try:
            return await original(self)
        finally:
            self._machine.restore = restore

    patch.setattr(Replica, "_recover", forgetful)
