"""The deployed nodes, seen from outside: a test can query, break and heal them.

`Cluster` is the public interface. A test describes a fault as data (`harness.nodes.faults`) and
gives it a *lease*, its maximum duration. If no caller heals the fault earlier, the ledger
(`harness.faults.ledger`) heals it when the lease ends. If the harness dies, the warden, a separate
process of the environment, undoes the fault. A `Bite` is the measured effect of a fault.

`Controls` is the part that an environment implements. It puts nodes, links, clocks, processors and
disks into the states that the ledger requests, and reports the effects.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from harness.errors import UsageError
from harness.nodes.declaration import (
    BASE,
    InContainer,
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
    "InContainer",
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
"""The link end of the harness's own clients. If each client has a link end of its own
(`client_end`), this is the end from which the harness watches the nodes."""


def client_end(number: int) -> str:
    """Return the name of one client's link end.

    `client:2` makes the calls of process 2, and of the processes that later replace process 2 (2 +
    concurrency, ...).
    """
    return f"{CLIENT}:{number}"


def is_client(end: str) -> bool:
    """Whether a link end belongs to the harness's clients, and not to a node."""
    return end.partition(":")[0] == CLIENT


CHECKPOINT: Final = "checkpoint"
"""The kind of event with which nodes publish digests of their replicas
(`harness.run.divergence`)."""


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
"""Disk faults. They also work on a foreign program, which is not written against `Env`, if its disk
belongs to the harness (`NodeSpec.faulty_disk`)."""

STREAMS: Final = frozenset({Capability.SLICE, Capability.RESET_AFTER})
"""Faults of byte streams. They need a proxy on the link that reads the stream."""

ENV_NODES_ONLY: Final = CLOCKS | FAULTY_DISK | {Capability.BIT_ROT}
"""Faults that need a node written against `Env`, whose disk and clock belong to the harness. An
environment may declare that some of them work on foreign programs, too
(`harness.plugins.Environment`)."""


class Fidelity(enum.Enum):
    """The degree to which an environment's fault resembles the real fault."""

    EXACT = "exact"
    APPROXIMATE = "approximate"
    NONE = "none"


class NodeState(enum.Enum):
    """The state of a node, as the environment sees it."""

    RUNNING = "running"
    PAUSED = "paused"
    DOWN = "down"


class Usage(NamedTuple):
    """The resources that a node uses. A field is `None` if it is not measured."""

    memory_bytes: int | None = None
    """The memory that the node's processes hold now, without the kernel's file cache. `None` if the
    node is down."""
    disk_bytes: int | None = None
    """The visible size of all files of the node now."""
    written_bytes: int | None = None
    """The number of bytes that the node wrote to its disk. A new process may start again at 0."""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of how one node is deployed, independent of the node's protocol.

    A node is either written against `Env` (`entry`, as `package.module:function` of type
    `harness.env.NodeMain`, called with `config`) or a foreign program: a `command`, an `image`, or
    both. These placeholders are replaced in `command`, `environment`, `files`, `setup` and `ready`:

    | placeholder         | becomes                                                          |
    |---------------------|------------------------------------------------------------------|
    | `{host}`            | the address the program must bind                                |
    | `{port:7051}`       | the real TCP port to bind for the declared port                  |
    | `{peer:m2:7051}`    | `host:port` under which this node reaches node m2's port         |
    | `{address:m2:7051}` | `host:port` under which every node reaches node m2's port        |
    | `{host:m2}`         | the host in `{address:m2:...}`; the port is the declared port    |
    | `{data}`            | the node's data folder                                           |
    | `{files}`           | the folder with its `files`                                      |
    | `{name}`            | the node's name                                                  |
    | `{package:P}`       | the folder that holds the importable package or module `P`       |

    A program that publishes its address binds `{host}:{port:...}` and publishes `{address:...}`,
    which is the same for all nodes. Among local processes, `{peer:...}` may differ from node to
    node. The simulation runs nodes with an `entry`, and Python programs: nodes with a `command`
    whose first word is like `python:app:main` (`harness.nodes.program`).

    All other fields are optional; `docs/deployments.md` explains them with an example:

    * `after`: the node starts once these nodes are ready, both at deployment and when the run
      restarts all nodes. (Without `ready`, a node is ready when it runs.)
    * `files`: text files by relative path, written before each start.
    * `setup`: commands that run in order before the first start on an empty data folder.
    * `image`, or `dockerfile` (a folder with a Dockerfile): the image in Docker.
    * `user`, `memory_mib` (Docker: 1024), `cpus`: the node's user and limits.
    * `variants`: other ways to run the node.
    * `clock_probe`: a command that asks a foreign program for its time, in seconds since 1970.
    * `faulty_disk`: the `{data}` of this foreign program lies on the harness's own disk (FUSE), if
      the environment has one, so that power cuts and disk faults affect the program.
    * `container`: settings that only containers have, for nodes from a Compose file.
    * `debian_package`: the package to install if the program is missing, for the error message.
    * `instead`: the target's option that makes the program unnecessary.
    * `stop_signal`: stops a foreign program gracefully: SIGTERM, SIGINT or SIGQUIT.
    * `pages`: the port on which a node with an `entry` shows its pages to people
      (`Env.serve_pages`). No node connects to this port, and link faults do not affect it.
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
    container: InContainer | None = None

    @property
    def bound_ports(self) -> tuple[int, ...]:
        """All ports that the node listens on: the declared ports and the port of its pages."""
        return self.ports if self.pages is None else (*self.ports, self.pages)


