"""Finds the moments at which a replay stops, in the running world.

The watch is notified of every event before it happens (`World.before`), of everything that happens
inside an event (`Trace`), and of every op. It stops the world by calling `on_stop`: the world waits
until the call returns an order, which says where to stop next. So a stop at an op or at an event of
a node is in the middle of a callback, and the code that reported the op or event is still on
Python's stack. All other stops are between two events.

Watching changes nothing: the watch uses no randomness, schedules nothing and numbers no event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from harness.cluster import CHECKPOINT, Link
from harness.environments.sim.environment import Deployment
from harness.environments.sim.loop import NodeLoop
from harness.environments.sim.trace import Trace, noted_text
from harness.errors import UsageError
from harness.ops import NS_PER_S, Op
from harness.replay.calls import Namer, call_text_in, node_of
from harness.replay.moments import AtEvent, AtOp, AtTime, End, Order, Quit, Steps, Until

LINES_MAX: Final = 200
TEXT_MAX: Final = 160


Event = tuple[NodeLoop | None, Callable[..., object], Sequence[Any]]


class ReplayQuit(Exception):  # noqa: N818 - it ends a replay on request
    """Ends the world of a replay because the user asked for it."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """A moment at which the world is halted.

    If the stop is `within` an event, `event` is the running event, else the next event. An event
    has the loop of its node (`None` outside of all nodes), its function and its arguments.
    """

    what: str
    node: str | None = None
    op: Op | None = None
    within: bool
    event: Event


class Watch:
    """The observer of one replay. `order` says where to stop next."""

    def __init__(self, order: Order, on_stop: Callable[[Stop], Order], name: Namer) -> None:
        self.order = order
        self.ops: list[Op] = []
        self.kinds: Counter[str] = Counter()
        """how many events of each kind nodes have reported so far"""
        self.lines: list[str] = []
        """lines about everything since the last stop, while stepping"""
        self._unsaid = 0
        self.stops = 0
        self.deployment: Deployment
        self._on_stop = on_stop
        self._name = name
        self._traced: Trace | None = None
        self.matched = 0
        """how many events since the last stop match the awaited event"""
        self.unlike: dict[str, Any] = {}
        """the fields of the last event of the awaited kind that does not match"""
        self._steps = 0
        self._over = False  # the last event of `Steps` has begun
        self._quit = False
        self._event: Event

    def attach(self, deployment: Deployment) -> None:
        """Watch the world of `deployment`. Call this before the world runs."""
        self.deployment = deployment
        world = deployment.world
        self._traced, world.trace = world.trace, self
        world.before = self._before

    # --- what the world reports ---------------------------------------------------------------

    def _before(
        self, loop: NodeLoop | None, call: Callable[..., object], arguments: Sequence[Any]
    ) -> None:
        self._event = loop, call, arguments
        order = self.order
        if self._over:
            self._over = False
            self._stop("", within=False)
        elif isinstance(order, AtTime) and self.deployment.world.now_ns >= order.time_ns:
            time_s = order.time_ns / NS_PER_S
            self._stop(f"the first event at or after {time_s:.10g} s", within=False)
        if isinstance(self.order, Steps) and not self._quit:
            self._step(self.order, loop, call, arguments)

    def _step(
        self,
        order: Steps,
        loop: NodeLoop | None,
        call: Callable[..., object],
        arguments: Sequence[Any],
    ) -> None:
        node = node_of(loop, call, arguments)
        if order.node is None or node == order.node:
            self._steps += 1
            self._over = self._steps == order.count
            if order.node is not None or self._over or order.count <= LINES_MAX:
                self._say(node or "world", call_text_in(loop, call, arguments, self._name))

    def noted(self, now_ns: int, node: str, what: str, data: bytes) -> None:
        if self._traced is not None:
            self._traced.noted(now_ns, node, what, data)
        if isinstance(self.order, Steps) and what != CHECKPOINT:
            self._say(node, f"  {noted_text(what, data)}")
        if " " in what or not data:
            return  # a write or a fault, but not an event of a node
        self.kinds[what] += 1
        order = self.order
        if isinstance(order, AtEvent) and what == order.trigger.event:
            fields = {"node": node, **msgspec.json.decode(data)}
            if order.trigger.matches(what, fields):
                self.matched += 1
                if self.matched == order.trigger.nth:
                    self._stop(f"{node} announces {noted_text(what, data)}", node=node)
            else:
                self.unlike = fields

    def sent(self, now_ns: int, link: Link, pipe: int, at_ns: int, frame: bytes) -> None:
        if self._traced is not None:
            self._traced.sent(now_ns, link, pipe, at_ns, frame)
        if isinstance(self.order, Steps):
            after_ms = (at_ns - now_ns) / 1e6
            text = (
                f"  sends {self._name(frame)} to {link.destination}, which takes {after_ms:.3f} ms"
            )
            self._say(link.source, text)

    def close(self) -> None:
        if self._traced is not None:
            self._traced.close()

    def on_op(self, op: Op) -> None:
        """Handle an op that was just recorded."""
        self.ops.append(op)
        if isinstance(self.order, Steps):
            self._say("client", f"  records {op_text(op)}")
        if isinstance(self.order, AtOp) and op.index == self.order.index:
            self._stop(op_text(op), node=op.node, op=op)

    # --- stops ----------------------------------------------------------------------------------

    def _stop(
        self, what: str, *, node: str | None = None, op: Op | None = None, within: bool = True
    ) -> None:
        if self._quit:
            return
        world = self.deployment.world
        if not within:
            node = node_of(*self._event)
        self.stops += 1
        self._steps = self.matched = 0
        self.unlike = {}
        stop = Stop(what=what, node=node, op=op, within=within, event=self._event)
        armed, world.tripwires.armed = world.tripwires.armed, False
        try:
            self.order = self._on_stop(stop)
        except Exception as error:  # noqa: BLE001 - inside a node, it would look like its crash
            self._quit = True
            self.order = End()
            world.fail(error)
        finally:
            world.tripwires.armed = armed
        self.lines.clear()
        self._unsaid = 0
        if isinstance(self.order, Quit):
            self.quit()

    def quit(self) -> None:
        """End the world after the current callback, without another stop."""
        self._quit = True
        self.order = End()
        self.deployment.world.fail(ReplayQuit())

    def stop_next(self) -> None:
        self._over = True

    def check_ahead(self, until: Until) -> None:
        """Raise `UsageError` if `until` is a moment in the past."""
        now_ns = self.deployment.world.now_ns
        if isinstance(until, AtOp) and until.index < len(self.ops):
            raise UsageError(
                f"op {until.index} was recorded before this moment, and time goes only forward; "
                f"the next op is {len(self.ops)}; start `harness replay` again to go back"
            )
        if isinstance(until, AtTime) and until.time_ns <= now_ns:
            raise UsageError(
                f"{until} has passed: it is {now_ns / NS_PER_S:.9g} s, and time goes only forward; "
                "start `harness replay` again to go back"
            )

    def _say(self, node: str, text: str) -> None:
        if len(self.lines) < LINES_MAX:
            now_s = self.deployment.world.now_ns / NS_PER_S
            self.lines.append(f"{now_s:.6f} {node:6} {_clip(text)}")
        else:
            self._unsaid += 1
            self.lines[LINES_MAX:] = [f"... {self._unsaid} more"]


def op_text(op: Op) -> str:
    """Return an op in one line."""
    value = "" if op.value is None else f" {msgspec.json.encode(op.value).decode()}"
    error = f" ({op.error})" if op.error else ""
    actor = f"process {op.process}" if op.is_client else op.process
    text = f"op {op.index}: {actor} {op.type.value} {op.f}{value}{error}"
    return _clip(text)


def _clip(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}..."
