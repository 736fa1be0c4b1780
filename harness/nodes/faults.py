"""The kinds of faults: one struct per kind, with its requirements and effects.

A fault on nodes is injected into the nodes that a selector chose. A fault on links is injected into
the links between these nodes. The history contains the struct unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import msgspec

from harness.nodes.degradation import (
    DELAY_MS_MAX,
    Capability,
    DiskQuality,
    Effect,
    LinkQuality,
    StreamQuality,
    duration,
    multiple,
    number,
    required,
)
from harness.timeline import (
    CLOCK,
    CPU,
    CUT,
    DISK,
    KILL,
    OPERATION,
    PAUSE,
    POWER_CUT,
    RESET,
    RESTART,
    SHAPE,
)

ROLLING_RESTART: Final = "rolling-restart"
"""An operation that every system has: each node in turn is stopped gracefully and started."""
DRIFT_PPM_MAX: Final = 500_000
FACTOR_MAX: Final = 100
OFFSET_MS_MAX: Final = 86_400_000.0
_DOWN_AND_UP: Final = frozenset({Capability.START})


class _Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="fault"):
    """The base of all kinds of faults.

    `word` is the kind in the history (`harness.ops`), which reports and limits use. `requires` are
    the capabilities that an environment needs. `may_end` means that a node may exit during such a
    fault, or soon after, without being blamed. `damages` means that the fault destroys synced data,
    which is charged to the damage budget (`harness.faults.budget`).
    """

    may_end: ClassVar[bool] = False
    damages: ClassVar[bool] = False


class Kill(_Kind, frozen=True, tag="kill"):
    """A process dies at once (SIGKILL). Its writes survive, even unsynced ones.

    With `power_cut`, an arbitrary part of the unsynced data is lost. With `torn`, the last
    surviving write may be incomplete.
    """

    power_cut: bool = False
    torn: bool = False

    @property
    def word(self) -> str:
        """The name under which the history records this fault: `kill` or `power-cut`."""
        return POWER_CUT if self.power_cut else KILL

    @property
    def requires(self) -> frozenset[Capability]:
        needs = _DOWN_AND_UP | {Capability.KILL}
        needs |= {Capability.LOSE_UNSYNCED} if self.power_cut else set()
        return needs | ({Capability.TORN_WRITE} if self.torn else set())


class Restart(_Kind, frozen=True, tag="restart"):
    """An administrator's restart: the process is stopped gracefully and started again later."""

    word: ClassVar[str] = RESTART
    requires: ClassVar[frozenset[Capability]] = _DOWN_AND_UP | {Capability.STOP}


class Pause(_Kind, frozen=True, tag="pause"):
    """A process is stopped (SIGSTOP), as in a long garbage collection or on a stalled host."""

    word: ClassVar[str] = PAUSE
    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PAUSE})


class Clock(_Kind, frozen=True, kw_only=True, tag="clock"):
    """A node's wall clock jumps by `offset_ms`, and its clocks run too fast by `drift_ppm`.

    With `strobe_ms` the offset comes and goes at this interval: clocks that jump back and forth
    found more bugs than steadily wrong clocks (Jepsen's `nemesis/time.clj`). The node's
    `max_error_ns` does not change: a clock does not know that it is wrong.
    """

    offset_ms: float = 0.0
    drift_ppm: int = 0
    strobe_ms: float = 0.0
    word: ClassVar[str] = CLOCK
    may_end: ClassVar[bool] = True
    EFFECTS: ClassVar[Mapping[str, Effect]] = {
        "offset_ms": duration("offset", Capability.CLOCK_SKEW, OFFSET_MS_MAX, "-5s", signed=True),
        "drift_ppm": number(
            "drift", Capability.CLOCK_DRIFT, "ppm", DRIFT_PPM_MAX, "-500ppm", signed=True
        ),
        "strobe_ms": duration("strobe", None, DELAY_MS_MAX, "500ms"),
    }

    @property
    def requires(self) -> frozenset[Capability]:
        return required(self, self.EFFECTS)