DRIFT_PPM_MAX: Final = 9_000_000  # so a clock runs at 0.1 to 10 times its normal speed
DRIFT_PPM_MIN: Final = -900_000
_OFFSET_NS_MAX: Final = 10**18
"""The maximum offset of a wall clock, 31 years: the time stays after 1970 and fits into 64 bits."""


class Bite(msgspec.Struct, frozen=True):
    """The measured effect of a fault; `count` is `None` if the environment cannot measure it.

    `undone` means that another program ended or changed the fault early, so `count` may be too low.
    """

    count: int | None
    unit: str  # what `count` counts, such as "frames", "packets", "processes" or "ms"
    undone: bool = False


class ClusterEvent(msgspec.Struct, frozen=True):
    """An event that a node reported, or (with `by_driver`) that the harness itself reported.

    Only the driver reports these kinds (`harness.run.announcements`):

    * `node-started` {boot, variant}; `variant` only for nodes with variants.
    * `node-exited` {code, expected, log, by}; `by` is "nemesis", "itself", "host" or "unknown".
    * `infrastructure` {what, lasts, over, undid}: the engine or the host failed, on one node or, if
      `node` is empty, on all nodes (see `harness.ops`).
    * `starvation` {until_ns, took_s, waited_s: {name: s}}: there were too few processors; the event
      belongs to no node.
    * `power-cut` {bytes, files, names}: the data that a power cut removed or might have removed
      from the disk of a foreign program (`NodeSpec.faulty_disk`).
    * `config-forced` {group}: one of the harness's clients is about to overrule votes.

    The target defines all other kinds (`Env.event`). A node's log does not keep a `checkpoint`
    (`harness.run.divergence`). `time_ns` is the driver's monotonic clock when the event arrived.
    `late_ns` is the delay since the node reported the event, by the clock of the node's host.
    """

    time_ns: int
    node: str
    kind: str
    data: dict[str, Any]
    late_ns: int = 0
    by_driver: bool = False


Spring = Callable[[ClusterEvent], Coroutine[Any, Any, None]]
"""The callback that `Deployed.trap` runs at each event of a kind."""

LinkState = Mapping[str, LinkQuality | StreamQuality | None]
"""The requested state of one link. It maps each fault's id to the fault's effect on the link. The
effect `None` cuts the link. With an empty mapping the link works normally."""


def known_node(nodes: Mapping[str, T], name: str) -> T:
    """Return the value of the node `name` in `nodes`; raises `UsageError` for an unknown name."""
    if name not in nodes:
        raise UsageError(f"no node is named {name!r}; the nodes are {', '.join(nodes)}")
    return nodes[name]


def check_links(links: Iterable[Link], nodes: Mapping[str, object], clients: Sequence[str]) -> None:
    """Raise `UsageError` for a link with equal ends, or an end that is neither node nor client."""
    for link in links:
        if link.source == link.destination:
            raise UsageError(f"{link} has both ends at one node; a link joins two nodes")
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
    """Return the error for a fault that `environment` cannot perform.

    `alternatives` are the environments that can.
    """
    where = ", ".join(f"--env {name}" for name in alternatives) or "no installed environment"
    return UsageError(
        f"the environment {environment!r} cannot do {capability.value!r}; use {where}"
    )


def env_nodes_only(what: str, foreign: Sequence[str]) -> UsageError:
    """Return the error for a fault (`what`) that cannot work on the foreign programs `foreign`."""
    return UsageError(
        f"{what} cannot reach {', '.join(foreign)}: a foreign program. The harness controls the "
        "disk and clock only of nodes written against `Env`, and the disk of a foreign program "
        "that declares `faulty_disk`. Bit rot is never injected on the disk of a foreign program, "
        "because its page cache would write the flipped bits back for good"
    )


