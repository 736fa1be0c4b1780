"""Random schedules for `RaftCore`, with lost, doubled and reordered messages and lossy disks.

Effects are carried out one by one, so a crash may come between any two of them. The model checks
Raft's guarantees during the run: election safety, state machine safety, leader completeness and log
matching. A confirmed read must include everything that was committed when it was requested.
"""

import random
from collections import deque
from typing import Any

import msgspec

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.messages import (
    ChangeType,
    Entry,
    EntryKind,
    OpId,
    PeerChange,
    StepDownMode,
)
from targets.kudu.consensus.raft_core import RaftCore, Role
from targets.kudu.consensus.state import CoreOptions
from targets.kudu.messages import PeerConfig, RaftConfig

MESSAGES_MAX = 60
PEERS = tuple(PeerConfig(f"u{n}", f"n{n}:1") for n in range(1, 6))


class PromiseBrokenError(AssertionError):
    """A promise of Raft was broken."""


class Disk:
    """A disk: data that survives a crash, and unsynced data that may survive."""

    def __init__(self, config: RaftConfig) -> None:
        self.meta = ev.SaveMeta(0, None, config)
        self.appends: list[ev.AppendLog] = []
        self.synced = 0  # how many of the items are durable
        self.base = OpId(0, 0)
        self.base_config = config
        self.state: list[tuple[int, bytes]] = []
        self.last_logged = OpId(0, 0)  # last entry of a removed log

    def recovered(self) -> list[Entry]:
        """Return the log after the base, recovered by the rules of `log.py`."""
        items: list[tuple[int, Entry]] = []
        for append in self.appends:
            preceding = append.preceding.term
            for entry in append.entries:
                items = [item for item in items if item[1].index < entry.index]
                if items and items[-1][1].index != entry.index - 1:
                    assert entry.index - 1 <= self.base.index
                    items = []
                items.append((preceding, entry))
                preceding = entry.term
        items = [item for item in items if item[1].index > self.base.index]
        if not items or (items[0][0], items[0][1].index - 1) != (self.base.term, self.base.index):
            return []
        return [entry for _, entry in items]


class Node:
    def __init__(
        self,
        uuid: str,
        config: RaftConfig,
        make: type[RaftCore],
        *,
        batch_bytes_max: int = 40,  # room for two entries
        pre_election: bool = True,
    ) -> None:
        self.batch_bytes_max = batch_bytes_max
        self.pre_election = pre_election
        self.uuid = uuid
        self.disk = Disk(config)
        self.make = make
        self.start()

    def start(self) -> None:
        disk = self.disk
        self.core = self.make(
            self.uuid,
            "g",
            term=disk.meta.term,
            voted_for=disk.meta.voted_for,
            config=disk.meta.committed_config,
            base=disk.base,
            entries=disk.recovered(),
            options=CoreOptions(
                leader_alive_ns=10,
                step_down_ns=400,
                batch_bytes_max=self.batch_bytes_max,
                pre_election=self.pre_election,
                tablet_copy=True,
            ),
            last_logged=disk.last_logged,
        )
        self.state = list(disk.state)  # the applied entries: (term, payload)
        self.effects: deque[ev.Effect] = deque()
        self.events: deque[ev.Event] = deque()

    def crash(self, keep: int) -> None:
        """Lose the memory and all unsynced appends except the first `keep`."""
        del self.disk.appends[self.disk.synced + keep :]
        self.disk.synced = len(self.disk.appends)
        self.start()


