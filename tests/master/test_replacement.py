"""Failed replicas are replaced by Kudu's rules, in cases and in a model that must settle.

Each word of a case is a peer: its name and its marks. The first peer is the leader. The marks are
`!` failed, `x` unrecoverable, `?` unknown, `r` marked `replace`, `n` a non-voter, and `p` a
non-voter to be promoted.
"""

import dataclasses
import itertools
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from targets.kudu.master.tablets.replacement import (
    AddPeer,
    Decision,
    EvictPeer,
    Scheme,
    StepDownLeader,
    decide,
    is_at_rest,
    is_settled,
)
from targets.kudu.messages import PeerConfig, PeerHealth, RaftConfig

ADD = AddPeer("NON_VOTER", promote=True)
NEVER = ("NON_VOTER", False)
HEALTH = {"!": PeerHealth.FAILED, "x": PeerHealth.FAILED_UNRECOVERABLE, "?": PeerHealth.UNKNOWN}


def parse(words: str) -> tuple[RaftConfig, str, dict[str, PeerHealth]]:
    peers, health = [], {}
    for word in words.split():
        uuid, marks = word[0], word[1:]
        voter = not set(marks) & {"n", "p"}
        kind = "VOTER" if voter else "NON_VOTER"
        peers.append(PeerConfig(uuid, f"{uuid}:1", kind, "p" in marks, "r" in marks))
        health[uuid] = next((HEALTH[mark] for mark in marks if mark in HEALTH), PeerHealth.HEALTHY)
    return RaftConfig(5, tuple(peers)), peers[0].uuid, health


CASES: list[tuple[str, int, Decision | None]] = [
    # nothing is wrong
    ("A B C", 3, None),
    ("A", 1, None),
    ("A B? C", 3, None),
    # B is lost: add a replica first, and evict B once the new one votes
    ("A B! C", 3, ADD),
    ("A B! C Dp", 3, None),
    ("A B! C Dp?", 3, None),
    ("A B! C D", 3, EvictPeer("B")),
    ("A B! C Dp!", 3, EvictPeer("D")),
    ("A B! C Dpx", 3, EvictPeer("D")),
    ("A B! C Dn", 3, ADD),  # D is a non-voter that is never promoted, so it does not help
    ("A B C Dp", 3, EvictPeer("D")),  # the lost replica returned before the new one became a voter
    ("A B C D", 3, EvictPeer("B")),  # the lost one returned afterwards
    ("A B! C D", 5, ADD),
    # unrecoverable: evict at once
    ("A Bx C", 3, EvictPeer("B")),
    ("A C", 3, ADD),
    ("A Bx C! D", 3, EvictPeer("B")),
    ("A Bx", 1, EvictPeer("B")),
    # no majority is healthy, so nothing changes
    ("A B! C!", 3, None),
    ("A Bx C!", 3, None),
    ("A B! C! Dp!", 3, None),
    ("A B! C? Dp", 3, None),
    ("A B?", 1, EvictPeer("B")),  # the leader alone is a majority
    ("A B! C! D", 3, EvictPeer("B")),  # two of the three that would remain are healthy
    ("A B! C! D! E", 5, None),
    ("A B! C! D E", 5, ADD),
    ("A B! C! D E Fp", 5, ADD),
    ("A B! C! D E Fp Gp", 5, None),
    # other numbers of replicas
    ("A B C", 1, EvictPeer("B")),
    ("A B", 1, EvictPeer("B")),
    ("A", 3, ADD),
    ("A Bp", 3, ADD),
    ("A Bp Cp", 3, None),
    ("A B C", 5, ADD),
    ("A B C D E", 3, EvictPeer("B")),
    ("A B C D E!", 3, EvictPeer("E")),
    ("A B C? D E", 3, EvictPeer("C")),
    ("A! B C D E", 3, None),  # an unhealthy leader evicts no member
    ("A? B! C D E Fp!", 5, ADD),
    ("A? B C", 1, None),
    # members that are marked `replace`
    ("A Br C", 3, ADD),
    ("A Br C Dp", 3, None),
    ("A Br C D", 3, EvictPeer("B")),
    ("A Br C! D", 3, EvictPeer("C")),
    ("Ar B C", 3, ADD),
    ("Ar B C D", 3, StepDownLeader()),
    ("Ar Br C Dp", 3, ADD),
    ("Ar Br C D E", 3, EvictPeer("B")),
    ("A Br", 1, EvictPeer("B")),
    ("Ar", 1, ADD),
    ("Ar Bp", 1, None),
    ("Ar B", 1, StepDownLeader()),
    ("A Br C Dp!", 3, EvictPeer("D")),
]


