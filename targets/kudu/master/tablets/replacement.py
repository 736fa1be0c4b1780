"""Pure functions that decide whether a tablet needs another replica, or which replica to evict.

The rules are those of Kudu's `consensus/quorum_util.cc`. The usual scheme is 3-4-3 (the numbers of
replicas): add a non-voter, wait until the leader replica has promoted it, then evict the replica
that it replaces. The number of good copies never falls, so the tablet survives a second failure in
between. Kudu's former scheme, 3-2-3 (`Scheme.EVICT`), evicts first. A second failure before the new
copy is complete then loses the tablet (KUDU-1097).

All input comes from the leader replica's own report, made while no configuration change was
pending. Every decision is carried out by a compare-and-set on the configuration's index, so an
outdated decision has no effect.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from targets.kudu.messages import PeerConfig, PeerHealth, RaftConfig


class Scheme(enum.Enum):
    """Whether to add or to evict a replica first (`raft_prepare_replacement_before_eviction`)."""

    PREPARE = "3-4-3"
    EVICT = "3-2-3"


@dataclass(frozen=True, slots=True)
class AddPeer:
    """A decision to add a replica; placement chooses a tablet server that does not have one."""

    member_type: str
    promote: bool


@dataclass(frozen=True, slots=True)
class EvictPeer:
    """A decision to remove the replica `uuid` from the configuration."""

    uuid: str


@dataclass(frozen=True, slots=True)
class StepDownLeader:
    """A decision that the leader must step down, so that another leader can evict it."""


Decision = AddPeer | EvictPeer | StepDownLeader
_FAILED = (PeerHealth.FAILED_UNRECOVERABLE, PeerHealth.FAILED)


def decide(
    config: RaftConfig,
    leader_uuid: str,
    health: Mapping[str, PeerHealth],
    *,
    num_replicas: int,
    spared: Collection[str] = (),
    scheme: Scheme = Scheme.PREPARE,
    evicts_successor: bool = False,
) -> Decision | None:
    """Return the next step towards `num_replicas` good voters; `None` if no step is needed.

    `health` is the leader's report on each peer, itself included. A peer that is not in the report
    is UNKNOWN. `spared` are servers in maintenance, whose silence is no reason to add a replica.
    `evicts_successor` is the defect KUDU-2443.
    """
    if scheme is Scheme.EVICT:
        return _decide_evicting(config, leader_uuid, health, num_replicas)
    peers = _Peers(config, leader_uuid, health)
    evicted = peers.to_evict(num_replicas)
    if evicted is None and evicts_successor:
        evicted = peers.successor_to_evict(num_replicas)
    if evicted is not None:
        return EvictPeer(evicted)
    if peers.lacks_one(num_replicas, spared):
        return AddPeer("NON_VOTER", promote=True)
    if peers.leader_may_go(num_replicas):
        return StepDownLeader()
    return None


def is_settled(config: RaftConfig, num_replicas: int) -> bool:
    """Whether `config` has `num_replicas` members, all of them voters and none marked `replace`."""
    return len(config.peers) == num_replicas and all(
        peer.member_type == "VOTER" and not peer.replace for peer in config.peers
    )


def is_at_rest(config: RaftConfig, health: Mapping[str, PeerHealth], num_replicas: int) -> bool:
    """Whether a tablet's configuration is settled and all members are healthy.

    `decide` then returns `None`.
    """
    return is_settled(config, num_replicas) and all(
        health.get(peer.uuid) is PeerHealth.HEALTHY for peer in config.peers
    )


def _decide_evicting(
    config: RaftConfig, leader_uuid: str, health: Mapping[str, PeerHealth], num_replicas: int
) -> Decision | None:
    """Return the next step under the scheme 3-2-3.

    Failed replicas are evicted first. Then missing replicas are added as voters. Finally, replicas
    marked `replace` and surplus replicas are evicted. In Kudu's 3-2-3, the leader replica evicts
    failed replicas by itself, in the same order.
    """
    others = [p.uuid for p in config.peers if p.uuid != leader_uuid]
    failed = [uuid for uuid in others if health.get(uuid) in _FAILED]
    replaced = [p.uuid for p in config.peers if p.replace]
    leader_goes = leader_uuid in replaced  # the leader must hand over before it is evicted
    voters = len(others) + 1
    if failed and voters > 1:
        return EvictPeer(failed[0])
    if voters - leader_goes < num_replicas:
        return AddPeer("VOTER", promote=False)
    going = [uuid for uuid in others if uuid in replaced]
    if going:  # these still vote, so evict them only while the others are healthy
        staying = [health.get(uuid) for uuid in others if uuid not in replaced]
        well = all(each is PeerHealth.HEALTHY for each in staying)
        return EvictPeer(going[0]) if well else None
    if leader_goes:
        return StepDownLeader()
    return EvictPeer(others[-1]) if voters > num_replicas else None


class _Peers:
    """The members of one configuration by type and health, and the 3-4-3 rules about them."""

    def __init__(
        self, config: RaftConfig, leader_uuid: str, health: Mapping[str, PeerHealth]
    ) -> None:
        self._leader_uuid = leader_uuid
        self._health = health
        self._voters = [p for p in config.peers if p.member_type == "VOTER"]
        self._non_voters = [p for p in config.peers if p.member_type != "VOTER"]
        self._healthy = [p for p in self._voters if self._of(p) is PeerHealth.HEALTHY]
        self._viable = [p for p in self._healthy if not p.replace]
        self._has_majority = len(self._healthy) >= _majority(len(self._voters))

    def _of(self, peer: PeerConfig) -> PeerHealth:
        return self._health.get(peer.uuid, PeerHealth.UNKNOWN)

    def lacks_one(self, num_replicas: int, spared: Collection[str]) -> bool:
        """Whether a voter must be added, and a healthy majority can add one.

        A voter is needed if too few will remain. Voters marked `replace` and failed voters outside
        `spared` count as leaving. Non-voters with `promote` count as voters unless they have
        failed.
        """
        going = sum(
            p.replace or (self._of(p) in _FAILED and p.uuid not in spared) for p in self._voters
        )
        coming = sum(p.promote and self._of(p) not in _FAILED for p in self._non_voters)
        return num_replicas > len(self._voters) - going + coming and self._has_majority

    def to_evict(self, num_replicas: int) -> str | None:
        """Return a member to evict, other than the leader; `None` if no member must go.

        If the leader reports itself as unhealthy, no member is evicted.
        """
        leader = [p for p in self._voters if p.uuid == self._leader_uuid]
        if not leader or self._of(leader[0]) is not PeerHealth.HEALTHY:
            return None
        return self._non_voter_to_evict(num_replicas) or self._voter_to_evict(num_replicas)

    def _non_voter_to_evict(self, num_replicas: int) -> str | None:
        if not self._non_voters or not self._has_majority:
            return None
        worst = min(self._non_voters, key=self._urgency)
        if self._of(worst) in _FAILED or len(self._viable) >= num_replicas:
            return worst.uuid
        return None

    def _voter_to_evict(self, num_replicas: int) -> str | None:
        others = [p for p in self._voters if p.uuid != self._leader_uuid]
        if not others:
            return None
        worst = min(others, key=self._urgency)
        health, viable = self._of(worst), len(self._viable)
        needless = (
            viable > num_replicas
            or health in _FAILED
            or ((worst.replace or health is PeerHealth.UNKNOWN) and viable >= num_replicas)
        )
        replaced = len(self._voters) > num_replicas or health is PeerHealth.FAILED_UNRECOVERABLE
        left = sum(p.uuid != worst.uuid for p in self._healthy)
        safe = left >= _majority(len(self._voters) - 1)
        return worst.uuid if needless and replaced and safe else None

    def successor_to_evict(self, num_replicas: int) -> str | None:
        """Return the voter that was added to replace the only replica, if any (defect KUDU-2443).

        With this defect, Kudu did not check whether the replica marked `replace` was the leader,
        which cannot be evicted. It evicted the other voter, the healthy new one.
        """
        marked = [p.uuid for p in self._voters if p.replace]
        if num_replicas != 1 or marked != [self._leader_uuid] or not self._viable:
            return None
        return min(self._viable, key=self._urgency).uuid

    def _urgency(self, peer: PeerConfig) -> tuple[int, str]:
        """Return a member's sort key for evictions; the lowest key goes first.

        The order is unrecoverable, failed, `replace`, unknown, others; then by uuid.
        """
        health = self._of(peer)
        order = (
            health is PeerHealth.FAILED_UNRECOVERABLE,
            health is PeerHealth.FAILED,
            peer.replace,
            health is PeerHealth.UNKNOWN,
            True,
        )
        return order.index(True), peer.uuid

    def leader_may_go(self, num_replicas: int) -> bool:
        """Whether the leader is marked `replace` and enough other healthy voters will remain."""
        leads = any(p.uuid == self._leader_uuid and p.replace for p in self._voters)
        return leads and len(self._viable) >= num_replicas


def _majority(voters: int) -> int:
    return voters // 2 + 1
