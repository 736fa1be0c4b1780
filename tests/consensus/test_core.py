"""Tests of single rules of `RaftCore`. Each fails for a mutant that ignores its rule."""

from typing import Any, TypeVar

import msgspec
import pytest

from targets.kudu.consensus import events as ev
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.raft_core import RaftCore, Role
from targets.kudu.consensus.state import CoreOptions
from targets.kudu.messages import PeerConfig, PeerHealth, RaftConfig
from tests.consensus import mutants

Item = TypeVar("Item")
S = 1_000_000_000
EMPTY = msg.OpId(0, 0)


def config_of(*uuids: str, learners: tuple[str, ...] = ()) -> RaftConfig:
    voters = tuple(PeerConfig(uuid, f"{uuid}:1") for uuid in uuids)
    return RaftConfig(-1, voters + tuple(PeerConfig(u, f"{u}:1", "NON_VOTER") for u in learners))


def core_of(
    uuid: str = "a",
    *,
    config: RaftConfig | None = None,
    make: type[RaftCore] = RaftCore,
    term: int = 0,
    voted_for: str | None = None,
    entries: tuple[msg.Entry, ...] = (),
    base: msg.OpId = EMPTY,
) -> RaftCore:
    return make(
        uuid,
        "g",
        term=term,
        voted_for=voted_for,
        config=config or config_of("a", "b", "c"),
        base=base,
        entries=entries,
        options=CoreOptions(),
    )


def entry(term: int, index: int, payload: bytes = b"") -> msg.Entry:
    return msg.Entry(term, index, msg.EntryKind.WRITE, payload)


def only(effects: list[ev.Effect], kind: type[Item]) -> Item:
    (found,) = all_of(effects, kind)
    return found


def all_of(effects: list[ev.Effect], kind: type[Item]) -> list[Item]:
    return [effect for effect in effects if isinstance(effect, kind)]


def vote_request(
    candidate: str, term: int, last: msg.OpId = EMPTY, **more: bool
) -> ev.VoteRequested:
    request = msg.RequestConsensusVoteRequest("a", "g", candidate, term, last, **more)
    return ev.VoteRequested(request, "reply")


def update(
    leader: str, term: int, preceding: msg.OpId, *entries: msg.Entry, committed: int = 0
) -> ev.UpdateRequested:
    request = msg.UpdateConsensusRequest("a", "g", leader, term, preceding, committed, entries)
    return ev.UpdateRequested(request, "reply")


def answer_of(effects: list[ev.Effect]) -> Any:
    return only(effects, ev.Reply).response


def granted(election: int, voter: str, term: int) -> ev.VoteAnswered:
    return ev.VoteAnswered(election, voter, msg.RequestConsensusVoteResponse(voter, term, True))


def lead(core: RaftCore, now_ns: int = 0, voter: str = "b") -> list[ev.Effect]:
    """Make `core` win an election without a pre-election; its NO_OP entry becomes durable."""
    effects = core.step(ev.RunElection(), now_ns)
    if core.role is not Role.LEADER:
        effects = core.step(granted(core._election_count, voter, core.term), now_ns)
    assert core.role is Role.LEADER
    sent = effects
    core.step(ev.Synced(core.log.append_sequence), now_ns)
    return sent


def acked(
    core: RaftCore, peer: str, matched: int, now_ns: int = 0, *, term: int | None = None
) -> list[ev.Effect]:
    """Step the core with `peer`'s acknowledgement of its outstanding request."""
    request_id = core._leader.peers[peer].in_flight
    assert request_id is not None
    response = msg.UpdateConsensusResponse(
        peer,
        core.term if term is None else term,
        last_received=msg.OpId(0, matched),
        last_received_current_leader=msg.OpId(0, matched),
    )
    return core.step(ev.UpdateAnswered(peer, request_id, response), now_ns)


def refused(
    core: RaftCore, peer: str, code: msg.ConsensusErrorCode, last: msg.OpId = EMPTY
) -> list[ev.Effect]:
    """Step the core with `peer`'s refusal of its outstanding request."""
    request_id = core._leader.peers[peer].in_flight
    assert request_id is not None
    error = msg.ConsensusError(code, "")
    response = msg.UpdateConsensusResponse(peer, core.term, last, error=error)
    return core.step(ev.UpdateAnswered(peer, request_id, response), 0)


def config_entry(index: int, *voters: str, learners: tuple[str, ...] = ()) -> msg.Entry:
    payload = msgspec.msgpack.encode(config_of(*voters, learners=learners))
    return msg.Entry(1, index, msg.EntryKind.CONFIG, payload)