class Schedule:
    """One random run. `cores` is a mutated core for all nodes, or maps node numbers to cores."""

    def __init__(
        self, seed: int, *, nodes: int = 3, make: type[RaftCore] = RaftCore, forgetful: bool = False
    ) -> None:
        self.rng = random.Random(seed)
        config = RaftConfig(-1, PEERS[:nodes])
        self.nodes = {peer.uuid: self.node(peer.uuid, config, make) for peer in config.peers}
        self.uuids = sorted(self.nodes)
        self.forgetful = forgetful  # a mutation of the disk: it forgets votes in a crash
        self.messages: list[tuple[str, ev.Event]] = []
        self.now_ns = 0
        self.leaders: dict[int, str] = {}
        self.committed: list[tuple[int, bytes]] = []
        self.commit_terms: list[int] = []  # the term of the node that applied the entry first
        self.events = 0
        self.crashes = 0
        self.reads_done = 0
        self.elections = 0
        self.snapshots_installed = 0
        self.proposals = 0
        actions = {
            "deliver": 40,
            "carry": 40,
            "sync": self.rng.choice((5, 20)),
            "timeout": self.rng.choice((1, 3, 6)),
            "rpc_timeout": 2,
            "heartbeat": self.rng.choice((3, 8)),
            "propose": self.rng.choice((3, 8)),
            "read": self.rng.choice((0, 3)),
            "crash": self.rng.choice((0, 0.3, 1)),
            "power_cut": self.rng.choice((0, 0, 0.2)),
            "run_election": self.rng.choice((0, 0, 0.3, 1)),
            "compact": self.rng.choice((0, 0.5, 2)),
            "config": self.rng.choice((0, 0, 0.5)),
            "step_down": self.rng.choice((0, 0, 0.2)),
        }
        self.actions = list(actions)
        self.weights = list(actions.values())
        self.drop = self.rng.choice((0.0, 0.05, 0.2))
        self.double = self.rng.choice((0.0, 0.1))
        self.isolated: str | None = None

    def node(self, uuid: str, config: RaftConfig, make: type[RaftCore]) -> Node:
        return Node(uuid, config, make)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ns += self.rng.choice((0, 1, 1, 5))
            if self.rng.random() < 0.01:
                self.isolated = self.rng.choice((None, None, None, *self.uuids))
            (action,) = self.rng.choices(self.actions, self.weights)
            getattr(self, f"do_{action}")()
        self.check_logs_match()

    def settle(self) -> None:
        """Stop all faults: a leader must be elected, and all nodes must apply all entries."""
        self.drop = self.double = 0.0
        self.isolated = None
        for round_number in range(400):
            self.now_ns += 5
            leaders = [n for n in self.nodes.values() if n.core.role is Role.LEADER]
            if round_number % 30 == 29 and not leaders:
                uuid = self.uuids[round_number // 30 % len(self.uuids)]
                self.step(self.nodes[uuid], ev.ElectionTimeout())
            for node in leaders:
                if not self.messages:
                    self.time_out_calls(node, 1.0)
                self.step(node, ev.HeartbeatDue())
            for _ in range(12):
                self.do_deliver()
                for node in self.nodes.values():
                    while node.effects or node.events:
                        self.carry(node)
                    self.sync(node, len(node.disk.appends))
            if self.is_settled():
                return
        raise PromiseBrokenError("no convergence without faults")

    def is_settled(self) -> bool:
        cores = [node.core for node in self.nodes.values()]
        leaders = [core for core in cores if core.role is Role.LEADER]
        return bool(leaders) and all(
            node.core.commit_index == len(self.committed) == len(node.state)
            and node.core.log.last_index == len(self.committed)
            for node in self.nodes.values()
            if node.core.role is not Role.NON_PARTICIPANT
        )

    # --- actions ----------------------------------------------------------------------------

    def any_node(self) -> Node:
        return self.nodes[self.rng.choice(self.uuids)]

    def do_deliver(self) -> None:
        if not self.messages:
            return
        position = self.rng.randrange(len(self.messages))
        if self.rng.random() < self.double:
            uuid, event = self.messages[position]
        else:
            uuid, event = self.messages.pop(position)
        if self.rng.random() < self.drop or self.isolated == uuid:
            return
        self.deliver(uuid, event)

    def deliver(self, uuid: str, event: ev.Event) -> None:
        self.step(self.nodes[uuid], event)

    def do_carry(self) -> None:
        busy = [node for node in self.nodes.values() if node.effects or node.events]
        if busy:
            node = self.rng.choice(busy)
            for _ in range(self.rng.choice((1, 1, 5))):
                self.carry(node)

    def do_sync(self) -> None:
        node = self.any_node()
        unsynced = len(node.disk.appends) - node.disk.synced
        if unsynced:
            self.sync(node, node.disk.synced + self.rng.randint(1, unsynced))

    def do_timeout(self) -> None:
        self.now_ns += 10
        self.step(self.any_node(), ev.ElectionTimeout())

    def do_heartbeat(self) -> None:
        self.step(self.any_node(), ev.HeartbeatDue())

    def do_rpc_timeout(self) -> None:
        self.time_out_calls(self.any_node(), 0.5)

    def time_out_calls(self, node: Node, chance: float) -> None:
        for peer in list(node.core._leader.peers.values()):
            if peer.in_flight is not None and self.rng.random() < chance:
                self.step(node, ev.UpdateAnswered(peer.uuid, peer.in_flight, None))

    def do_propose(self) -> None:
        node = self.any_node()
        if node.core.role is Role.LEADER:
            self.proposals += 1
            self.step(node, ev.Propose(EntryKind.WRITE, b"w%d" % self.proposals, None))

    def do_config(self) -> None:
        node = self.any_node()
        others = [peer for peer in node.core.config.peers if peer.uuid != node.uuid]
        if node.core.role is not Role.LEADER or not others:
            return
        flipped = self.rng.choice(others)
        member_type = "NON_VOTER" if flipped.member_type == "VOTER" else "VOTER"
        peer = msgspec.structs.replace(flipped, member_type=member_type)
        change = PeerChange(ChangeType.MODIFY_PEER, peer)
        self.step(node, ev.ChangeConfig((change,), None, None))

    def do_read(self) -> None:
        self.step(self.any_node(), ev.ReadRequested(len(self.committed)))

    def do_step_down(self) -> None:
        mode = self.rng.choice(list(StepDownMode))
        self.step(self.any_node(), ev.StepDown(mode, self.rng.choice((None, *self.uuids))))

    def do_run_election(self) -> None:
        self.step(self.any_node(), ev.RunElection())

    def do_power_cut(self) -> None:
        """Cut the power of all nodes at once, or of a majority."""
        count = self.rng.randint(len(self.uuids) // 2 + 1, len(self.uuids))
        for uuid in self.rng.sample(self.uuids, count):
            self.crash(self.nodes[uuid])

    def do_crash(self) -> None:
        self.crash(self.any_node())

    def crash(self, node: Node) -> None:
        self.crashes += 1
        unsynced = len(node.disk.appends) - node.disk.synced
        if node.effects and isinstance(node.effects[0], ev.SaveMeta) and self.rng.random() < 0.5:
            # the crash comes right after the effect has reached the disk
            node.disk.meta = node.effects[0]
        if self.forgetful:
            node.disk.meta = msgspec.structs.replace(node.disk.meta, voted_for=None)
        node.crash(self.rng.randint(0, unsynced))

    def do_compact(self) -> None:
        node = self.any_node()
        if node.effects or node.events or not node.state:
            return
        index = len(node.state)
        if index <= node.disk.base.index:
            return
        node.disk.base = OpId(node.state[-1][0], index)
        node.disk.base_config = node.core.configs.committed
        node.disk.state = list(node.state)
        kept = self.rng.choice((0, 3))
        if index - kept > node.core.log.base.index:
            self.step(node, ev.Compact(index - kept))

    # --- carrying out the core's effects ----------------------------------------------------

    def local_ns(self, node: Node) -> int:
        return self.now_ns

    def step(self, node: Node, event: ev.Event) -> None:
        if node.effects or node.events:
            node.events.append(event)
            if len(node.events) > 200:
                raise PromiseBrokenError("events pile up")
            return
        self.core_step(node, event)

    def core_step(self, node: Node, event: ev.Event) -> None:
        core = node.core
        self.events += 1
        was = (core.role, core.term)
        node.effects.extend(core.step(event, self.local_ns(node)))
        if core.role is Role.LEADER and was != (core.role, core.term):
            self.check_new_leader(node)
        while node.effects and not isinstance(node.effects[0], ev.SaveMeta | ev.InstallSnapshot):
            if self.rng.random() < 0.1:
                return  # the remaining effects are carried out later, or lost in a crash
            self.carry_effect(node, node.effects.popleft())

    def carry(self, node: Node) -> None:
        if node.effects:
            self.carry_effect(node, node.effects.popleft())
        elif node.events:
            self.core_step(node, node.events.popleft())

    def sync(self, node: Node, count: int) -> None:
        disk = node.disk
        if count > disk.synced:
            disk.synced = count
            self.step(node, ev.Synced(disk.appends[count - 1].sequence))

    def carry_effect(self, node: Node, effect: ev.Effect) -> None:
        disk = node.disk
        match effect:
            case ev.SaveMeta():
                disk.meta = effect
            case ev.AppendLog():
                disk.appends.append(effect)
                if node.core.role is Role.LEADER:
                    self.check_only_leader(node)
            case ev.InstallSnapshot():
                self.install(node, effect)
            case ev.SendVote(peer_uuid=peer, request=request):
                self.send(node, peer, ev.VoteRequested(request, ("vote", node.uuid, effect)))
            case ev.SendUpdate(peer_uuid=peer, request=request):
                self.send(node, peer, ev.UpdateRequested(request, ("update", node.uuid, effect)))
            case ev.SendSnapshot():
                self.send_snapshot(node, effect)
            case ev.SendRunElection(peer_uuid=peer):
                self.send(node, peer, ev.RunElection())
            case ev.Reply(reply=reply, response=response):
                self.reply(node, reply, response)
            case ev.Committed(index=index):
                self.apply(node, index)
            case ev.ReadReady(token=asked_at, index=index):
                self.reads_done += 1
                if index < asked_at:
                    raise PromiseBrokenError(
                        f"a read saw entry {index}, but {asked_at} was committed before"
                    )
            case _:
                pass

    def send(self, node: Node, peer: str, event: ev.Event) -> None:
        if self.isolated != node.uuid:
            self.post(peer, event)

    def post(self, uuid: str, event: ev.Event) -> None:
        self.messages.append((uuid, event))
        if len(self.messages) > MESSAGES_MAX:
            del self.messages[self.rng.randrange(len(self.messages))]

    def send_snapshot(self, node: Node, effect: ev.SendSnapshot) -> None:
        disk = node.disk
        event = ev.SnapshotReceived(
            node.uuid,
            effect.term,
            disk.base,
            disk.base_config,
            b"",
            msgspec.msgpack.encode(disk.state),
            ("snapshot", node.uuid, (effect, disk.base)),
        )
        self.send(node, effect.peer_uuid, event)

    def reply(self, node: Node, reply: tuple[str, str, Any], response: Any) -> None:
        kind, uuid, effect = reply
        if kind == "vote":
            self.send(node, uuid, ev.VoteAnswered(effect.election_id, node.uuid, response))
        elif kind == "update":
            self.send(node, uuid, ev.UpdateAnswered(node.uuid, effect.request_id, response))
        else:
            sent, base = effect
            self.send(node, uuid, ev.SnapshotSent(node.uuid, sent.request_id, base, response))

    def install(self, node: Node, effect: ev.InstallSnapshot) -> None:
        self.snapshots_installed += 1
        node.state = msgspec.msgpack.decode(effect.data, type=list[tuple[int, bytes]])
        node.disk.state = list(node.state)
        node.disk.base = effect.last_included
        node.disk.base_config = effect.config
        if not effect.keep_log:
            node.disk.appends.clear()
            node.disk.synced = 0

    # --- Raft's promises --------------------------------------------------------------------

    def apply(self, node: Node, index: int) -> None:
        """State machine safety: every node applies the same entry at the same index."""
        core = node.core
        for entry in core.log.between(len(node.state) + 1, index):
            item = (entry.term, entry.payload)
            if entry.index <= len(self.committed):
                if self.committed[entry.index - 1] != item:
                    raise PromiseBrokenError(f"{node.uuid} applied another entry {entry.index}")
            else:
                assert entry.index == len(self.committed) + 1
                self.committed.append(item)
                self.commit_terms.append(core.term)
                self.on_commit(entry)
            node.state.append(item)

    def on_commit(self, entry: Entry) -> None:
        """Record an entry when the first node applies it."""

    def check_new_leader(self, node: Node) -> None:
        """Leader completeness: a new leader has all entries that earlier terms committed."""
        core = node.core
        self.elections += 1
        for index, (term, _) in enumerate(self.committed, start=1):
            if index < core.log.base.index or self.commit_terms[index - 1] >= core.term:
                continue
            if index > core.log.last_index or core.log.term_at(index) != term:
                raise PromiseBrokenError(
                    f"the leader of term {core.term} lacks committed entry {index}"
                )

    def check_only_leader(self, node: Node) -> None:
        """Check election safety when a leader first acts.

        A single voter wins in the step in which it votes, and may crash before that vote is on
        disk.
        """
        term = node.core.term
        if self.leaders.setdefault(term, node.uuid) != node.uuid:
            raise PromiseBrokenError(f"two leaders in term {term}")

    def check_logs_match(self) -> None:
        """Log matching: two logs with the same entry at an index are equal up to that index."""
        logs = [node.core.log for node in self.nodes.values()]
        for one in logs:
            for other in logs:
                first = max(one.base.index, other.base.index) + 1
                last = min(one.last_index, other.last_index)
                agree = False
                for index in range(last, first - 1, -1):
                    same = one.term_at(index) == other.term_at(index)
                    if agree and not same:
                        raise PromiseBrokenError(f"logs differ below {index + 1}")
                    agree = agree or same
                    if same and one.entry(index) != other.entry(index):
                        raise PromiseBrokenError(f"entry {index} differs between logs of one term")
