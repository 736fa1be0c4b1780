"""Stores each node's output in a file, keeps its last lines, and publishes the node's events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

from harness.cluster import CHECKPOINT, CLIENT, ClusterEvent, Spring
from harness.environments.host.lines import (
    CONTROL_LEVEL,
    EVENT_LEVEL,
    LINE_BYTES_MAX,
    NodeLine,
    parse_line,
)
from harness.errors import TargetError
from harness.run.announcements import check_announced

LOG_BYTES_MAX: Final = 64 * 1024 * 1024
TAIL_LINES_MAX: Final = 400
EARLY_EVENTS_MAX: Final = 10_000

_log = logging.getLogger(__name__)


class EventBus:
    """Delivers `ClusterEvent`s to subscribers, in order of arrival, on the driver's event loop.

    Nodes start before there is a subscriber, so the bus keeps the first `EARLY_EVENTS_MAX` events
    for the first one. Errors of a subscriber go to `on_failure`, since the history lacks an event
    that a subscriber did not handle.

    A trap runs a *spring* (a callback that injects a fault) at every event of a kind. At such an
    event, a node on `Env` stops until the driver lets it continue (`host.control`), so the node
    sends and writes nothing between the event and the fault. It waits for at most a second, because
    the driver may be busy, or a spring may itself wait for the node, for instance to stop it
    gracefully. A disk request that is already running in a thread continues.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._callbacks: list[Callable[[ClusterEvent], None]] = []
        self._early: list[ClusterEvent] = []
        self._trapped: Counter[str] = Counter()
        self._stop_at: list[Callable[[tuple[str, ...]], None]] = []
        self._sprung: set[asyncio.Task[None]] = set()
        # node: the springs of its last event
        self._sprung_last: dict[str, list[asyncio.Task[None]]] = {}

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        """Deliver every event to `callback`, first the early events that the bus has kept."""
        self._callbacks.append(callback)
        early, self._early = self._early, []
        for event in early:
            self._deliver(callback, event)

    def stop_with_traps(self, stop_at: Callable[[tuple[str, ...]], None]) -> None:
        """Call `stop_at` with the kinds of events that have traps, whenever these change."""
        self._stop_at.append(stop_at)

    def _count_trap(self, kind: str, number: int) -> None:
        self._trapped[kind] += number
        kinds = tuple(sorted(+self._trapped))
        for stop_at in self._stop_at:
            stop_at(kinds)

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        """Run `spring` in a new task at each event of this kind. Returns a function to stop this.

        Nodes learn of a new trap a bit later. See `harness.cluster.Cluster.trap`.
        """

        def take(event: ClusterEvent) -> None:
            if event.kind == kind:
                task = asyncio.get_running_loop().create_task(spring(event), name=f"trap-{kind}")
                self._sprung.add(task)
                self._sprung_last.setdefault(event.node, []).append(task)
                task.add_done_callback(self._spring_done)

        def remove() -> None:
            self._callbacks.remove(take)
            self._count_trap(kind, -1)

        self.subscribe(take)
        self._count_trap(kind, 1)
        return remove

    async def springs_have_run(self, node: str) -> None:
        if sprung := self._sprung_last.get(node):
            await asyncio.wait(sprung)

    def _spring_done(self, task: asyncio.Task[None]) -> None:
        self._sprung.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)

    def _deliver(self, callback: Callable[[ClusterEvent], None], event: ClusterEvent) -> None:
        try:
            callback(event)
        except Exception as error:  # noqa: BLE001 - told to the run, which it ends
            self._on_failure(error)

    def publish(self, node: str, kind: str, data: dict[str, Any]) -> None:
        """Deliver an event that the driver reports about a node; "" means the whole run."""
        self._publish(ClusterEvent(time.monotonic_ns(), node, kind, data, by_driver=True))

    def hear(self, node: str, kind: str, data: dict[str, Any], late_ns: int = 0) -> None:
        """Deliver an event of a node or client. An event that it must not report ends the run."""
        try:
            check_announced(node, kind, data)
        except TargetError as error:
            self._on_failure(error)
            return
        by_driver = node == CLIENT
        self._publish(ClusterEvent(time.monotonic_ns(), node, kind, data, late_ns, by_driver))

    def _publish(self, event: ClusterEvent) -> None:
        self._sprung_last.pop(event.node, None)
        if not self._callbacks:
            if len(self._early) < EARLY_EVENTS_MAX:
                self._early.append(event)
            elif len(self._early) == EARLY_EVENTS_MAX:
                _log.warning("more than %d events before the first subscriber", EARLY_EVENTS_MAX)
                self._early.append(event)
        for callback in tuple(self._callbacks):
            self._deliver(callback, event)


class NodeLog:
    """The log of one node, from all output of all its runs.

    The file `path`, if given, gets all output except checkpoints and answers to the driver. After
    `LOG_BYTES_MAX` the file ends, with a note that it was cut. The last `TAIL_LINES_MAX` lines stay
    in memory for `Cluster.logs` and exit reports.

    The output of a `foreign` program is always text. Each of its lines begins with the time of its
    arrival (`@seconds `), since the harness does not know the program's own time format.
    """

    def __init__(
        self, node: str, bus: EventBus, path: Path | None, *, foreign: bool = False
    ) -> None:
        self._node = node
        self._bus = bus
        self._tail: deque[str] = deque(maxlen=TAIL_LINES_MAX)
        self._left_bytes = LOG_BYTES_MAX
        self._foreign = foreign
        self._partial = b""
        self._file: IO[bytes] | None = None
        self.on_line: Callable[[str], None] | None = None  # gets each line
        self.on_answer: Callable[[NodeLine], None] | None = None  # gets answers to commands
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("ab")
            except OSError as error:
                _log.warning("the log of %s cannot be written: %s", node, error)

    def feed(self, data: bytes) -> None:
        """Process a piece of the node's output. The piece may begin and end within a line."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LINE_BYTES_MAX:
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self._line(line)

    def end_incarnation(self) -> None:
        """Note that the node has exited: output after the last newline is its last line."""
        if self._partial:
            self._line(self._partial)
            self._partial = b""

    def _line(self, raw: bytes) -> None:
        line = None if self._foreign else parse_line(raw)
        if line is not None and line.level == CONTROL_LEVEL and self.on_answer is not None:
            self.on_answer(line)
            return
        event = line if line is not None and line.level == EVENT_LEVEL else None
        if event is None or event.event != CHECKPOINT:
            text = raw.decode("utf-8", "replace")
            self._tail.append(text)
            if self.on_line is not None:
                self.on_line(text)
            at = f"@{time.time():.6f} ".encode() if self._foreign else b""
            self._keep(at + raw + b"\n")
        if event is not None:
            late_ns = max(0, time.time_ns() - event.ts_ns)
            self._bus.hear(self._node, event.event, event.data, late_ns)

    def _keep(self, raw: bytes) -> None:
        if self._file is None:
            return
        cut = len(raw) > self._left_bytes
        self._left_bytes -= len(raw)
        try:
            if cut:
                self._file.write(f"[cut here: the log reached {LOG_BYTES_MAX} bytes]\n".encode())
                self.close()
                return
            self._file.write(raw)
            self._file.flush()
        except OSError as error:
            _log.warning("the log of %s is no longer written: %s", self._node, error)
            self._file = None

    def tail(self, last_lines: int) -> list[str]:
        return list(self._tail)[-last_lines:] if last_lines > 0 else []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


Logs = Callable[[str], NodeLog]
"""A function that creates the log of the node with the given name."""