class TestElections:
    def test_the_owner_learns_the_leader_of_its_term(self):
        core = core_of(term=3)
        heartbeat = update("b", 3, EMPTY)

        assert len(all_of(core.step(heartbeat, 0), ev.StateChanged)) == 1
        assert all_of(core.step(heartbeat, 1), ev.StateChanged) == []

    def test_a_pre_election_touches_no_state(self):
        core = core_of()

        effects = core.step(ev.ElectionTimeout(), 0)

        assert (core.term, core.voted_for, core.role) == (0, None, Role.FOLLOWER)
        assert all_of(effects, ev.SaveMeta) == []
        votes = all_of(effects, ev.SendVote)
        assert [(v.peer_uuid, v.request.candidate_term) for v in votes] == [("b", 1), ("c", 1)]
        assert all(v.request.is_pre_election for v in votes)

    def test_the_vote_for_oneself_is_durable_before_others_are_asked(self):
        core = core_of()
        core.step(ev.ElectionTimeout(), 0)

        effects = core.step(granted(1, "b", 0), 0)

        kinds = [type(effect) for effect in effects]
        assert kinds.index(ev.SaveMeta) < kinds.index(ev.SendVote)
        meta = only(effects, ev.SaveMeta)
        assert (meta.term, meta.voted_for) == (1, "a")

    def test_a_granted_vote_is_durable_before_its_answer(self):
        effects = core_of().step(vote_request("b", 1), 0)

        kinds = [type(effect) for effect in effects]
        assert kinds.index(ev.SaveMeta) < kinds.index(ev.Reply)
        assert only(effects, ev.SaveMeta).voted_for == "b"
        assert answer_of(effects).vote_granted

    @pytest.mark.parametrize(
        ("heard", "request_", "now_ns", "code"),
        [
            # one vote per term
            ([vote_request("b", 3)], vote_request("c", 3), 0, "ALREADY_VOTED"),
            ([vote_request("b", 3)], vote_request("b", 3), 0, None),
            # a live leader's followers withhold their votes
            ([update("b", 1, EMPTY)], vote_request("c", 5), S, "LEADER_IS_ALIVE"),
            ([update("b", 1, EMPTY)], vote_request("c", 5, ignore_live_leader=True), S, None),
            ([update("b", 1, EMPTY)], vote_request("c", 2), 2 * S, None),
            # a leader always withholds its vote, and so does a follower that waits for its disk
            ([ev.RunElection(), granted(1, "b", 1)], vote_request("c", 9), 10**6 * S,
             "LEADER_IS_ALIVE"),
            ([update("b", 1, EMPTY, entry(1, 1))], vote_request("c", 2), 100 * S,
             "LEADER_IS_ALIVE"),
        ],
    )  # fmt: skip
    def test_votes(self, heard, request_, now_ns, code):
        core = core_of()
        for event in heard:
            core.step(event, 0)
        term = core.term

        answer = answer_of(core.step(request_, now_ns))

        assert (None if answer.error is None else answer.error.code) == (
            None if code is None else msg.ConsensusErrorCode[code]
        )
        assert answer.responder_term == (request_.request.candidate_term if code is None else term)

    @pytest.mark.parametrize("make", [RaftCore, mutants.VotesBlindly])
    def test_no_vote_for_a_log_that_lacks_entries(self, make):
        core = core_of(term=2, entries=(entry(2, 1),), make=make)

        answer = answer_of(core.step(vote_request("b", 3, msg.OpId(1, 9)), 0))

        assert answer.vote_granted == (make is not RaftCore)
        assert core.term == 3  # the term is adopted nevertheless

    def test_answers_that_wait_for_the_disk_are_refused_when_their_term_is_over(self):
        core = core_of()
        core.step(update("b", 1, EMPTY, entry(1, 1)), 0)

        effects = core.step(vote_request("c", 2, msg.OpId(1, 1), ignore_live_leader=True), 0)

        refused, vote = all_of(effects, ev.Reply)
        assert refused.response.error.code is msg.ConsensusErrorCode.INVALID_TERM
        assert vote.response.vote_granted
        assert all_of(core.step(ev.Synced(1), 0), ev.Reply) == []

    def test_a_follower_that_waits_for_its_disk_does_not_run(self):
        core = core_of()
        core.step(update("b", 1, EMPTY, entry(1, 1)), 0)

        assert all_of(core.step(ev.ElectionTimeout(), 100 * S), ev.SendVote) == []

    def test_a_lost_election_raises_the_term_to_the_highest_seen(self):
        core = core_of()
        core.step(ev.ElectionTimeout(), 0)
        response = msg.RequestConsensusVoteResponse("b", 7, False)

        effects = core.step(ev.VoteAnswered(1, "b", response), 0)

        assert core.term == 7
        assert only(effects, ev.SaveMeta).term == 7
        assert core.failed_elections == 1

    def test_learners_do_not_run(self):
        core = core_of(config=config_of("b", "c", learners=("a",)))

        assert all_of(core.step(ev.ElectionTimeout(), 0), ev.SendVote) == []
        assert core.role is Role.LEARNER

    def test_a_single_voter_leads_at_once_and_commits_when_durable(self):
        core = core_of(config=config_of("a"))

        effects = core.step(ev.ElectionTimeout(), 0)

        assert core.role is Role.LEADER
        assert all_of(effects, ev.Committed) == []
        assert only(core.step(ev.Synced(1), 0), ev.Committed).index == 1

    def test_a_vote_of_an_older_term_does_not_count(self):
        core = core_of(term=4)
        core.step(ev.RunElection(), 0)

        core.step(granted(1, "b", 4), 0)
        assert core.role is Role.CANDIDATE

        core.step(granted(1, "b", 5), 0)
        assert core.role is Role.LEADER

    def test_a_late_vote_of_the_pre_election_does_not_count(self):
        core = core_of()
        core.step(ev.ElectionTimeout(), 0)
        core.step(granted(1, "c", 0), 0)

        core.step(granted(1, "b", 1), 0)

        assert (core.role, core.term) == (Role.CANDIDATE, 1)