class Cpu(_Kind, frozen=True, kw_only=True, tag="cpu"):
    """A node's processor is slower by `factor`."""

    factor: float
    word: ClassVar[str] = CPU
    EFFECTS: ClassVar[Mapping[str, Effect]] = {
        "factor": multiple("factor", Capability.SLOW_CPU, FACTOR_MAX, "10")
    }
    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SLOW_CPU})


class Disk(_Kind, frozen=True, kw_only=True, tag="disk"):
    """A node's disk degrades: requests fail, find no space, take long, or read rotten blocks.

    A node may exit because of a disk error. It should exit rather than continue with data that it
    could not make durable (Rebello et al., "Can applications recover from fsync failures?", ATC
    2020). Most nodes read their disk only when they start, so a node that runs when its disk begins
    to rot is killed and started again.
    """

    quality: DiskQuality
    word: ClassVar[str] = DISK

    @property
    def may_end(self) -> bool:  # type: ignore[override]
        """False for a disk that is only slow, because slowness does not excuse an exit."""
        return bool(self.quality.error or self.quality.full or self.quality.bitrot)

    @property
    def damages(self) -> bool:  # type: ignore[override]
        return bool(self.quality.bitrot)

    @property
    def requires(self) -> frozenset[Capability]:
        """The capabilities for the disk's quality. For rot, also those to kill and start a node."""
        needs = self.quality.requires
        return needs | _DOWN_AND_UP | {Capability.KILL} if self.damages else needs


class Cut(_Kind, frozen=True, tag="cut"):
    """The links drop all packets silently; with `one_way`, in one direction only."""

    one_way: bool = False
    word: ClassVar[str] = CUT

    @property
    def requires(self) -> frozenset[Capability]:
        return frozenset({Capability.PARTITION_ONE_WAY if self.one_way else Capability.PARTITION})


class Shape(_Kind, frozen=True, tag="shape"):
    """The links degrade: they delay, lose, duplicate or reorder packets, or have low bandwidth."""

    quality: LinkQuality
    word: ClassVar[str] = SHAPE

    @property
    def requires(self) -> frozenset[Capability]:
        return self.quality.requires


class Stream(_Kind, frozen=True, tag="stream"):
    """The byte streams on the links degrade: they arrive in pieces, or end with a reset."""

    quality: StreamQuality
    word: ClassVar[str] = SHAPE

    @property
    def requires(self) -> frozenset[Capability]:
        return self.quality.requires


class Reset(_Kind, frozen=True, tag="reset"):
    """The open connections on the links are reset (RST) once, when the fault begins."""

    word: ClassVar[str] = RESET
    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.RESET})


class Operate(_Kind, frozen=True, kw_only=True, tag="operation"):
    """An administrator's operation, such as a rolling restart, which is not a fault.

    The nodes that the operation restarts run as `variant` from then on (`NodeSpec.variants`).
    """

    name: str
    variant: str = ""
    word: ClassVar[str] = OPERATION
    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.STOP, Capability.START})


Condition = Clock | Cpu | Disk
NodeFault = Kill | Restart | Pause | Clock | Cpu | Disk
LinkFault = Cut | Shape | Stream | Reset
FaultKind = NodeFault | LinkFault | Operate


class Link(msgspec.Struct, frozen=True, order=True):
    """One direction of a link between two ends. Each end is a node or one of `Cluster.clients`."""

    source: str
    destination: str

    @staticmethod
    def between(left: Iterable[str], right: Iterable[str]) -> list[Link]:
        """Return both directions of every link between two groups of ends, sorted."""
        pairs = [(a, b) for a in left for b in right if a != b]
        return sorted({Link(a, b) for a, b in pairs} | {Link(b, a) for a, b in pairs})


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """The choice of a nemesis at one moment: a fault, and its nodes or links.

    Without targets the fault misses, and `note` gives the reason. For a fault on `links`, `targets`
    are the nodes on the first side of the links, and `note` describes the fault.
    """

    what: FaultKind
    targets: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    note: str = ""