@pytest.mark.parametrize(("words", "num_replicas", "expected"), CASES)
def test_cases(words, num_replicas, expected):
    config, leader, health = parse(words)
    assert decide(config, leader, health, num_replicas=num_replicas) == expected


def test_kudu_2443_evicts_the_successor_of_a_leader_that_is_alone():
    differ = []
    for words, num_replicas, expected in CASES:
        config, leader, health = parse(words)
        result = decide(config, leader, health, num_replicas=num_replicas, evicts_successor=True)
        if result != expected:
            differ.append((words, num_replicas, result))
    assert differ == [("Ar B", 1, EvictPeer("B"))]


def test_a_server_in_maintenance_is_not_missed():
    config, leader, health = parse("A B! C")
    assert decide(config, leader, health, num_replicas=3, spared=("B",)) is None
    assert decide(config, leader, health, num_replicas=3, spared=("C",)) == ADD
    config, leader, health = parse("A Br C")
    assert decide(config, leader, health, num_replicas=3, spared=("B",)) == ADD


def test_a_leader_outside_the_configuration_evicts_no_member():
    config, _, health = parse("A B C D!")
    assert decide(config, "Z", health, num_replicas=3) is None


def test_settled_is_the_right_number_of_voters_and_nothing_else():
    for words, num_replicas, settled in (
        ("A B C", 3, True),
        ("A B", 3, False),
        ("A B C D", 3, False),
        ("A B Cp", 3, False),
        ("A B Cr", 3, False),
    ):
        assert settled is is_settled(parse(words)[0], num_replicas)


def test_at_rest_nothing_is_decided_and_all_else_is_asked_about():
    marks = ("", "!", "x", "?", "r", "n", "p")
    found = []
    for count in (1, 2, 3):
        for chosen in itertools.product(marks, repeat=count):
            words = " ".join(map(str.__add__, "ABC", chosen))
            config, leader, health = parse(words)
            for num_replicas in (1, 2, 3, 5):
                if not is_at_rest(config, health, num_replicas):
                    continue
                found.append((words, num_replicas))
                for scheme in Scheme:
                    asked = decide(config, leader, health, num_replicas=num_replicas, scheme=scheme)
                    assert asked is None
    assert found == [("A", 1), ("A B", 2), ("A B C", 3)]


EVICTING: list[tuple[str, int, Decision | None]] = [
    ("A B C", 3, None),
    ("A B! C", 3, EvictPeer("B")),
    ("A B! C!", 3, EvictPeer("B")),  # this lost tablets: KUDU-1097
    ("A C", 3, AddPeer("VOTER", promote=False)),
    ("A", 3, AddPeer("VOTER", promote=False)),
    ("A B C", 1, EvictPeer("C")),
    # of a moving replica, the marked member is evicted, not the new one
    ("A Br C Dp", 3, EvictPeer("B")),
    ("A B Cr D", 3, EvictPeer("C")),
    ("A Br C D?", 3, None),  # without B, the others may not form a majority
    ("A Br C! D", 3, EvictPeer("C")),
    ("A Br C Dp!", 3, EvictPeer("D")),  # the new replica was lost
    ("A Br C", 3, EvictPeer("B")),  # the missing replica is added later
    ("A Br", 3, AddPeer("VOTER", promote=False)),
    ("Ar B C", 3, AddPeer("VOTER", promote=False)),
    ("Ar B C D", 3, StepDownLeader()),
    ("B Ar C D", 3, EvictPeer("A")),
    ("Ar Br C D E", 3, EvictPeer("B")),
]


@pytest.mark.parametrize(("words", "num_replicas", "expected"), EVICTING)
def test_cases_of_the_old_scheme(words, num_replicas, expected):
    config, leader, health = parse(words)
    result = decide(config, leader, health, num_replicas=num_replicas, scheme=Scheme.EVICT)
    assert result == expected


# --- a model in which servers carry out every request ----------------------------------------