class TestFollower:
    def test_an_answer_waits_until_the_entries_are_durable(self):
        core = core_of()

        effects = core.step(update("b", 1, EMPTY, entry(1, 1)), 0)
        assert all_of(effects, ev.Reply) == []

        answer = answer_of(core.step(ev.Synced(1), 0))
        assert answer.last_received_current_leader == msg.OpId(1, 1)

    def test_a_heartbeat_is_answered_while_the_disk_is_slow(self):
        core = core_of()
        core.step(update("b", 1, EMPTY, entry(1, 1)), 0)

        answer = answer_of(core.step(update("b", 1, msg.OpId(1, 1)), 0))

        assert answer.error is None
        assert answer.last_received_current_leader.index == 0  # nothing is durable yet

    @pytest.mark.parametrize("make", [RaftCore, mutants.CommitsBeyondMatch])
    def test_it_commits_only_entries_matched_with_this_leader(self, make):
        core = core_of(term=1, entries=(entry(1, 1), entry(1, 2)), make=make)

        core.step(update("b", 2, msg.OpId(1, 1), committed=2), 0)

        assert core.commit_index == (1 if make is RaftCore else 2)

    def test_a_conflicting_tail_is_replaced(self):
        core = core_of(term=1, entries=(entry(1, 1), entry(1, 2), entry(1, 3)))

        effects = core.step(update("b", 2, msg.OpId(1, 1), entry(2, 2)), 0)

        assert core.log.last == msg.OpId(2, 2)
        append = only(effects, ev.AppendLog)
        assert (append.preceding, append.entries) == (msg.OpId(1, 1), (entry(2, 2),))
        assert core.durable_index == 1

    def test_repeated_and_late_requests_do_not_cut_the_log(self):
        core = core_of()
        first = update("b", 1, EMPTY, entry(1, 1))
        core.step(first, 0)
        core.step(update("b", 1, msg.OpId(1, 1), entry(1, 2), entry(1, 3)), 0)
        core.step(ev.Synced(2), 0)

        effects = core.step(first, 0)

        assert core.log.last_index == 3
        assert all_of(effects, ev.AppendLog) == []
        assert answer_of(effects).last_received_current_leader == msg.OpId(1, 1)

    def test_a_gap_is_refused_with_the_last_index(self):
        core = core_of(term=1, entries=(entry(1, 1),))

        answer = answer_of(core.step(update("b", 2, msg.OpId(2, 5), entry(2, 6)), 0))

        assert answer.error.code is msg.ConsensusErrorCode.PRECEDING_ENTRY_DIDNT_MATCH
        assert (answer.last_received, answer.last_committed_index) == (msg.OpId(1, 1), 0)

    def test_a_leader_of_an_older_term_is_refused(self):
        core = core_of(term=4)

        answer = answer_of(core.step(update("b", 3, EMPTY), 0))

        assert answer.error.code is msg.ConsensusErrorCode.INVALID_TERM
        assert answer.responder_term == 4
        assert core.heard_leader_ns is None

    def test_committed_entries_are_never_cut(self):
        core = core_of(term=1, entries=(entry(1, 1),))
        core.step(update("b", 1, msg.OpId(1, 1), committed=1), 0)

        with pytest.raises(AssertionError, match="truncation"):
            core.step(update("c", 2, EMPTY, entry(2, 1)), 0)

    def test_entries_in_a_snapshot_are_skipped(self):
        core = core_of(term=1, base=msg.OpId(1, 5))

        entries = tuple(entry(1, index) for index in range(4, 8))
        core.step(update("b", 1, msg.OpId(1, 3), *entries), 0)

        assert core.log.last_index == 7
        assert core.log.base.index == 5

    def test_syncs_of_a_replaced_tail_do_not_count(self):
        core = core_of()
        core.step(update("b", 1, EMPTY, entry(1, 1), entry(1, 2)), 0)
        core.step(update("c", 2, msg.OpId(1, 1), entry(2, 2)), 0)

        core.step(ev.Synced(1), 0)
        assert core.durable_index == 1

        core.step(ev.Synced(2), 0)
        assert core.durable_index == 2


