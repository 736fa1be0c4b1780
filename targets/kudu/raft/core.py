"""Raft without input or output: `step(event, now_ns) -> effects`.

After Ongaro's dissertation and Kudu's `consensus/raft_consensus.cc`, whose deviations are kept:
pre-elections, votes withheld while a leader is alive, one outstanding request per peer. The core
reads no clock, draws no randomness and does no IO: time comes with each event, election timeouts
are events, and effects are carried out by a shell (`replica.py`; in tests, by a model of a disk
that forgets). It is deterministic, so a schedule of events replays exactly.

What it guarantees, and where:

* **Votes are remembered.** `SaveMeta` is a barrier before every answer that depends on it.
* **An acknowledged entry is durable.** A follower's answer waits for `Synced`; the leader counts
  itself only up to its own durable index.
* **Only entries of the own term are counted** towards commit (Raft 5.4.2); a leader opens its term
  with a NO_OP so that there is one.
* **A follower commits only what it has matched** with this leader (KUDU-639).
* **Reads**: a leader answers after a majority has answered a request that left after the read
  arrived, and after an entry of its own term has committed (dissertation 6.4).
* **A leader without a majority steps down** after one longest election timeout (profile `strict`;
  Kudu's stays leader for ever).

The index arithmetic is asserted throughout; a failed assertion is a bug, or a node that lost what
it promised to keep.
"""

from __future__ import annotations

from typing import Final

from targets.kudu.raft import events as ev
from targets.kudu.raft.leading import Leading
from targets.kudu.raft.state import CoreOptions, Role

__all__ = ["CoreOptions", "RaftCore", "Role"]


class RaftCore(Leading):
    """One member of one group. All state is public to read; only `step` changes it."""

    def step(self, event: ev.Event, now_ns: int) -> list[ev.Effect]:
        """Handle one event; the effects are to be carried out in order."""
        assert not self._effects, "effects of the last step were not taken"
        self._now_ns = now_ns
        configs = self.configs
        before = (self.role, self.term, self.leader_uuid, configs.committed)
        commit_before = self.commit_index
        getattr(self, _HANDLERS[type(event)])(event)
        effects, self._effects = self._effects, []
        assert self.commit_index >= commit_before, "the commit index fell"
        assert self.commit_index <= self.log.last_index, "committed more than the log holds"
        if (self.role, self.term, self.leader_uuid, configs.committed) != before:
            effects.append(ev.StateChanged())
        return effects


_HANDLERS: Final[dict[type, str]] = {
    ev.ElectionTimeout: "_on_election_timeout",
    ev.HeartbeatDue: "_on_heartbeat_due",
    ev.VoteRequested: "_on_vote_requested",
    ev.VoteAnswered: "_on_vote_answered",
    ev.UpdateRequested: "_on_update_requested",
    ev.UpdateAnswered: "_on_update_answered",
    ev.LeaderContact: "_on_leader_contact",
    ev.SnapshotReceived: "_on_snapshot_received",
    ev.SnapshotProgress: "_on_snapshot_progress",
    ev.SnapshotSent: "_on_snapshot_sent",
    ev.Propose: "_on_propose",
    ev.ReadRequested: "_on_read_requested",
    ev.Synced: "_on_synced",
    ev.Compact: "_on_compact",
    ev.StepDown: "_on_step_down",
    ev.RunElection: "_on_run_election",
}