@dataclasses.dataclass
class World:
    """A model of one tablet, with servers that are up, or down for good."""

    peers: dict[str, PeerConfig]
    up: dict[str, bool]
    num_replicas: int
    # servers that are up but have lost their replica; a new replica on them would work
    lost: set[str]
    leader: str | None = None
    scheme: Scheme = Scheme.PREPARE
    added: set[str] = dataclasses.field(default_factory=set)

    @property
    def voters(self) -> list[str]:
        return [uuid for uuid, peer in self.peers.items() if peer.member_type == "VOTER"]

    def is_well(self, uuid: str) -> bool:
        return self.up[uuid] and uuid not in self.lost

    @property
    def healthy(self) -> list[str]:
        return [uuid for uuid in self.voters if self.is_well(uuid)]

    def can_commit(self) -> bool:
        return len(self.healthy) > len(self.voters) // 2

    def health(self) -> dict[str, PeerHealth]:
        return {
            uuid: PeerHealth.HEALTHY
            if self.is_well(uuid)
            else PeerHealth.FAILED_UNRECOVERABLE
            if self.up[uuid]
            else PeerHealth.FAILED
            for uuid in self.peers
        }

    def elect(self, rng: random.Random, but: str | None = None) -> None:
        able = [uuid for uuid in self.healthy if uuid != but]
        self.leader = rng.choice(able) if able else but

    def candidates(self) -> list[str]:
        return [uuid for uuid, up in self.up.items() if up and uuid not in self.peers]

    def step(self, rng: random.Random) -> bool:
        assert self.leader is not None
        config = RaftConfig(1, tuple(self.peers.values()))
        decision = decide(
            config, self.leader, self.health(), num_replicas=self.num_replicas, scheme=self.scheme
        )
        match decision:
            case AddPeer(member_type, promote) if self.candidates():
                uuid = rng.choice(self.candidates())
                self.peers[uuid] = PeerConfig(uuid, "", member_type, promote)
                self.lost.discard(uuid)
                self.added.add(uuid)
            case EvictPeer(uuid):
                assert uuid not in self.added, "a replica that was added was evicted again"
                assert uuid != self.leader, "the leader was evicted"
                del self.peers[uuid]
                assert self.scheme is Scheme.EVICT or self.can_commit(), "the majority is gone"
            case StepDownLeader():
                self.elect(rng, but=self.leader)
            case _:
                return self.promote()
        return True

    def promote(self) -> bool:
        for uuid, peer in self.peers.items():
            if peer.promote and self.is_well(uuid):
                self.peers[uuid] = PeerConfig(uuid, "")
                return True
        return False


@st.composite
def worlds(draw: st.DrawFn) -> World:
    names = "ABCDEFGHI"[: draw(st.integers(1, 9))]
    up = {name: draw(st.booleans()) for name in names}
    peers = {}
    for name in names[: draw(st.integers(1, len(names)))]:
        kind = draw(st.sampled_from(["", "", "", "r", "n", "p"]))
        voter = kind in {"", "r"}
        peers[name] = PeerConfig(
            name, "", "VOTER" if voter else "NON_VOTER", kind == "p", kind == "r"
        )
    lost = {name for name in peers if up[name] and draw(st.integers(0, 4)) == 0}
    return World(peers, up, draw(st.sampled_from([1, 3, 5, 7])), lost)


@given(worlds(), st.randoms(use_true_random=False))
def test_every_tablet_with_a_majority_settles(world, rng):
    assume(world.can_commit())
    world.elect(rng)
    first = dict(world.peers)
    for _ in range(100):
        if not world.step(rng):
            break
    else:
        pytest.fail(f"no rest after 100 steps: {world}")
    assert world.can_commit()
    # Servers of marked members, or of non-voters that are never promoted, cannot take a new
    # replica.
    no_help = [u for u, p in first.items() if p.replace or (p.member_type, p.promote) == NEVER]
    if sum(up and u not in no_help for u, up in world.up.items()) >= world.num_replicas:
        assert is_settled(RaftConfig(1, tuple(world.peers.values())), world.num_replicas)
        assert sorted(world.healthy) == sorted(world.peers)


@given(worlds())
def test_without_a_healthy_majority_no_voter_is_touched(world):
    assume(not world.can_commit())
    config = RaftConfig(1, tuple(world.peers.values()))
    for leader in world.healthy:
        decision = decide(config, leader, world.health(), num_replicas=world.num_replicas)
        assert not isinstance(decision, AddPeer)
        if isinstance(decision, EvictPeer):
            rest = [uuid for uuid in world.voters if uuid != decision.uuid]
            assert len(world.healthy) > len(rest) // 2


def survivors(scheme: Scheme) -> bool:
    """Return the number of good replicas after a second failure during the first decision."""
    world = World({u: PeerConfig(u, "") for u in "ABC"}, dict.fromkeys("ABCD", True), 3, set())
    world.leader, world.scheme = "A", scheme
    world.up["C"] = False
    world.step(random.Random(1))
    world.up["B"], world.up["C"] = False, True
    return world.can_commit()


def test_the_old_scheme_loses_a_tablet_to_a_second_failure_and_the_new_one_does_not():
    """KUDU-1097: the first failed server returns, but its replica has already been evicted."""
    assert survivors(Scheme.PREPARE)
    assert not survivors(Scheme.EVICT)