class TestLeader:
    @pytest.mark.parametrize("make", [RaftCore, mutants.CommitsOldTerms])
    def test_entries_of_older_terms_do_not_commit_by_counting(self, make):
        """Raft, figure 8: a majority has an old entry (c), which is overwritten later (e)."""
        core = core_of(term=2, entries=(entry(1, 1), entry(2, 2)), make=make)
        lead(core)

        acked(core, "b", 2)
        assert core.commit_index == (0 if make is RaftCore else 2)

        acked(core, "b", 3)
        assert core.commit_index == 3
        assert core.committed_in_term

    @pytest.mark.parametrize("make", [RaftCore, mutants.AcksBeforeSync])
    def test_a_leader_counts_itself_only_when_durable(self, make):
        core = core_of(make=make)
        core.step(ev.RunElection(), 0)
        core.step(granted(1, "b", 1), 0)

        acked(core, "b", 1)
        assert core.commit_index == (0 if make is RaftCore else 1)

        core.step(ev.Synced(1), 0)
        assert core.commit_index == 1

    def test_one_outstanding_request_per_peer(self):
        core = core_of()
        lead(core)

        effects = core.step(ev.Propose(msg.EntryKind.WRITE, b"x", "t"), 0)
        assert all_of(effects, ev.SendUpdate) == []

        sent = only(acked(core, "b", 1), ev.SendUpdate)
        assert [e.payload for e in sent.request.entries] == [b"x"]

    def test_a_late_answer_to_an_older_request_is_ignored(self):
        core = core_of()
        lead(core)
        old = core._leader.peers["b"].in_flight
        assert old is not None
        core.step(ev.UpdateAnswered("b", old, None), 0)
        core.step(ev.HeartbeatDue(), 0)

        response = msg.UpdateConsensusResponse("b", 1, msg.OpId(1, 1), msg.OpId(1, 1))
        core.step(ev.UpdateAnswered("b", old, response), 0)

        assert core._leader.peers["b"].match_index == 0

    def test_a_leader_without_a_majority_steps_down(self):
        core = core_of()
        lead(core, 0)
        acked(core, "b", 1, S)

        core.step(ev.HeartbeatDue(), 3 * S)
        assert core.role is Role.LEADER

        effects = core.step(ev.HeartbeatDue(), 4 * S)
        assert (core.role, core.term, core.leader_uuid) == (Role.FOLLOWER, 1, None)
        assert all_of(effects, ev.SaveMeta) == []

    def sending_a_snapshot(self) -> tuple[RaftCore, ev.SendSnapshot]:
        core = core_of(term=1, base=msg.OpId(1, 10), entries=(entry(1, 11),))
        lead(core)
        mismatch = msg.ConsensusErrorCode.PRECEDING_ENTRY_DIDNT_MATCH
        return core, only(refused(core, "b", mismatch, msg.OpId(1, 2)), ev.SendSnapshot)

    @pytest.mark.parametrize("arrives", [False, True])
    def test_every_part_of_a_snapshot_is_a_sign_of_life(self, *, arrives):
        core, sent = self.sending_a_snapshot()
        if arrives:
            core.step(ev.SnapshotProgress("b", sent.request_id), 2 * S)

        core.step(ev.HeartbeatDue(), 4 * S)

        assert (core.role is Role.LEADER) is arrives

    def test_a_peer_behind_the_log_is_sent_the_snapshot(self):
        core, sent = self.sending_a_snapshot()
        done = msg.InstallSnapshotResponse("b", 2, installed=True)
        effects = core.step(ev.SnapshotSent("b", sent.request_id, msg.OpId(1, 10), done), 0)
        assert only(effects, ev.SendUpdate).request.preceding == msg.OpId(1, 10)

    def test_an_emptied_peer_does_not_count_for_its_old_log(self):
        core = core_of()
        lead(core)
        core.step(ev.Propose(msg.EntryKind.WRITE, b"x", "t"), 0)
        acked(core, "b", 1)

        effects = refused(core, "b", msg.ConsensusErrorCode.PRECEDING_ENTRY_DIDNT_MATCH)

        assert core._leader.peers["b"].match_index == 0
        assert only(effects, ev.SendUpdate).request.preceding == EMPTY

    def test_batches_are_bounded_but_never_empty(self):
        core = core_of()
        core.options.batch_bytes_max = 10
        lead(core)
        for payload in (b"x" * 50, b"y" * 50):
            core.step(ev.Propose(msg.EntryKind.WRITE, payload, "t"), 0)

        sent = only(acked(core, "b", 1), ev.SendUpdate)

        assert len(sent.request.entries) == 1

    def test_followers_refuse_proposals(self):
        effects = core_of().step(ev.Propose(msg.EntryKind.WRITE, b"", "t"), 0)

        assert only(effects, ev.ProposalRejected).token == "t"


class TestHeartbeats:
    def test_only_requests_to_all_peers_delay_the_next_heartbeat(self):
        core = core_of()
        lead(core, 1 * S)
        assert core.all_sent_ns == 1 * S
        acked(core, "b", 1, 2 * S)
        core.step(ev.Propose(msg.EntryKind.WRITE, b"", "t"), 3 * S)  # "c" has not answered yet
        assert core.all_sent_ns == 1 * S
        acked(core, "b", 2, 4 * S)
        acked(core, "c", 1, 4 * S)
        acked(core, "c", 2, 4 * S)
        core.step(ev.ReadRequested("t"), 5 * S)
        assert core.all_sent_ns == 5 * S


