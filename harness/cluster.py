"""The deployed nodes, seen from outside: what a test can ask, break and heal.

`Cluster` is the public door. A fault comes in as data (`harness.nodes.faults`) and is a *lease*:
the one ledger of a run (`harness.faults.ledger`) ends it on time, and the environment's warden
undoes it when the harness is dead. Every fault is measured to have bitten (`Bite`), never assumed
to have.

`Controls` is the environment's side of that door. An environment brings nodes, links, clocks,
processors and disks into the states that the ledger wants, and reports what the faults did there.
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
from harness.nodes.faults import FaultKind, Link

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
    "Controls",
    "Deployed",
    "DiskQuality",
    "Fidelity",
    "Link",
    "LinkQuality",
    "LinkState",
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
    "known_node",
    "unsupported",
]

T = TypeVar("T")

CLIENT: Final = "client"
"""The harness's own clients as an end of links. Where each client has an end of its own
(`client_end`), this is the end from which the harness itself looks at the nodes."""


def client_end(number: int) -> str:
    """The end of links of one client: `client:2` makes the calls of process 2, and of the later
    processes that take its place (2 + concurrency, ...).
    """
    return f"{CLIENT}:{number}"


def is_client(end: str) -> bool:
    """Whether an end of links belongs to the harness (one client or all), and not to a node."""
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
"""Faults that also reach a foreign program on a disk of ours (`NodeSpec.faulty_disk`)."""

STREAMS: Final = frozenset({Capability.SLICE, Capability.RESET_AFTER})
"""Faults that need byte streams on the links, and a proxy that reads them."""

ENV_NODES_ONLY: Final = CLOCKS | FAULTY_DISK | {Capability.BIT_ROT}
"""Faults of nodes on `Env`, whose disk and clock are ours; they reach foreign programs only where
an environment declares it (`harness.plugins.Environment`)."""


class Fidelity(enum.Enum):
    """The faithfulness of a fault in an environment."""

    EXACT = "exact"
    APPROXIMATE = "approximate"
    NONE = "none"


class NodeState(enum.Enum):
    """The state of a node, as the environment sees it."""

    RUNNING = "running"
    PAUSED = "paused"
    DOWN = "down"


class Usage(NamedTuple):
    """The resources of a node; each is `None` where it is not measured, which is not zero."""

    memory_bytes: int | None = None
    """Held by its processes now, without files that the kernel caches; `None` if it is down."""
    disk_bytes: int | None = None
    """The visible sizes of its files now."""
    written_bytes: int | None = None
    """Written to its disk; it never falls, except that a new process may begin at zero."""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A declaration of one node: protocol and deployment are two axes, this is the second.

    A node is either written against `Env` (`entry`, as `package.module:function` of type
    `harness.env.NodeMain`, called with `config`) or a foreign program: a `command`, an `image`, or
    both. Placeholders are filled in, in `command`, `environment`, `files`, `setup` and `ready`:

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

    A program that publishes its address binds `{host}:{port:...}` and publishes `{address:...}`,
    which is the same for all, where `{peer:...}` differs by node in processes. Only nodes with an
    `entry` run in simulation.

    All else is optional; `docs/deployments.md` has it with an example. `after`: the node starts
    once these nodes are ready, at deployment and when everything is started again (`ready`; without
    it a node is ready when it runs). `files`: text files by relative path, written before each
    start. `setup`: commands that run in order before the first start on an empty data folder.
    `image`, or a `dockerfile` (a folder with one): the node's image, in Docker. `user`,
    `memory_mib` (Docker: 1024), `cpus`: its user and its limits. `variants`: other ways to run it.
    `clock_probe`: a command that asks a foreign program for its time, in seconds since 1970.
    `faulty_disk`: the `{data}` of this foreign program lies on a disk of the harness's own, where
    there is one (FUSE), so that power cuts and faults of disks reach it.
    `debian_package`: the package to install where its program is missing, for the message;
    `instead`: the option of the target without which it is needed.
    `stop_signal`: asks a foreign program to end in order: SIGTERM, SIGINT or SIGQUIT.
    `pages`: the port on which a node with an `entry` shows its pages to people
    (`Env.serve_pages`). No node connects to it, and link faults do not reach it.
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


DRIFT_PPM_MAX: Final = 9_000_000  # ten times as fast; the slowest is a tenth
DRIFT_PPM_MIN: Final = -900_000
_OFFSET_NS_MAX: Final = 10**18
"""Thirty-one years: wall clocks stay after the epoch, and within 64 bits."""


class Bite(msgspec.Struct, frozen=True):
    """The measured effect of a fault; `count` is `None` where the environment cannot measure it.

    `undone`: another program ended or changed the fault early, so `count` may be too low.
    """

    count: int | None
    unit: str  # "frames", "packets", "bytes", "processes", "requests", "ms"
    undone: bool = False


class ClusterEvent(msgspec.Struct, frozen=True):
    """An event that a node or, with `by_driver`, the harness itself reported.

    Kinds that only the driver reports (`harness.run.announcements`): `node-started` {boot, variant}
    (the latter of nodes with variants), `node-exited` {code, expected, log, by} (`by` is "nemesis",
    "itself", "host" or "unknown"), `infrastructure` {what, lasts, over, undid}: the engine or the
    host failed, on a node or (an empty `node`) on all (see `harness.ops`); `starvation`
    {until_ns, took_s, waited_s: {name: s}}, of no node; `power-cut` {bytes, files, names}: the data
    that one took or might have taken from the disk of a foreign program (`NodeSpec.faulty_disk`);
    `config-forced` {group}: one of the harness's clients is about to overrule votes.
    All other kinds are the target's own (`Env.event`); a `checkpoint` (`harness.run.divergence`) is
    not kept in a node's log. `time_ns` is the driver's monotonic clock at arrival, `late_ns` after
    the node reported the event by the clock of its host.
    """

    time_ns: int
    node: str
    kind: str
    data: dict[str, Any]
    late_ns: int = 0
    by_driver: bool = False


Spring = Callable[[ClusterEvent], Coroutine[Any, Any, None]]
"""The reaction to an event that a trap waits for."""

LinkState = Mapping[str, LinkQuality | StreamQuality | None]
"""The wanted state of one link: the effect of each active fault there, by the fault's id; `None`
cuts the link. An empty one is a whole link."""


def known_node(nodes: Mapping[str, T], name: str) -> T:
    """The entry of this node; raises `UsageError` for an unknown name."""
    if name not in nodes:
        raise UsageError(f"no node is named {name!r}; the nodes are {', '.join(nodes)}")
    return nodes[name]


def check_links(links: Iterable[Link], nodes: Mapping[str, object], clients: Sequence[str]) -> None:
    """Raise `UsageError` for links that do not join two of these nodes, or one and a client."""
    for link in links:
        if link.source == link.destination:
            raise UsageError(f"{link} has both ends at one node; a link joins two")
        for end in (link.source, link.destination):
            if end not in clients:
                known_node(nodes, end)


def check_clock(*, offset_ns: int, drift_ppm: int) -> None:
    """Raise `UsageError` for an offset or drift that `Controls.skew` cannot set."""
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
    """The error for a fault that this environment cannot do; it names environments that can."""
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


class Deployed(Protocol):
    """The nodes of one run as both sides see them.

    Methods raise `UsageError` for anything the environment cannot do and `InfrastructureError` when
    it did not happen (a process that would not stop, ...). Verbs are idempotent and return whether
    they changed anything, since faults overlap.
    """

    @property
    def environment(self) -> str:
        """The name of the environment."""
        ...

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        """The faults that are possible here; a missing key is `Fidelity.NONE`."""
        ...

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """All declared nodes, in declaration order."""
        ...

    @property
    def clients(self) -> Sequence[str]:
        """The harness's own ends of links: `CLIENT`, then one per client with links of its own."""
        ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """By name of a node, the node that the name leads to now, where that is another one."""
        ...

    def state(self, node: str) -> NodeState:
        """The state of a node."""
        ...

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        """Have every event delivered on the driver's loop."""
        ...

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        """Have `spring` run at every event of this kind; returns a call that removes the trap.

        Where `AIM_AT_EVENTS` is exact, it runs before the node sends or writes anything else: in
        simulation up to its first wait, elsewhere for a second at most. Otherwise it runs as soon
        as the event has arrived.
        """
        ...

    async def start(self, node: str, variant: str | None = None) -> bool:
        """Start a node that is down, on the disk it left behind; waits for no other node.

        The node runs as this variant, or `BASE`, from then on; by default as the last one.
        """
        ...

    async def stop(self, node: str) -> bool:
        """Stop a node gracefully (a signal, cancellation), then by force after a bound."""
        ...

    async def wipe(self, node: str) -> bool:
        """Empty the disk of a node that is down."""
        ...

    async def wait_ready(self, node: str) -> str | None:
        """Wait until a running node is ready as it declares (`NodeSpec.ready`).

        Returns the reason if it ended before, or its time is over; else `None`.
        """
        ...

    async def alias(self, name: str, node: str) -> None:
        """From now on the name of one node leads to another, like a DNS alias that is moved.

        Clients and nodes on `Env` notice at their next lookup (`Network.resolve`); open connections
        stay. This is no fault, so nothing heals it; the node's own name takes it back.
        """
        ...

    async def usage(self, node: str) -> Usage:
        """The resources that a node holds now, and the bytes it has written."""
        ...

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        """The end of the node's log."""
        ...


