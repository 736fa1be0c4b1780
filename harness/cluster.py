"""The nemesis's door to the world: nodes, links, clocks and disks that can be broken and healed.

Every verb is idempotent and says whether it changed anything, since composed nemeses overlap.
Faults that do not end by themselves are *leases*. `harness.faults.ledger`, by which nemeses break
things, ends them on time; `lease_s` is for the healer that survives the controller's death, which
undoes the fault soon after. Whoever calls these verbs directly undoes what they did. Every fault is
measured to have bitten (`Bite`), never assumed to have.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from harness.errors import UsageError
from harness.nodes.declaration import (
    BASE,
    Ready,
    ReadyCommand,
    ReadyHttp,
    ReadyLog,
    ReadyPort,
    Variant,
)
from harness.nodes.degradation import Capability, DiskQuality, LinkQuality, StreamQuality

__all__ = [
    "BASE",
    "CHECKPOINT",
    "CLIENT",
    "CLOCKS",
    "DRIFT_PPM_MAX",
    "DRIFT_PPM_MIN",
    "ENV_NODES_ONLY",
    "FAULTY_DISK",
    "STREAMS",
    "Bite",
    "Capability",
    "Cluster",
    "ClusterEvent",
    "DiskQuality",
    "Fidelity",
    "Link",
    "LinkQuality",
    "NodeSpec",
    "NodeState",
    "Ready",
    "ReadyCommand",
    "ReadyHttp",
    "ReadyLog",
    "ReadyPort",
    "Spring",
    "StreamQuality",
    "Usage",
    "Variant",
    "check_clock",
    "check_links",
    "client_end",
    "env_nodes_only",
    "is_client",
    "known_ends",
    "known_node",
    "unsupported",
]

T = TypeVar("T")

CLIENT: Final = "client"
"""The name of the harness's own clients as an end of links. Where each has one of its own
(`client_end`), this is the door by which the harness itself looks at the nodes."""


def client_end(number: int) -> str:
    """The end of links of one client: `client:2` has the calls of process 2, and of those after it
    that take its place (2 + concurrency, ...).
    """
    return f"{CLIENT}:{number}"


def is_client(end: str) -> bool:
    """Whether an end of links is the harness's, one client's or all clients', and no node."""
    return end.partition(":")[0] == CLIENT


CHECKPOINT: Final = "checkpoint"
"""The kind of the events by which replicas are compared (`harness.run.divergence`)."""


CLOCKS: Final = frozenset({Capability.CLOCK_SKEW, Capability.CLOCK_DRIFT})

FAULTY_DISK: Final = frozenset(
    {
        Capability.LOSE_UNSYNCED,
        Capability.TORN_WRITE,
        Capability.DISK_ERROR,
        Capability.DISK_FULL,
        Capability.DISK_SLOW,
    }
)
"""What also reaches a foreign program on a disk of ours (`NodeSpec.faulty_disk`)."""

STREAMS: Final = frozenset({Capability.SLICE, Capability.RESET_AFTER})
"""What takes byte streams on the links, and a proxy that reads them."""

ENV_NODES_ONLY: Final = CLOCKS | FAULTY_DISK | {Capability.BIT_ROT}
"""What reaches nodes on `Env`, whose disk and clock are ours; foreign programs only where an
environment says so (`harness.plugins.Environment`)."""


class Fidelity(enum.Enum):
    """How faithfully an environment does it."""

    EXACT = "exact"
    APPROXIMATE = "approximate"
    NONE = "none"


class NodeState(enum.Enum):
    """What a node is doing, as the environment sees it."""

    RUNNING = "running"
    PAUSED = "paused"
    DOWN = "down"