class TestReads:
    def ready(self, make: type[RaftCore] = RaftCore) -> RaftCore:
        core = core_of(make=make)
        lead(core)
        acked(core, "b", 1)
        acked(core, "c", 1)
        assert core.commit_index == 1
        return core

    @pytest.mark.parametrize("make", [RaftCore, mutants.ReadsUnconfirmed])
    def test_a_read_waits_for_a_round_that_began_after_it(self, make):
        core = self.ready(make)
        core.step(ev.HeartbeatDue(), 0)  # this heartbeat precedes the read

        early = core.step(ev.ReadRequested("r"), 0)
        early += acked(core, "b", 1)
        assert (all_of(early, ev.ReadReady) == []) == (make is RaftCore)

        if make is RaftCore:
            assert only(acked(core, "b", 1), ev.ReadReady).index == 1

    def test_a_read_waits_for_an_entry_of_the_own_term(self):
        core = core_of()
        lead(core)
        core.step(ev.ReadRequested("r"), 0)

        # only the second answer is to a request sent after the read
        effects = acked(core, "b", 0) + acked(core, "b", 0)
        assert all_of(effects, ev.ReadReady) == []

        assert only(acked(core, "b", 1), ev.ReadReady).index == 1

    def test_a_lost_leadership_fails_the_reads(self):
        core = self.ready()
        core.step(ev.ReadRequested("r"), 0)

        effects = core.step(update("b", 2, msg.OpId(1, 1)), 0)

        assert only(effects, ev.ReadRejected).token == "r"

    def test_a_follower_refuses_reads(self):
        assert only(core_of().step(ev.ReadRequested("r"), 0), ev.ReadRejected).token == "r"


def adding(uuid: str, member_type: str = "VOTER", **attributes: bool) -> msg.PeerChange:
    peer = PeerConfig(uuid, f"{uuid}:1", member_type, **attributes)
    return msg.PeerChange(msg.ChangeType.ADD_PEER, peer)


def removing(uuid: str) -> msg.PeerChange:
    return msg.PeerChange(msg.ChangeType.REMOVE_PEER, PeerConfig(uuid, ""))


def modifying(uuid: str, member_type: str = "VOTER", **attributes: bool) -> msg.PeerChange:
    peer = PeerConfig(uuid, "", member_type, **attributes)
    return msg.PeerChange(msg.ChangeType.MODIFY_PEER, peer)


def change(core: RaftCore, *changes: msg.PeerChange, cas: int | None = None) -> list[ev.Effect]:
    return core.step(ev.ChangeConfig(changes, cas, "c"), 0)


def leader_in_office(
    *learners: str, make: type[RaftCore] = RaftCore, now_ns: int = 0, **options: Any
) -> RaftCore:
    """Return the leader of a, b and c; b has acknowledged its NO_OP, and c never answers."""
    core = core_of(config=config_of("a", "b", "c", learners=learners), make=make)
    for name, value in options.items():
        setattr(core.options, name, value)
    lead(core, now_ns)
    acked(core, "b", 1, now_ns)
    assert core.committed_in_term
    return core


