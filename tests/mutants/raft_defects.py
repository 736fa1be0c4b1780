"""Defects to plant in Raft and in its files."""

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.consensus_queue import Leader
from targets.kudu.consensus.failure_detector import ElectionTimeouts
from targets.kudu.consensus.follower import Follower
from targets.kudu.consensus.log import Wal
from targets.kudu.consensus.raft_core import RaftCore
from targets.kudu.consensus.state import RaftState
from targets.kudu.consensus.tablet_copy import Snapshots
from tests.mutants.plant import mutant


@mutant("raft", RaftState, "save_meta")
def vote_not_saved(original, self):
    """A vote for another candidate is not saved to disk"""
    voted_for = self.voted_for
    if voted_for != self.uuid:
        self.voted_for = None
    original(self)
    self.voted_for = voted_for


@mutant("raft", Follower, "update")
def ack_before_durable(original, self, event):
    """A follower acknowledges entries before they are durable"""
    original(self, event)
    while self._acks:
        matched, reply = self._acks.popleft()
        self._acknowledge(reply, matched)


@mutant("raft", Wal, "__init__")
def wal_never_syncs(original, self, *args, **options):
    """The write-ahead log is never synced"""
    original(self, *args, **{**options, "sync": False})


@mutant("raft", Wal, "recover")
async def recovery_drops_last(original, self, base):
    """Recovery drops the last record of the log, although it is complete"""
    return (await original(self, base))[:-1]


@mutant("raft")
def old_terms_by_counting(patch):
    """Entries of older terms commit by counting (figure 8)"""
    patch.setattr(Leader, "_may_commit", lambda self, index: True)


@mutant("raft")
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


@mutant("raft", ElectionTimeouts, "current_ns")
def late_elections(original, self, failed_elections):
    """Followers wait for another 15 s before they start an election"""
    return original(self, failed_elections) + 15_000_000_000


@mutant("raft")
def any_log_wins(patch):
    """Votes are granted to candidates whose log is behind"""
    patch.setattr(RaftCore, "_log_is_current", lambda self, last_logged: True)


@mutant("raft", Follower, "update")
def commits_unmatched(original, self, event):
    """A follower commits what its leader has committed, even if its entries differ (KUDU-639)"""
    original(self, event)
    self._state.commit_to(min(event.request.committed_index, self._log.last_index))


@mutant("raft", RaftCore, "_become_follower")
def term_not_saved(original, self, term, leader_uuid):
    """A follower does not save a newer term to disk"""
    effects = self._state.effects
    count = len(effects)
    original(self, term, leader_uuid)
    effects[count:] = [e for e in effects[count:] if type(e) is not ev.SaveMeta]


@mutant("raft", Leader, "advance_commit")
def leader_counts_before_durable(_, self):
    """The leader counts its own entries towards a majority before they are durable"""
    index = self._reached(self._log.last_index, lambda peer: peer.match_index)
    if index > self._log.commit_index and self._may_commit(index):
        self._state.commit_to(index)
        self._resolve_reads()


async def _restore_nothing(data, index):
    """Replace `StateMachine.restore` by a function that does nothing."""


@mutant("raft", Snapshots, "install")
async def stale_install(original, self, effect):
    """An installed snapshot is saved, but the state machine ignores it until the next restart"""
    machine = self._applier._machine
    restore = machine.restore
    machine.restore = _restore_nothing
    try:
        return await original(self, effect)
    finally:
        machine.restore = restore


@mutant("raft", Snapshots, "resume")
async def snapshot_not_restored(original, self, snapshot):
    """A restarted replica does not restore its snapshot"""
    machine = self._applier._machine
    restore = machine.restore
    machine.restore = _restore_nothing
    try:
        return await original(self, snapshot)
    finally:
        machine.restore = restore


@mutant("copies", Leader, "_send_update", workload="rows")
def snapshots_for_entries(original, self, peer):
    """A leader sends every tenth update as a snapshot, although it has the entries"""
    if self._request_count % 10 == 0 and self._log.base.index:
        peer.next_index = min(peer.next_index, self._log.base.index)
    original(self, peer)