class Usage(NamedTuple):
    """What a node uses; each is `None` where nobody tells, which is not the same as nought."""

    memory_bytes: int | None = None
    """What its processes hold now, but for files that the kernel caches. None if it is down."""
    disk_bytes: int | None = None
    """What its files hold now, by their visible sizes."""
    written_bytes: int | None = None
    """What it has written to its disk, not less than at any time before; a process that starts
    anew may begin with nought again."""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A declaration of one node: protocol and deployment are two axes, this is the second.

    A node is either written against `Env` (`entry`, as `package.module:function` of type
    `harness.env.NodeMain`, called with `config`) or a foreign program: a `command`, an `image`, or
    both. Placeholders are filled in in `command`, `environment`, `files`, `setup` and `ready`:

    | placeholder         | becomes                                                          |
    |---------------------|------------------------------------------------------------------|
    | `{host}`            | the address the program must bind                                |
    | `{port:7051}`       | the real TCP port to bind for the declared port                  |
    | `{peer:m2:7051}`    | `host:port` under which this node reaches node m2's port         |
    | `{address:m2:7051}` | `host:port` under which every node reaches node m2's port        |
    | `{host:m2}`         | the host of that address; the port is the declared one           |
    | `{data}`            | the node's data folder                                           |
    | `{files}`           | the folder with its `files`                                      |
    | `{name}`            | the node's name                                                  |
    | `{package:P}`       | the folder that holds the importable package or module `P`       |

    A program that tells others where it is binds `{host}:{port:...}` and says `{address:...}`: this
    is the same for all, where `{peer:...}` differs by node in processes. Only nodes with an `entry`
    run in simulation.

    All else is optional; `docs/deployments.md` has it with an example. `after`: the node starts
    once those are ready, at deployment and when everything is started again (`ready`; without one a
    node is ready when it runs). `files`: text files by relative path, written before each start.
    `setup`: commands that run in order before the first start on an empty data folder. `image`, or
    a `dockerfile` (a folder with one): what it runs in, in Docker. `user`, `memory_mib` (Docker:
    1024), `cpus`: whom it runs as and what it may use. `variants`: what else it may run as.
    `clock_probe`: a command that has a foreign program say what time it is, in seconds since 1970.
    `faulty_disk`: the `{data}` of this foreign program lies on a disk of the harness's own, where
    there is one (FUSE), so that power cuts and faults of disks reach it.
    `debian_package`: what to install where its program is missing, for the message that says so;
    `instead`: with which option of the target it is not needed.
    `stop_signal`: what asks a foreign program to end in order: SIGTERM, SIGINT or SIGQUIT.
    `pages`: the port on which a node with an `entry` shows its pages to people
    (`Env.serve_pages`). No node connects to it and no fault of links is laid on it.
    """

    name: str
    role: str
    ports: tuple[int, ...]
    entry: str | None = None
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    command: tuple[str, ...] = ()
    image: str | None = None
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    after: tuple[str, ...] = ()
    ready: Ready | None = None
    files: dict[str, str] = msgspec.field(default_factory=dict)
    setup: tuple[tuple[str, ...], ...] = ()
    dockerfile: str | None = None
    user: str | None = None
    memory_mib: int | None = None
    cpus: float | None = None
    variants: dict[str, Variant] = msgspec.field(default_factory=dict)
    clock_probe: tuple[str, ...] = ()
    faulty_disk: bool = False
    debian_package: str | None = None
    instead: str | None = None
    stop_signal: str = "SIGTERM"
    pages: int | None = None

    @property
    def bound_ports(self) -> tuple[int, ...]:
        """All ports that it listens on: the declared ones, and that of its pages."""
        return self.ports if self.pages is None else (*self.ports, self.pages)


class Link(msgspec.Struct, frozen=True, order=True):
    """One direction between two nodes; either may be one of `Cluster.clients`."""

    source: str
    destination: str

    @staticmethod
    def between(left: Iterable[str], right: Iterable[str]) -> list[Link]:
        """Both directions of every pair across two groups, sorted."""
        pairs = [(a, b) for a in left for b in right if a != b]
        return sorted({Link(a, b) for a, b in pairs} | {Link(b, a) for a, b in pairs})


DRIFT_PPM_MAX: Final = 9_000_000  # ten times as fast; the slowest is a tenth
DRIFT_PPM_MIN: Final = -900_000
_OFFSET_NS_MAX: Final = 10**18
"""Thirty-one years: wall clocks stay after the epoch, and in 64 bits."""


class Bite(msgspec.Struct, frozen=True):
    """How much a fault really did. `count` is `None` where the environment cannot measure it.

    `undone`: somebody else ended or changed it before its time, so `count` is what is known of it.
    """

    count: int | None
    unit: str  # "frames", "packets", "bytes", "processes", "requests", "ms"
    undone: bool = False


class ClusterEvent(msgspec.Struct, frozen=True):
    """Something that a node or, with `by_driver`, the harness itself reported.

    Kinds that only the driver reports (`harness.run.announcements`): `node-started` {boot, variant}
    (the latter of nodes with variants), `node-exited` {code, expected, log, by} (`by` is "nemesis",
    "itself", "host" or "unknown"), `infrastructure` {what, lasts, over, undid}: the engine or the
    host failed, on a node or (an empty `node`) on all (see `harness.ops`); `starvation`
    {until_ns, took_s, waited_s: {name: s}}, of no node; `power-cut` {bytes, files, names}, what one
    took or might have taken from the disk of a foreign program (`NodeSpec.faulty_disk`);
    `config-forced` {group}: one of the harness's clients is about to overrule votes.
    All other kinds are the target's own (`Env.event`); a `checkpoint` (`harness.run.divergence`) is
    not kept in a node's log. `time_ns` is the driver's monotonic clock at arrival, which came
    `late_ns` after the node said it, by the clock of its host.
    """

    time_ns: int
    node: str
    kind: str
    data: dict[str, Any]
    late_ns: int = 0
    by_driver: bool = False


Spring = Callable[[ClusterEvent], Coroutine[Any, Any, None]]
"""What happens when a trap springs."""


def known_node(nodes: Mapping[str, T], name: str) -> T:
    """What there is under this node's name; raises `UsageError` where nothing is."""
    if name not in nodes:
        raise UsageError(f"no node is named {name!r}; there are {', '.join(nodes)}")
    return nodes[name]