class TestConfig:
    def code(self, effects: list[ev.Effect]) -> msg.ConsensusErrorCode:
        return only(effects, ev.ProposalRejected).code

    @pytest.mark.parametrize("make", [RaftCore, mutants.ChangesBeforeItsTerm])
    def test_no_change_before_an_entry_of_the_own_term_has_committed(self, make):
        core = core_of(make=make)
        lead(core)

        effects = change(core, removing("c"))

        if make is RaftCore:
            assert self.code(effects) is msg.ConsensusErrorCode.ILLEGAL_STATE
            assert "KUDU-872" in only(effects, ev.ProposalRejected).reason
        else:
            assert all_of(effects, ev.ProposalAccepted) != []

    def test_one_change_at_a_time(self):
        core = leader_in_office()
        assert all_of(change(core, removing("c")), ev.ProposalAccepted) != []

        effects = change(core, adding("d"))
        assert self.code(effects) is msg.ConsensusErrorCode.ILLEGAL_STATE

        core.step(ev.Synced(2), 0)
        acked(core, "b", 2)
        assert all_of(change(core, adding("d")), ev.ProposalAccepted) != []

    @pytest.mark.parametrize(
        "changes",
        [
            (),
            (removing("b"), removing("c")),
            (adding("d"), removing("c")),
            (removing("a"),),
            (modifying("a", "NON_VOTER"),),
            (removing("x"),),
            (modifying("x"),),
            (adding("b"),),
            (modifying("b"),),
            (modifying("b", "OBSERVER"),),
            (msg.PeerChange(msg.ChangeType.ADD_PEER, PeerConfig("d", "")),),
        ],
        ids=lambda changes: "+".join(f"{c.type.value}-{c.peer.uuid}" for c in changes) or "none",
    )
    def test_invalid_configurations(self, changes):
        core = leader_in_office()

        effects = change(core, *changes)

        assert self.code(effects) is msg.ConsensusErrorCode.INVALID_CONFIG
        assert core.config == config_of("a", "b", "c")

    @pytest.mark.parametrize(
        ("changes", "members"),
        [
            ((adding("d"),), "aV bV cV dV"),
            ((adding("d", "NON_VOTER", promote=True),), "aV bV cV dN+"),
            ((removing("b"),), "aV cV"),
            ((modifying("c", replace=True),), "aV bV cV-"),
            ((modifying("a", replace=True),), "aV- bV cV"),
            ((modifying("c", "NON_VOTER"),), "aV bV cN"),
            ((adding("d", "NON_VOTER"), adding("e", "NON_VOTER"), removing("c")), "aV bV dN eN"),
        ],
    )
    def test_effects_of_changes(self, changes, members):
        core = leader_in_office()

        change(core, *changes)

        shown = " ".join(
            f"{p.uuid}{p.member_type[0]}{'+' * p.promote}{'-' * p.replace}"
            for p in core.config.peers
        )
        assert shown == members
        assert {p.address for p in core.config.peers} == {f"{p.uuid}:1" for p in core.config.peers}

    def test_compare_and_set_is_on_the_committed_configuration(self):
        core = leader_in_office()
        assert self.code(change(core, removing("c"), cas=0)) is msg.ConsensusErrorCode.CAS_FAILED
        change(core, removing("c"), cas=-1)

        assert self.code(change(core, adding("d"), cas=2)) is msg.ConsensusErrorCode.CAS_FAILED

        core.step(ev.Synced(2), 0)
        acked(core, "b", 2)
        assert all_of(change(core, adding("d"), cas=2), ev.ProposalAccepted) != []

    def test_followers_change_nothing(self):
        effects = change(core_of(), removing("c"))

        assert self.code(effects) is msg.ConsensusErrorCode.NOT_THE_LEADER

    def test_a_configuration_is_active_from_its_append_and_durable_at_its_commit(self):
        core = leader_in_office()

        effects = change(core, removing("c"))
        assert [peer.uuid for peer in core.config.peers] == ["a", "b"]
        assert all_of(effects, ev.SaveMeta) == []

        effects = core.step(ev.Synced(2), 0) + acked(core, "b", 1) + acked(core, "b", 2)
        assert only(effects, ev.SaveMeta).committed_config.opid_index == 2

    @pytest.mark.parametrize("make", [RaftCore, mutants.KeepsAbortedConfig])
    def test_an_aborted_configuration_is_taken_back(self, make):
        core = core_of(make=make)
        core.step(update("b", 1, EMPTY, config_entry(1, "a", "b")), 0)

        core.step(update("c", 2, EMPTY, entry(2, 1)), 0)

        assert core.configs.pending == (make is not RaftCore)

    def test_a_leader_that_changed_the_configuration_may_run_again_at_once(self):
        core = leader_in_office()
        change(core, removing("c"))
        core.step(ev.StepDown(), 0)

        core.step(ev.RunElection(), 0)
        assert core.role is Role.CANDIDATE

        core.step(granted(core._election_count, "b", core.term), 0)
        assert core.role is Role.LEADER

    def test_a_change_is_sent_to_the_peer_that_it_adds(self):
        core = leader_in_office()

        effects = change(core, adding("d"))

        assert "d" in [sent.peer_uuid for sent in all_of(effects, ev.SendUpdate)]

    def test_a_follower_is_what_its_newest_configuration_says(self):
        core = core_of()

        core.step(update("b", 1, EMPTY, config_entry(1, "b", "c", learners=("a",))), 0)
        assert core.role is Role.LEARNER

        core.step(update("c", 2, EMPTY, entry(2, 1)), 0)
        assert core.role is Role.FOLLOWER

    def test_a_leader_steps_down_once_the_change_that_demotes_it_has_committed(self):
        core = core_of(term=1, entries=(config_entry(1, "b", "c", learners=("a",)),))
        core.step(ev.RunElection(), 0)
        core.step(granted(1, "b", 2), 0)
        core.step(granted(1, "c", 2), 0)
        core.step(ev.Synced(1), 0)
        acked(core, "b", 2)
        assert core.role is Role.LEADER

        effects = acked(core, "c", 2)

        assert core.commit_index == 2
        assert core.role is Role.LEARNER
        assert all_of(effects, ev.SendUpdate) == []


