"""Random schedules that also change the membership of the group; they extend `schedule.py`.

Members are added with or without a vote, promoted, demoted and removed. Servers are lost for good,
and empty servers replace them. Replicas become tombstones, which still vote, and are filled again.
A new leader often gets a change at once, and is often cut off at once, because then the rules about
changes matter most.

A schedule never destroys a group: a majority of every known configuration remains. Every group must
therefore serve again once the faults stop.
"""

import random

import msgspec

from targets.kudu.consensus import events as ev
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.log_cache import MemoryLog
from targets.kudu.consensus.messages import (
    ChangeType,
    ConsensusErrorCode,
    Entry,
    EntryKind,
    OpId,
    PeerChange,
    StepDownMode,
)
from targets.kudu.consensus.quorum_util import voters_of
from targets.kudu.consensus.raft_core import RaftCore, Role
from targets.kudu.messages import PeerConfig, RaftConfig
from tests.consensus.schedule import Node, PromiseBrokenError, Schedule

# the initial group sizes; groups of even size have the narrowest majorities
NODES = (1, 2, 3, 3, 4, 4, 4, 5)
MEMBERS_MAX = 6
STEPS = 1500
SERVERS_MAX = 12
COUNTED = (
    "config changes committed",
    "promotions by a leader",
    "replicas made for a leader",
    "replicas tombstoned",
    "servers lost for good",
    "snapshots for non-voters",
    "successors asked to run",
)
COMMITTED, PROMOTED, COPIED, BURIED, LOST, FILLED, HANDED_OVER = COUNTED
CLOCK_PERCENTS = (50, 90, 100, 100, 110, 200)  # rates of the nodes' clocks


def durable_end(log: MemoryLog) -> OpId:
    """Return the last entry that survives any crash; a snapshot may cover unsynced entries."""
    index = max(log.durable_index, log.base.index)
    return OpId(log.term_at(index), index)


class CopyRequested(ev.Event, frozen=True):
    """A leader's `SendStartCopy` that has not arrived yet."""

    source: str
    effect: ev.SendStartCopy