def known_ends(
    ends: Iterable[str], nodes: Mapping[str, object], clients: Sequence[str]
) -> list[str]:
    """These ends of links and the clients, sorted; raises `UsageError` for what is neither."""
    found = sorted({*ends, *clients})
    for end in found:
        if end not in clients:
            known_node(nodes, end)
    return found


def check_links(links: Sequence[Link], nodes: Mapping[str, object], clients: Sequence[str]) -> None:
    """Raise `UsageError` for links that do not join two of these nodes, or one and clients."""
    if not links:
        raise UsageError("a link fault needs at least one link")
    known_ends([end for link in links for end in (link.source, link.destination)], nodes, clients)
    for link in links:
        if link.source == link.destination:
            raise UsageError(f"{link} has both ends at one node; a link joins two")


def check_clock(*, offset_ns: int, drift_ppm: int) -> None:
    """Raise `UsageError` for what `Cluster.skew` makes of no clock."""
    if abs(offset_ns) > _OFFSET_NS_MAX:
        raise UsageError(
            f"offset_ns is {offset_ns}; it must be in {-_OFFSET_NS_MAX} .. {_OFFSET_NS_MAX}"
        )
    if not DRIFT_PPM_MIN <= drift_ppm <= DRIFT_PPM_MAX:
        raise UsageError(
            f"drift_ppm is {drift_ppm}; it must be in {DRIFT_PPM_MIN} .. {DRIFT_PPM_MAX}"
        )


def unsupported(
    environment: str, capability: Capability, alternatives: Sequence[str]
) -> UsageError:
    """The error for a fault that this environment cannot do; names those that can."""
    where = ", ".join(f"--env {name}" for name in alternatives) or "no installed environment"
    return UsageError(
        f"the environment {environment!r} cannot do {capability.value!r}; use {where}"
    )


def env_nodes_only(what: str, foreign: Sequence[str]) -> UsageError:
    """The error for a fault of `ENV_NODES_ONLY` where there are `foreign` programs."""
    return UsageError(
        f"{what} cannot reach {', '.join(foreign)}: a foreign program, where only nodes written "
        "against `Env` have a disk and a clock of ours, and foreign ones a disk if they declare "
        "`faulty_disk`, where no bits rot: the page cache would write them back for good"
    )