class TestNonVoters:
    def newcomer(self, *, promote: bool = True, batch_bytes_max: int = 1 << 20) -> RaftCore:
        """Return a leader whose configuration (entry 7, uncommitted) adds "d"."""
        core = leader_in_office(batch_bytes_max=batch_bytes_max)
        for _ in range(5):
            core.step(ev.Propose(msg.EntryKind.WRITE, b"x" * 100, "w"), 0)
        change(core, adding("d", "NON_VOTER", promote=promote))
        core.step(ev.Synced(core.log.append_sequence), 0)
        acked(core, "b", 1)
        acked(core, "b", 7)
        assert (core.commit_index, core.log.last_index) == (7, 7)
        return core

    def voters(self, core: RaftCore) -> str:
        return "".join(core.configs.voters)

    @pytest.mark.parametrize("is_broken", [False, True])
    def test_they_do_not_count(self, *, is_broken):
        core = leader_in_office("d", "e")
        if is_broken:
            mutants.CountsNonVoters.break_parts(core)
        core.step(ev.Propose(msg.EntryKind.WRITE, b"x", "w"), 0)
        core.step(ev.Synced(2), 0)
        for peer in ("d", "e"):
            acked(core, peer, 1)
            acked(core, peer, 2)

        assert core.commit_index == (2 if is_broken else 1)

    def test_the_leader_promotes_one_that_caught_up(self):
        core = self.newcomer()
        assert self.voters(core) == "abc"

        acked(core, "d", 0)

        assert self.voters(core) == "abcd"
        assert not core.config.peers[-1].promote
        assert core.configs.committed.opid_index == 7

    def test_only_when_within_one_batch_of_the_commit_index(self):
        core = self.newcomer(batch_bytes_max=250)  # room for two entries
        acked(core, "d", 3)
        assert self.voters(core) == "abc"

        acked(core, "d", 5)
        assert self.voters(core) == "abcd"

    def test_only_when_it_is_to_be_promoted(self):
        core = self.newcomer(promote=False)

        acked(core, "d", 7)

        assert self.voters(core) == "abc"

    def test_not_while_another_change_is_pending(self):
        core = self.newcomer()
        change(core, adding("e", "NON_VOTER"))
        acked(core, "d", 7)
        assert self.voters(core) == "abc"

        core.step(ev.Synced(core.log.append_sequence), 0)
        acked(core, "b", 8)
        acked(core, "d", 8)
        assert self.voters(core) == "abcd"


class TestTransfer:
    def test_the_successor_is_asked_once_it_has_the_whole_log(self):
        core = leader_in_office()
        core.step(ev.Propose(msg.EntryKind.WRITE, b"x", "w"), 0)

        effects = core.step(ev.StepDown(msg.StepDownMode.GRACEFUL, "c"), 0)
        effects += acked(core, "b", 2)
        effects += acked(core, "c", 1)
        assert all_of(effects, ev.SendRunElection) == []
        assert core.role is Role.LEADER

        assert only(acked(core, "c", 2), ev.SendRunElection).peer_uuid == "c"
        assert (
            all_of(core.step(ev.HeartbeatDue(), 0) + acked(core, "c", 2), ev.SendRunElection) == []
        )

    def test_without_a_name_the_first_voter_that_is_caught_up_succeeds(self):
        core = leader_in_office("d")
        acked(core, "d", 1)

        effects = core.step(ev.StepDown(msg.StepDownMode.GRACEFUL), 0)

        assert only(effects, ev.SendRunElection).peer_uuid == "b"

    def test_a_transfer_blocks_writes_and_ends_without_a_successor(self):
        core = leader_in_office()
        core.step(ev.StepDown(msg.StepDownMode.GRACEFUL, "b"), 0)
        write = ev.Propose(msg.EntryKind.WRITE, b"x", "w")

        assert all_of(core.step(write, 0), ev.ProposalRejected) != []
        assert all_of(change(core, removing("c")), ev.ProposalRejected) != []
        core.step(ev.HeartbeatDue(), 2 * S)

        assert core.role is Role.LEADER
        assert all_of(core.step(write, 2 * S), ev.ProposalAccepted) != []

    def test_an_abrupt_end_asks_no_successor(self):
        core = leader_in_office()

        effects = core.step(ev.StepDown(), 0)

        assert core.role is Role.FOLLOWER
        assert all_of(effects, ev.SendRunElection) == []