class MemberSchedule(Schedule):
    """One random run with membership changes."""

    def __init__(self, seed: int, *, make: type[RaftCore] = RaftCore) -> None:
        drawn = random.Random(f"nodes {seed}")
        self.batch_bytes_max = drawn.choice((1, 40))  # room for one entry, or for two
        self.pre_election = drawn.random() < 0.5
        super().__init__(seed, nodes=drawn.choice(NODES), make=make)
        self.make = make
        self.counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
        self.buried: set[str] = set()
        self.lost: set[str] = set()
        self.server_count = len(self.nodes)
        rng = self.rng
        # a schedule either loses servers or turns members into tombstones
        self.loses = rng.random() < 0.5
        self.clocks_from = rng.randrange(len(CLOCK_PERCENTS))
        more = {
            "add": rng.choice((0.5, 1.5)),
            "remove": rng.choice((0.3, 1)),
            "demote": rng.choice((0.1, 0.5)),
            "swap": rng.choice((0.1, 0.5)),
            "bury": rng.choice((0, 0.1, 0.3)),
            "lose": rng.choice((0.1, 0.3)) if self.loses else 0,
        }
        self.actions += more
        self.weights += more.values()
        often: dict[str, tuple[float, ...]] = {"run_election": (0, 0.3, 1, 2)}
        if rng.random() < 0.5:
            often |= {"step_down": (0.5, 2), "compact": (0.5, 2, 5), "read": (3, 15)}
        for action, weights in often.items():
            self.weights[self.actions.index(action)] = rng.choice(weights)
        self.eager = rng.choice((0.0, 0.5, 0.9))  # how often a new leader gets a change at once
        self.cut_leaders = rng.choice((0.0, 0.3, 0.7))  # how often a new leader is cut off at once

    def node(self, uuid: str, config: RaftConfig, make: type[RaftCore]) -> Node:
        return Node(
            uuid, config, make, batch_bytes_max=self.batch_bytes_max, pre_election=self.pre_election
        )

    # --- the state of the group -------------------------------------------------------------

    def running(self) -> list[Node]:
        return [node for uuid, node in self.nodes.items() if uuid not in self.lost | self.buried]

    def known_configs(self) -> list[RaftConfig]:
        """Return all configurations that some node may still use."""
        known = [node.core.configs for uuid, node in self.nodes.items() if uuid not in self.lost]
        return [config for configs in known for config in (configs.active, configs.committed)]

    def can_serve(self, config: RaftConfig, without: str = "") -> bool:
        """Whether a majority is available with all its data, even without the server `without`."""
        voters = voters_of(config)
        whole = [n for n in self.running() if n.core._log_is_current(durable_end(n.core.log))]
        live = {node.uuid for node in whole} - {without}
        return sum(uuid in live for uuid in voters) > len(voters) // 2

    def can_go(self, node: Node) -> bool:
        """Whether every configuration can continue without this node's data. While a node has not
        yet processed a change, its configurations are unknown.
        """
        waiting = [event for each in self.nodes.values() for event in each.events]
        if any(isinstance(event, ev.ChangeConfig) for event in waiting):
            return False
        return all(self.can_serve(config, node.uuid) for config in self.known_configs())

    # --- actions ----------------------------------------------------------------------------

    def any_leader(self) -> Node | None:
        leaders = [node for node in self.running() if node.core.role is Role.LEADER]
        return self.rng.choice(leaders) if leaders else None

    def change(self, node: Node, *changes: tuple[ChangeType, PeerConfig]) -> None:
        self.step(node, ev.ChangeConfig(tuple(PeerChange(*one) for one in changes), None, None))

    def do_config(self) -> None:
        self.rng.choice((self.do_add, self.do_remove, self.do_demote))()

    def do_add(self, node: Node | None = None) -> None:
        node = node or self.any_leader()
        if node is None or len(node.core.config.peers) >= MEMBERS_MAX:
            return
        members = {peer.uuid for peer in node.core.config.peers}
        old = [uuid for uuid in self.uuids if uuid not in members]
        if old and (self.rng.random() < 0.4 or self.server_count >= SERVERS_MAX):
            uuid = self.rng.choice(old)
        elif self.server_count < SERVERS_MAX:
            self.server_count += 1
            uuid = f"u{self.server_count}"
        else:
            return
        member_type, promote = self.rng.choice(
            (("NON_VOTER", True), ("NON_VOTER", True), ("NON_VOTER", False), ("VOTER", False))
        )
        peer = PeerConfig(uuid, f"{uuid}:1", member_type, promote)
        if self.can_serve(RaftConfig(-1, (*node.core.config.peers, peer)), uuid):
            self.change(node, (ChangeType.ADD_PEER, peer))

    def do_remove(self, node: Node | None = None) -> None:
        node = node or self.any_leader()
        others = [] if node is None else [p for p in node.core.config.peers if p.uuid != node.uuid]
        if node is None or not others:
            return
        gone = self.rng.choice([peer for peer in others if peer.uuid in self.lost] or others)
        rest = tuple(peer for peer in node.core.config.peers if peer != gone)
        if self.can_serve(RaftConfig(-1, rest)):
            self.change(node, (ChangeType.REMOVE_PEER, gone))

    def do_demote(self) -> None:
        node = self.any_leader()
        others = [] if node is None else [p for p in node.core.config.peers if p.uuid != node.uuid]
        if node is None or not others:
            return
        peer = self.rng.choice(others)
        flipped = msgspec.structs.replace(
            peer, member_type="NON_VOTER" if peer.member_type == "VOTER" else "VOTER"
        )
        after = tuple(flipped if p == peer else p for p in node.core.config.peers)
        if self.can_serve(RaftConfig(-1, after)):
            self.change(node, (ChangeType.MODIFY_PEER, flipped))

    def do_swap(self) -> None:
        """Remove a member and add a new one without a vote, in one step."""
        node = self.any_leader()
        others = [] if node is None else [p for p in node.core.config.peers if p.uuid != node.uuid]
        if node is None or not others or self.server_count >= SERVERS_MAX:
            return
        gone = self.rng.choice(others)
        rest = tuple(peer for peer in node.core.config.peers if peer != gone)
        if self.can_serve(RaftConfig(-1, rest)):
            self.server_count += 1
            uuid = f"u{self.server_count}"
            new = PeerConfig(uuid, f"{uuid}:1", "NON_VOTER", promote=True)
            self.change(node, (ChangeType.REMOVE_PEER, gone), (ChangeType.ADD_PEER, new))

    def do_read(self) -> None:
        """Read from any node that considers itself the leader."""
        node = self.any_leader()
        if node is not None:
            self.step(node, ev.ReadRequested(len(self.committed)))

    def do_step_down(self) -> None:
        node = self.any_leader()
        if node is not None:
            mode = StepDownMode.ABRUPT if self.rng.random() < 0.2 else StepDownMode.GRACEFUL
            self.step(node, ev.StepDown(mode, self.rng.choice((None, None, *self.uuids))))

    def do_bury(self) -> None:
        """Turn a replica into a tombstone: it loses its data but keeps its votes."""
        named = {p.uuid for c in self.known_configs() for p in c.peers} if self.loses else set()
        fit = [node for node in self.running() if node.uuid not in named]
        if not fit:
            return
        node = self.rng.choice(fit)
        if not self.can_go(node):
            return
        core, disk = node.core, node.disk
        disk.meta = ev.SaveMeta(core.term, core.voted_for, core.configs.committed)
        ends = (disk.last_logged, core.log.last)
        disk.last_logged = max(ends, key=lambda opid: (opid.term, opid.index))
        disk.appends.clear()
        disk.synced = 0
        disk.base, disk.state = OpId(0, 0), []
        self.buried.add(node.uuid)
        self.counts[BURIED] += 1
        node.start()

    def do_lose(self) -> None:
        """Lose a server for good, if the group survives it.

        A member that is to be promoted may become a voter meanwhile: its last answer may be in
        flight.
        """
        node = self.rng.choice(self.running())
        coming = {p.uuid for c in self.known_configs() for p in c.peers if p.promote}
        if node.uuid in coming or not self.can_go(node):
            return
        self.lost.add(node.uuid)
        self.uuids.remove(node.uuid)
        self.counts[LOST] += 1
        node.start()  # after the restart, a former leader no longer leads

    def do_power_cut(self) -> None:
        for uuid in self.rng.sample(self.uuids, self.rng.randint(1, len(self.uuids))):
            self.crash(self.nodes[uuid])

    # --- carrying out the core's effects ----------------------------------------------------

    def deliver(self, uuid: str, event: ev.Event) -> None:
        if uuid in self.lost:
            return
        node = self.nodes.get(uuid)
        if isinstance(event, CopyRequested):
            self.copy(uuid, event)
        elif node is not None and (uuid not in self.buried or isinstance(event, ev.VoteRequested)):
            self.step(node, event)
        elif isinstance(event, ev.UpdateRequested):
            error = msg.ConsensusError(ConsensusErrorCode.TABLET_NOT_FOUND, "")
            _, source, effect = event.reply
            answer = msg.UpdateConsensusResponse(uuid, 0, error=error)
            self.post(source, ev.UpdateAnswered(uuid, effect.request_id, answer))
        elif isinstance(event, ev.SnapshotReceived):
            error = msg.ConsensusError(ConsensusErrorCode.TABLET_NOT_FOUND, "")
            _, source, (effect, base) = event.reply
            refusal = msg.InstallSnapshotResponse(uuid, 0, error=error)
            self.post(source, ev.SnapshotSent(uuid, effect.request_id, base, refusal))

    def copy(self, uuid: str, event: CopyRequested) -> None:
        """Create an empty replica for a leader, as a tablet server does."""
        effect, error = event.effect, None
        node = self.nodes.get(uuid)
        if node is None:
            self.nodes[uuid] = self.node(uuid, effect.config, self.make)
            self.uuids.append(uuid)
            self.counts[COPIED] += 1
        elif uuid in self.buried and node.disk.last_logged.term > effect.term:
            error = msg.ConsensusError(ConsensusErrorCode.INVALID_TERM, "")
        elif uuid in self.buried:
            if node.effects:
                return  # the replica is still writing a vote to disk
            self.buried.discard(uuid)
            self.counts[COPIED] += 1
            node.start()
        self.post(event.source, ev.CopyStarted(uuid, effect.request_id, error))

    def step(self, node: Node, event: ev.Event) -> None:
        is_vote = isinstance(event, ev.VoteRequested)
        if node.uuid not in self.lost and (node.uuid not in self.buried or is_vote):
            super().step(node, event)

    def local_ns(self, node: Node) -> int:
        number = int(node.uuid.removeprefix("u"))
        percent = CLOCK_PERCENTS[(number + self.clocks_from) % len(CLOCK_PERCENTS)]
        return self.now_ns * percent // 100 + 1000 * number

    def carry_effect(self, node: Node, effect: ev.Effect) -> None:
        if isinstance(effect, ev.SendStartCopy):
            self.send(node, effect.peer_uuid, CopyRequested(node.uuid, effect))
            return
        self.counts[HANDED_OVER] += isinstance(effect, ev.SendRunElection)
        is_filled = isinstance(effect, ev.InstallSnapshot) and node.core.role is not Role.FOLLOWER
        self.counts[FILLED] += is_filled
        super().carry_effect(node, effect)

    def core_step(self, node: Node, event: ev.Event) -> None:
        before = node.core.configs.active.opid_index
        super().core_step(node, event)
        active = node.core.configs.active.opid_index
        if isinstance(event, ev.UpdateAnswered) and active > before:
            self.counts[PROMOTED] += 1

    def check_new_leader(self, node: Node) -> None:
        super().check_new_leader(node)
        if self.rng.random() < self.eager:
            self.rng.choice((self.do_add, self.do_remove))(node)
        if self.rng.random() < self.cut_leaders:
            self.isolated = node.uuid

    def on_commit(self, entry: Entry) -> None:
        self.counts[COMMITTED] += entry.kind is EntryKind.CONFIG

    def totals(self) -> dict[str, int]:
        return {
            "events": self.events,
            "entries committed": len(self.committed),
            "elections won": self.elections,
            **self.counts,
            "crashes": self.crashes,
            "snapshots installed": self.snapshots_installed,
            "confirmed reads": self.reads_done,
        }

    # --- the end of a schedule --------------------------------------------------------------

    def settle(self) -> None:
        """Stop all faults: the group must converge, elect a leader again, and accept a write."""
        self.eager = self.cut_leaders = 0.0
        super().settle()
        self.step(self.settled_leader(), ev.StepDown())
        super().settle()
        self.step(self.settled_leader(), ev.Propose(EntryKind.WRITE, b"last", None))
        super().settle()
        if self.committed[-1][1] != b"last":
            raise PromiseBrokenError("a healed group took no write")

    def settled_leader(self) -> Node:
        leaders = [node for node in self.running() if node.core.role is Role.LEADER]
        return max(leaders, key=lambda node: node.core.term)

    def is_settled(self) -> bool:
        if all(node.core.role is not Role.LEADER for node in self.running()):
            return False
        config = self.settled_leader().core.config
        end = len(self.committed)
        return all(
            uuid in self.nodes
            and uuid not in self.buried
            and self.nodes[uuid].core.commit_index == end == len(self.nodes[uuid].state)
            and self.nodes[uuid].core.log.last_index == end
            for uuid in (peer.uuid for peer in config.peers)
            if uuid not in self.lost
        )
