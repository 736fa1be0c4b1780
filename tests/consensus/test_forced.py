"""Configurations that an administrator forces on the remaining members of a group."""

import pytest

from targets.kudu.consensus import events as ev
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.quorum_util import (
    BadChangeError,
    decode_config,
    encode_config,
    forced_config,
    voters_of,
)
from targets.kudu.consensus.raft_core import TWO_LEADERS, RaftCore, Role
from targets.kudu.messages import PeerConfig, RaftConfig
from tests.consensus.test_core import (
    all_of,
    answer_of,
    config_of,
    core_of,
    entry,
    granted,
    lead,
    only,
    update,
    vote_request,
)

FIVE = config_of("a", "b", "c", "d", learners=("n",))


def force(core: RaftCore, *members: str) -> list[ev.Effect]:
    return core.step(ev.ForceConfig(members, "token"), 0)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        (("a", "x", "y"), "not in the committed configuration here: x, y"),
        (("b", "c"), "this replica, a, would not be a voter"),
        ((), "this replica, a, would not be a voter"),
        (("a", "b", "c", "d", "n"), "changes nothing"),
    ],
)
def test_what_is_refused(members, why):
    with pytest.raises(BadChangeError, match=why):
        forced_config(FIVE, members, local_uuid="a")
    core = core_of(config=FIVE, term=3)
    rejected = only(force(core, *members), ev.ProposalRejected)
    assert (rejected.code, rejected.token) == (msg.ConsensusErrorCode.INVALID_CONFIG, "token")
    assert (core.term, core.log.last_index, core.configs.pending) == (3, 0, False)


def test_one_without_a_vote_cannot_stay_alone():
    with pytest.raises(BadChangeError, match="this replica, n, would"):
        forced_config(FIVE, ("n", "a"), local_uuid="n")


def test_members_stay_as_they_were():
    peers = (
        PeerConfig("a", "a:1", replace=True),
        PeerConfig("b", "b:1"),
        PeerConfig("n", "n:1", "NON_VOTER", promote=True),
    )
    kept = forced_config(RaftConfig(7, peers), ("n", "a"), local_uuid="a")
    assert kept == RaftConfig(7, (peers[0], peers[2]))


def test_a_lone_survivor_leads_and_commits_its_log():
    core = core_of(term=2, entries=(entry(1, 1), entry(2, 2)))
    assert core.commit_index == 0
    effects = force(core, "a")
    forced = only(effects, ev.ConfigForced)
    assert (forced.token, forced.opid) == ("token", msg.OpId(3, 3))
    assert voters_of(forced.config) == ("a",)
    assert all_of(effects, ev.SendVote) == []
    assert (core.role, core.term, core.configs.voters) == (Role.LEADER, 4, ("a",))
    assert core.commit_index == 0  # nothing is durable yet
    appended = [one for effect in all_of(effects, ev.AppendLog) for one in effect.entries]
    assert [(one.term, one.index) for one in appended] == [(3, 3), (4, 4)]
    assert voters_of(decode_config(appended[0])) == ("a",)
    metas = all_of(effects, ev.SaveMeta)
    assert (metas[-1].term, metas[-1].voted_for) == (4, "a")
    assert effects.index(metas[-1]) < effects.index(all_of(effects, ev.AppendLog)[-1])
    core.step(ev.Synced(core.log.append_sequence), 0)
    assert (core.commit_index, core.configs.committed.opid_index) == (4, 3)
    core.step(ev.Propose(msg.EntryKind.WRITE, b"x", "write"), 0)
    core.step(ev.Synced(core.log.append_sequence), 0)
    assert core.commit_index == 5


def test_a_pending_configuration_is_overruled_and_counts_for_nothing():
    grown = config_of("a", "b", "c", "d")
    pending = msg.Entry(2, 1, msg.EntryKind.CONFIG, encode_config(grown))
    core = core_of(term=2, entries=(pending,))
    assert core.configs.voters == ("a", "b", "c", "d")
    force(core, "a")
    assert core.configs.voters == ("a",)
    core.step(ev.Synced(core.log.append_sequence), 0)
    assert (core.commit_index, voters_of(core.configs.committed)) == (3, ("a",))
    refused = core_of(term=2, entries=(pending,))
    only(force(refused, "a", "d"), ev.ProposalRejected)  # not in the committed configuration