class TestHealth:
    def test_of_peers_heard_never_heard_and_silent_for_too_long(self):
        core = leader_in_office(step_down_ns=1000 * S, failed_ns=300 * S)
        healthy, unknown = PeerHealth.HEALTHY, PeerHealth.UNKNOWN
        assert core.peer_health() == {"a": healthy, "b": healthy, "c": unknown}
        assert all_of(core.step(ev.HeartbeatDue(), S), ev.HealthChanged) != []
        assert all_of(core.step(ev.HeartbeatDue(), 300 * S), ev.HealthChanged) == []

        effects = core.step(ev.HeartbeatDue(), 301 * S)

        failed = PeerHealth.FAILED
        assert core.peer_health() == {"a": healthy, "b": failed, "c": failed}
        assert len(all_of(effects, ev.HealthChanged)) == 1

    def test_one_that_says_it_failed_is_beyond_recovery_until_it_answers(self):
        core = leader_in_office()

        refused(core, "c", msg.ConsensusErrorCode.TABLET_FAILED)
        assert core.peer_health()["c"] is PeerHealth.FAILED_UNRECOVERABLE

        core.step(ev.HeartbeatDue(), 0)
        acked(core, "c", 1)
        assert core.peer_health()["c"] is PeerHealth.HEALTHY

    def test_a_server_without_a_replica_is_given_an_empty_one(self):
        core = leader_in_office(tablet_copy=True)

        copy = only(refused(core, "c", msg.ConsensusErrorCode.TABLET_NOT_FOUND), ev.SendStartCopy)
        assert all_of(core.step(ev.HeartbeatDue(), 0), ev.SendStartCopy) == []
        effects = core.step(ev.CopyStarted("c", copy.request_id, None), 0)

        assert [sent.peer_uuid for sent in all_of(effects, ev.SendUpdate)] == ["c"]

    def test_a_server_without_its_replica_does_not_count_for_the_old_log(self):
        core = leader_in_office(tablet_copy=True)
        core.step(ev.Propose(msg.EntryKind.WRITE, b"x", "w"), 0)  # not durable on the leader
        acked(core, "b", 2)
        core.step(ev.HeartbeatDue(), 0)
        refused(core, "b", msg.ConsensusErrorCode.TABLET_NOT_FOUND)

        acked(core, "c", 2)

        assert core.commit_index == 1

    def test_a_newcomer_is_given_one_once_it_is_a_member_for_good(self):
        core, missing = leader_in_office(tablet_copy=True), msg.ConsensusErrorCode.TABLET_NOT_FOUND
        change(core, adding("d", "NON_VOTER"))
        assert all_of(refused(core, "d", missing), ev.SendStartCopy) == []

        core.step(ev.Synced(core.log.append_sequence), 0)
        acked(core, "b", 2)
        core.step(ev.HeartbeatDue(), 0)

        assert only(refused(core, "d", missing), ev.SendStartCopy).config.opid_index == 2

    def test_a_newcomer_whose_vote_may_be_needed_is_given_one_at_once(self):
        core = leader_in_office(tablet_copy=True)
        change(core, adding("d", "VOTER"))

        effects = refused(core, "d", msg.ConsensusErrorCode.TABLET_NOT_FOUND)

        assert only(effects, ev.SendStartCopy).peer_uuid == "d"

    @pytest.mark.parametrize(
        ("code", "health"),
        [
            (msg.ConsensusErrorCode.INVALID_TERM, PeerHealth.FAILED_UNRECOVERABLE),
            (msg.ConsensusErrorCode.TABLET_NOT_FOUND, PeerHealth.FAILED_UNRECOVERABLE),
            (msg.ConsensusErrorCode.ALREADY_INPROGRESS, PeerHealth.UNKNOWN),
        ],
    )
    def test_a_copy_that_is_refused(self, code, health):
        core = leader_in_office(tablet_copy=True)
        copy = only(refused(core, "c", msg.ConsensusErrorCode.TABLET_NOT_FOUND), ev.SendStartCopy)

        core.step(ev.CopyStarted("c", copy.request_id, msg.ConsensusError(code, "")), 0)

        assert core.peer_health()["c"] is health

    def test_masters_are_not_copied_to(self):
        core = leader_in_office()

        effects = refused(core, "c", msg.ConsensusErrorCode.TABLET_NOT_FOUND)

        assert all_of(effects, ev.SendStartCopy) == []

    def test_a_follower_knows_nothing_of_it(self):
        assert core_of().peer_health() == {}


class TestSnapshots:
    def install(self, core: RaftCore, index: int, term: int = 1) -> list[ev.Effect]:
        config = config_of("a", "b", "c")
        opid = msg.OpId(term, index)
        return core.step(ev.SnapshotReceived("b", 2, opid, config, b"", b"s", "reply"), 0)

    def test_it_replaces_a_log_that_does_not_continue_it(self):
        core = core_of(term=1, entries=(entry(1, 1),))

        effects = self.install(core, 7)

        assert not only(effects, ev.InstallSnapshot).keep_log
        assert (core.log.base, core.log.last_index, core.commit_index) == (msg.OpId(1, 7), 7, 7)
        kinds = [type(effect) for effect in effects]
        assert kinds.index(ev.InstallSnapshot) < kinds.index(ev.Reply)

    def test_it_keeps_a_log_that_does(self):
        core = core_of(term=1, entries=tuple(entry(1, index) for index in range(1, 6)))

        effects = self.install(core, 3)

        assert only(effects, ev.InstallSnapshot).keep_log
        assert (core.log.base.index, core.log.last_index, core.durable_index) == (3, 5, 5)

    def test_an_old_one_changes_nothing(self):
        core = core_of(term=1, base=msg.OpId(1, 9))

        effects = self.install(core, 7)

        assert all_of(effects, ev.InstallSnapshot) == []
        assert answer_of(effects).installed

    def test_pending_syncs_of_a_removed_log_are_forgotten(self):
        core = core_of(term=1)
        core.step(update("b", 1, EMPTY, *(entry(1, index) for index in range(1, 10))), 0)
        self.install(core, 7, term=2)

        core.step(ev.Synced(1), 0)

        assert (core.durable_index, core.log.last_index) == (7, 7)

    def test_configurations_after_it_stay_pending(self):
        entries = (*(entry(1, index) for index in range(1, 5)), config_entry(5, "a", "b"))
        core = core_of(term=1, entries=entries)

        self.install(core, 3)

        assert core.configs.pending
        assert [peer.uuid for peer in core.config.peers] == ["a", "b"]