class Deployed(Protocol):
    """The nodes of one run, with the methods that `Cluster` and `Controls` share.

    Methods raise `UsageError` for anything that the environment cannot do, and
    `InfrastructureError` if an action failed (for example, a process did not stop). Since faults
    overlap, an action may be repeated without harm; it returns whether it changed anything.
    """

    @property
    def environment(self) -> str: ...

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        """The fidelity of each possible fault; a missing key means `Fidelity.NONE`."""
        ...

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """All declared nodes, in declaration order."""
        ...

    @property
    def clients(self) -> Sequence[str]:
        """The harness's own link ends: `CLIENT`, then one for each client with links of its own."""
        ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """Maps each redirected name of a node to the node that it leads to now."""
        ...

    def state(self, node: str) -> NodeState: ...

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        """Register a callback that receives every event on the harness's event loop."""
        ...

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        """Run `spring` at every event of this kind; returns a function that removes the trap.

        If the environment supports `AIM_AT_EVENTS` exactly, the node sends and writes nothing while
        `spring` runs: in simulation until `spring` first waits, elsewhere for at most one second.
        Otherwise `spring` runs as soon as the event has arrived.
        """
        ...

    async def start(self, node: str, variant: str | None = None) -> bool:
        """Start a node that is down, on its existing disk, without waiting for other nodes.

        `variant` is one of the node's variants, or `BASE` for none. With `None`, the node keeps the
        variant of its last start.
        """
        ...

    async def stop(self, node: str) -> bool:
        """Stop a node by a signal or a cancellation; kill it after a time limit."""
        ...

    async def wipe(self, node: str) -> bool:
        """Empty the disk of a node that is down."""
        ...

    async def wait_ready(self, node: str) -> str | None:
        """Wait until a running node is ready by its own declaration (`NodeSpec.ready`).

        Returns `None` if it is. Otherwise returns the reason: the node ended, or the time limit
        passed.
        """
        ...

    async def alias(self, name: str, node: str) -> None:
        """Redirect the name of one node to another node, like a DNS alias that is moved.

        Clients and nodes on `Env` notice at their next lookup (`Network.resolve`); open connections
        stay. This is not a fault, so nothing heals it. To undo it, redirect the name to the node
        itself.
        """
        ...

    async def usage(self, node: str) -> Usage:
        """Return the resources that a node uses now, and the bytes that it has written."""
        ...

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        """Return the last lines of the node's log."""
        ...


class Cluster(Deployed, Protocol):
    """The nodes of a run as tests use them: `Deployed`, and faults as data."""

    async def inject(
        self, fault: FaultKind, on: Sequence[str] | Sequence[Link], *, lease_s: float
    ) -> str:
        """Inject `fault` on these nodes or links for at most `lease_s`; returns the fault's id.

        Raises `UsageError` for a fault that would change nothing, such as a kill of a dead node.
        """
        ...

    async def heal(self, fault: str) -> Bite:
        """Undo the fault with this id and return its effect. Later calls return the same effect."""
        ...


class Controls(Deployed, Protocol):
    """The part of a deployed cluster that an environment implements: it sets what the ledger
    requests.

    The caller of a method must undo the method's effect. If the caller dies first, the warden
    resumes paused nodes and restores links shortly after `lease_s`.
    """

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` after `delay_s`, unless the run has ended. The callback must not wait.

        In simulation the call belongs to no node and takes no virtual time, so a callback that does
        nothing does not change the run.
        """
        ...

    async def kill(self, node: str, *, lose_unsynced: bool = False, torn: bool = False) -> bool:
        """Kill a node at once (SIGKILL); returns after the node is verified to be dead.

        With `lose_unsynced`, the node loses an arbitrary part of the data that it never synced, as
        after a power cut. This also works on a node that is down. With `torn`, the last surviving
        write may be incomplete.
        """
        ...

    async def pause(self, node: str, *, lease_s: float) -> bool:
        """Pause a node (SIGSTOP) and verify that it stopped. A paused node stays paused."""
        ...

    async def resume(self, node: str) -> bool:
        """Let a paused node continue."""
        ...

    async def set_links(
        self, wanted: Mapping[Link, LinkState], *, lease_s: float
    ) -> Mapping[str, Bite]:
        """Set these links to these states; all other links stay as they are.

        A cut drops all packets: connections are not refused, and open connections stall. `lease_s`
        is the lease of the faults that are new on these links.

        Returns the effects of the faults that this call removed from a link, by fault id. After an
        `InfrastructureError`, the next call sets the remaining links.
        """
        ...

    async def reset(self, links: Sequence[Link]) -> int:
        """Reset the open connections on these links; returns their number."""
        ...

    async def skew(self, node: str, *, offset_ns: int, drift_ppm: int = 0) -> int | None:
        """Shift a node's wall clock by `offset_ns`, and let its clocks run too fast by `drift_ppm`.

        The setting replaces the previous one and survives restarts; zeros restore a good clock. In
        a foreign program, drift affects only the wall clock.

        Returns the jump in ms, drift included, that the node observed on its wall clock. Returns
        `None` if the clock is the harness's own, which follows the setting exactly.
        """
        ...

    async def slow(self, node: str, *, factor: float) -> None:
        """Slow down the node's processor by `factor` (1.0 = normal)."""
        ...

    async def worsen_disk(self, node: str, quality: DiskQuality) -> int:
        """Set the faults of a node's disk, which survive restarts; `DiskQuality()` is a good disk.

        Returns the number of disk requests that the faults affected since the last call.
        """
        ...

    async def mend(self) -> None:
        """Restore all clocks, processors and disks, and resume paused nodes. Starts no node."""
        ...