def test_several_survivors_need_only_their_own_majority():
    five = config_of("a", "b", "c", "d", "e")
    core = core_of(config=five, term=2)
    effects = force(core, "a", "b")
    assert [vote.peer_uuid for vote in all_of(effects, ev.SendVote)] == ["b"]
    assert core.role is Role.CANDIDATE
    assert only(effects, ev.SendVote).request.last_logged == msg.OpId(3, 1)
    for stranger in ("c", "d", "e"):
        core.step(granted(1, stranger, core.term), 0)
    assert core.role is Role.CANDIDATE
    core.step(granted(1, "b", core.term), 0)
    assert core.role is Role.LEADER
    assert sorted(core._leader.peers) == ["b"]


def test_a_leader_that_waits_for_its_majority_begins_anew():
    core = core_of()
    lead(core)
    core.step(ev.Propose(msg.EntryKind.WRITE, b"x", "write"), 0)
    core.step(ev.Synced(core.log.append_sequence), 0)
    assert core.commit_index == 0
    term = core.term
    force(core, "a")
    assert (core.role, core.term) == (Role.LEADER, term + 2)
    core.step(ev.Synced(core.log.append_sequence), 0)
    assert core.commit_index == core.log.last_index == 4


def forced_leader() -> RaftCore:
    """Return `a` as the only member and leader: two entries, configuration (2, 3), NO_OP (3, 4)."""
    core = core_of(term=1, entries=(entry(1, 1), entry(1, 2)))
    force(core, "a")
    core.step(ev.Synced(core.log.append_sequence), 0)
    assert (core.role, core.term, core.commit_index) == (Role.LEADER, 3, 4)
    return core


def test_an_excluded_member_may_lead_the_same_term():
    core = forced_leader()
    answer = answer_of(core.step(update("b", 3, msg.OpId(3, 4)), 0))
    assert answer.error.code is msg.ConsensusErrorCode.INVALID_TERM
    assert (core.role, core.leader_uuid) == (Role.LEADER, "a")


def test_two_members_never_lead_one_term():
    core = core_of(term=1)
    core.step(update("b", 1, msg.OpId(0, 0)), 0)
    with pytest.raises(AssertionError, match=f"{TWO_LEADERS} 1"):
        core.step(update("c", 1, msg.OpId(0, 0)), 0)


@pytest.mark.parametrize(
    ("preceding", "entries"),
    [
        (msg.OpId(1, 3), ()),  # the member has committed a different third entry
        (msg.OpId(1, 3), (entry(9, 4),)),
        (msg.OpId(1, 2), (entry(9, 3),)),
        (msg.OpId(1, 2), (entry(1, 3), entry(9, 4), entry(9, 5))),
        (msg.OpId(9, 4), ()),
    ],
)
def test_a_history_that_contradicts_what_is_committed_is_refused(preceding, entries):
    core = forced_leader()
    answer = answer_of(core.step(update("b", 9, preceding, *entries, committed=9), 0))
    assert answer.error.code is msg.ConsensusErrorCode.INVALID_TERM
    assert (core.log.last, core.commit_index) == (msg.OpId(3, 4), 4)
    member = core_of(term=3, entries=(entry(1, 1), entry(1, 2), entry(2, 3), entry(3, 4)))
    member.step(update("c", 3, msg.OpId(3, 4), committed=4), 0)
    with pytest.raises(AssertionError, match="committed entry was lost"):
        member.step(update("b", 9, preceding, *entries), 0)


def test_a_leader_that_is_not_known_yet_is_followed_if_it_has_what_is_committed():
    core = forced_leader()
    effects = core.step(update("new", 9, msg.OpId(3, 4), entry(9, 5), committed=4), 0)
    assert all_of(effects, ev.Reply) == []  # the answer must wait for the disk
    assert core.leader_uuid == "new"
    answer = answer_of(core.step(ev.Synced(core.log.append_sequence), 0))
    assert (answer.error, answer.last_received) == (None, msg.OpId(9, 5))


@pytest.mark.parametrize(("term", "installed"), [(1, False), (2, False), (3, True), (9, True)])
def test_a_snapshot_of_another_history_is_refused(term, installed):
    core = forced_leader()
    config = config_of("a", "b", "c")
    snapshot = ev.SnapshotReceived("b", 9, msg.OpId(term, 50), config, b"", b"", "reply")
    answer = answer_of(core.step(snapshot, 0))
    assert answer.installed is installed
    assert (core.commit_index == 50) is installed


def test_an_excluded_member_gets_no_vote_without_the_configuration():
    core = forced_leader()
    core.step(ev.StepDown(msg.StepDownMode.ABRUPT, None), 0)
    request = vote_request("b", 9, msg.OpId(1, 99), ignore_live_leader=True)
    answer = answer_of(core.step(request, 0))
    assert answer.error.code is msg.ConsensusErrorCode.LAST_OPID_TOO_OLD
