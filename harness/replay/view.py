"""The state of a stopped world, as data: the content of `harness replay --json`.

Times end in `_s` and are seconds of the run. Nothing here depends on addresses, paths or hash
seeds, so two replays of one case to one moment give equal bytes.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection
from typing import Any, Final, TypeVar

import msgspec

SCHEMA: Final = 1
T = TypeVar("T")


def within(most: int, items: Collection[T], name: str, left_out: dict[str, int]) -> list[T]:
    """Return the first `most` items of a list. `left_out` gets the number of the others."""
    if len(items) > most:
        left_out[name] = len(items) - most
    return [*itertools.islice(items, most)]


class MomentView(msgspec.Struct, frozen=True, kw_only=True):
    """The moment of a stop.

    `events` and `event` are the number and the description of one event: the current event if
    `within`, else the next event.
    """

    time_s: float
    time_ns: int
    events: int
    what: str
    node: str | None
    within: bool
    event: str
    stack: list[str]
    phase: str


class OperationView(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a client that has begun but not ended."""

    index: int
    process: str
    f: str
    value: Any
    since_s: float


class FaultView(msgspec.Struct, frozen=True, kw_only=True):
    """An active fault, and the nodes that it affects."""

    id: str
    kind: str
    nemesis: str
    targets: list[str]
    since_s: float
    note: str


class LinkView(msgspec.Struct, frozen=True, kw_only=True):
    """A link that has faults. No frame passes a `blocked` link."""

    link: str
    blocked: bool
    faults: list[str]
    quality: str


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message between two nodes, on its way to the code of the receiver.

    `state` is "in flight", "held" (swallowed by a fault; it may arrive after the heal) or "unread"
    (arrived, but not yet received by the node). Only a message in flight has `arrives_s`.
    """

    source: str
    destination: str
    state: str
    arrives_s: float | None
    bytes: int
    connection: int
    what: str
    content: str


class TimerView(msgspec.Struct, frozen=True, kw_only=True):
    """A timer of a node, and the task that it wakes."""

    node: str
    at_s: float
    calls: str
    task: str | None


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished task: the places in code at which it waits, the outermost first."""

    name: str
    waits_for: str
    stack: list[str]


class FileView(msgspec.Struct, frozen=True, kw_only=True):
    """A file: its size, how much of it is durable, and the writes since its last sync."""

    path: str
    bytes: int
    synced_bytes: int
    unsynced_writes: int


class ConnectionView(msgspec.Struct, frozen=True, kw_only=True):
    """An open end of a connection of a node."""

    connection: int
    peer: str
    opened_by: str
    unread: int
    held: int
    unsent_bytes: int


class ObjectView(msgspec.Struct, frozen=True, kw_only=True):
    """An object of the target's code, with its fields as text. `used_by` is a task or an object."""

    name: str
    used_by: str
    fields: dict[str, str]


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a node. `pages` maps the paths of its pages to their data
    (`Target.state_pages`).

    `left_out` maps the name of each list that reached its limit to the number of items that it
    lacks. For `objects` this number is a minimum: objects that are reachable only through the
    missing objects are not counted.
    """

    name: str
    state: str
    boot: int
    variant: str
    pages: dict[str, Any]
    wall_skew_ms: float
    drift_ppm: int
    callback_us: float
    disk: str
    ready: list[str]
    tasks: list[TaskView]
    files: list[FileView]
    changes_in_flight: int
    connections: list[ConnectionView]
    objects: list[ObjectView]
    log: list[str]
    left_out: dict[str, int]


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a stopped world. `others` are due events except for messages and timers.

    `left_out` maps the name of each list that reached its limit to the number of items that it
    lacks.
    """

    schema: int = SCHEMA
    target: str
    profile: str
    bugs: list[str]
    workload: str
    seed: int
    moment: MomentView
    leaders: list[str]
    operations: list[OperationView]
    last_ops: list[str]
    faults: list[FaultView]
    links: list[LinkView]
    messages: list[MessageView]
    timers: list[TimerView]
    others: list[str]
    left_out: dict[str, int]
    nodes: list[NodeView]
    trace_digest: str

    def node(self, name: str) -> NodeView | None:
        return next((node for node in self.nodes if node.name == name), None)

    def sha256(self) -> str:
        """Return a digest of the whole state, for comparing two replays."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()