class Cluster(Deployed, Protocol):
    """The public door: everything of `Deployed`, and faults as data."""

    async def inject(
        self, fault: FaultKind, on: Sequence[str] | Sequence[Link], *, lease_s: float
    ) -> str:
        """Break these nodes or links for `lease_s` at most; returns the fault's id.

        Raises `UsageError` also for a fault that hits nothing, such as a kill of a dead node.
        """
        ...

    async def heal(self, fault: str) -> Bite:
        """Undo one fault and return what it did; a second call returns the same."""
        ...


class Controls(Deployed, Protocol):
    """The environment's side: it sets states, and the ledger decides which.

    The caller of a method undoes it. If the caller is dead by then, the warden thaws nodes and
    makes links whole, a little after `lease_s`.
    """

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` after `delay_s`, unless the run has ended; it must not wait.

        In simulation it is called from outside of all nodes and takes no time, so a callback that
        does nothing changes nothing.
        """
        ...

    async def kill(self, node: str, *, lose_unsynced: bool = False, torn: bool = False) -> bool:
        """Kill a node at once (SIGKILL), verified dead on return.

        `lose_unsynced`: an arbitrary part of the data that was never synced is lost, as after a
        power cut, also of a node that is down; `torn`: the last surviving write may be cut in the
        middle.
        """
        ...

    async def pause(self, node: str, *, lease_s: float) -> bool:
        """Freeze a node (SIGSTOP), verified frozen on return; does nothing to a frozen one."""
        ...

    async def resume(self, node: str) -> bool:
        """Thaw a paused node."""
        ...

    async def set_links(
        self, wanted: Mapping[Link, LinkState], *, lease_s: float
    ) -> Mapping[str, Bite]:
        """Bring these links into these states; all others stay as they are.

        A cut swallows everything: silence, not refusal, and open connections stall. Returns what
        each fault that has left some of the links did there. `lease_s` is of the faults that are
        new on them. After an `InfrastructureError` the next call sets the rest.
        """
        ...

    async def reset(self, links: Sequence[Link]) -> int:
        """Reset the open connections on these links; returns their number."""
        ...

    async def skew(self, node: str, *, offset_ns: int, drift_ppm: int = 0) -> int | None:
        """Move a node's wall clock, and let its clocks run fast or slow by `drift_ppm`.

        Holds over restarts and replaces the setting before; zeros make a good clock. Of a foreign
        program only the wall clock runs fast or slow.

        Returns by how many ms the node felt its wall clock jump, drift included; `None` where the
        clock is ours and does exactly as set.
        """
        ...

    async def slow(self, node: str, *, factor: float) -> None:
        """Make the node's processor slower by `factor` (1.0 = normal)."""
        ...

    async def worsen_disk(self, node: str, quality: DiskQuality) -> int:
        """Set how bad a node's disk is, over restarts too; `DiskQuality()` is a good one.

        Returns the number of requests that it touched since the last call.
        """
        ...

    async def mend(self) -> None:
        """Make all clocks, processors and disks good and thaw every node. Starts nothing."""
        ...