class Cluster(Protocol):
    """The deployed nodes. Methods raise `UsageError` for what the environment cannot do and
    `InfrastructureError` when a fault did not take (a process that would not stop, ...).
    """

    @property
    def environment(self) -> str:
        """The name of the environment."""
        ...

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        """What can be done here; a missing key is `Fidelity.NONE`."""
        ...

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """All declared nodes, in declaration order."""
        ...

    @property
    def clients(self) -> Sequence[str]:
        """The harness's own ends of links: `CLIENT`, and one a client where they are told apart."""
        ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """Names of nodes that lead to another node now, and to which."""
        ...

    def state(self, node: str) -> NodeState:
        """What the node is doing now."""
        ...

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        """Have every event delivered on the driver's loop."""
        ...

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        """Have `spring` run at every event of this kind; returns what takes the trap away.

        Where `AIM_AT_EVENTS` is exact, it runs before the node sends or writes anything else: in
        simulation up to where it first waits, elsewhere for a second at most. Else it runs as soon
        as the event has arrived.
        """
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Have `callback` called in so long, unless the run is over by then; it must not wait.

        In simulation it is called from outside of all nodes and takes no time, so what finds
        nothing to do changes nothing.
        """
        ...

    async def start(self, node: str, variant: str | None = None) -> bool:
        """Start a node that is down, on the disk it left behind; it waits for no other.

        As one of its variants, or `BASE`, which it then stays; by default as what it was last.
        """
        ...

    async def wait_ready(self, node: str) -> str | None:
        """Wait until a node that runs is ready as it declares (`NodeSpec.ready`).

        Returns why it is not, where it ended before or its time is over; else `None`.
        """
        ...

    async def stop(self, node: str) -> bool:
        """Stop a node gracefully (a signal, cancellation), then by force after a bound."""
        ...

    async def kill(self, node: str, *, lose_unsynced: bool = False, torn: bool = False) -> bool:
        """Kill a node at once (SIGKILL), verified dead on return.

        `lose_unsynced`: an arbitrary part of what was never synced is gone, as after a power cut;
        `torn`: the last surviving write may be cut in the middle.
        """
        ...

    async def pause(self, node: str, *, lease_s: float) -> bool:
        """Freeze a node (SIGSTOP), verified frozen on return; nothing is done to a frozen one."""
        ...

    async def resume(self, node: str) -> bool:
        """Thaw a paused node."""
        ...

    async def wipe(self, node: str) -> bool:
        """Empty the disk of a node that is down."""
        ...

    async def alias(self, name: str, node: str) -> None:
        """From now on the name of one node leads to another, as a DNS alias that is moved does.

        Clients and nodes on `Env` notice once they look it up again (`Network.resolve`): what is
        connected stays so. It is no fault, so nothing heals it; its own name takes it back.
        """
        ...

    async def cut(self, links: Sequence[Link], *, lease_s: float) -> str:
        """Swallow everything on these links (silence, not refusal); returns the fault's id.

        Existing connections stall: nothing arrives while the cut lasts.
        """
        ...

    async def shape(
        self, links: Sequence[Link], quality: LinkQuality | StreamQuality, *, lease_s: float
    ) -> str:
        """Worsen these links, or the streams on them; returns the fault's id."""
        ...

    async def reset(self, links: Sequence[Link]) -> int:
        """Reset the open connections on these links; returns how many."""
        ...

    async def heal(self, fault: str) -> Bite:
        """Undo one link fault and say what it did; a second call returns the same."""
        ...

    async def heal_among(self, nodes: Iterable[str]) -> None:
        """Make every link among these nodes (and the clients) whole; other cuts stay."""
        ...

    async def heal_all(self) -> None:
        """Undo every fault of links, clocks and disks and thaw every node. Starts nothing."""
        ...

    async def skew(self, node: str, *, offset_ns: int, drift_ppm: int = 0) -> int | None:
        """Move a node's wall clock, and let its clocks run fast or slow by `drift_ppm`.

        Over restarts too. What was set before no longer holds; zeros make a good clock. Of a
        foreign program only the wall clock runs fast or slow.

        Returns by how many ms the node felt its wall clock jump, what it had drifted included;
        `None` where it is as told, since the clock is ours.
        """
        ...

    async def slow(self, node: str, *, factor: float) -> None:
        """Make the node's CPU slower by `factor` (1.0 = normal)."""
        ...

    async def worsen_disk(self, node: str, quality: DiskQuality) -> int:
        """Set how bad a node's disk is, over restarts too; `DiskQuality()` is a good one.

        Returns how many requests were touched since this was called last.
        """
        ...

    async def usage(self, node: str) -> Usage:
        """What the node holds now, and what it has written."""
        ...

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        """The end of the node's log."""
        ...
