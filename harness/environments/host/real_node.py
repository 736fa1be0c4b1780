"""A node in a process or a container: its *verbs* (start, stop, kill, pause, ...).

An incarnation is one run of the node's program, from a start to its end. A verb holds the node's
lock (`turn`), and does nothing if the node is in the wrong state. It verifies its effect before it
returns. Before it pauses a node, it registers the node with the warden, which resumes the node if
the driver dies. Steps that differ by environment (how to start, kill or freeze a node) are
primitives that subclasses implement.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import msgspec

from harness.cluster import BASE, NodeSpec, NodeState
from harness.environments.fuse.disk import FuseDisk
from harness.environments.host.control import NodeControl
from harness.environments.host.logs import EventBus, NodeLog
from harness.environments.host.power import PowerCut
from harness.environments.host.readiness import LineWatch, not_ready, wait_ready
from harness.environments.warden import AFTER_LEASE_S, Undo, Warden
from harness.errors import InfrastructureError, UsageError
from harness.nodes.deployment import as_variant
from harness.timeline import POWER_CUT

EXIT_LOG_LINES: Final = 40

_log = logging.getLogger(__name__)


class RealNode(ABC):
    """A node over all of its incarnations. Its verbs are idempotent (see `harness.cluster`)."""

    def __init__(self, spec: NodeSpec, log: NodeLog, bus: EventBus, warden: Warden) -> None:
        self.spec = spec
        self.log = log
        self.state = NodeState.DOWN
        self.turn = asyncio.Lock()  # held by a verb that changes the node's state
        self.boots = 0
        self.variant = BASE  # for the next start
        self.set_up = False
        self.watch = LineWatch(spec)
        self.ended_by_host = False
        self.power_cut: PowerCut | None = None  # to apply at the next start
        self.disk: FuseDisk | None = None  # of a foreign program
        self.slowed = 1.0  # the factor by which computing takes longer
        self._bus = bus
        self._warden = warden
        self.control = NodeControl(
            spec,
            turn=self.turn,
            state=lambda: self.state,
            send=self._send,
            springs_have_run=bus.springs_have_run,
        )
        bus.stop_with_traps(self.control.stop_at)
        if spec.entry is not None:
            log.on_answer = self.control.hear

    # --- primitives --------------------------------------------------------------------------

    @abstractmethod
    async def _send(self, line: bytes) -> None:
        """Write a line to the program's standard input; may raise `InfrastructureError`."""

    @abstractmethod
    async def _prepare(self) -> None:
        """Prepare what an incarnation as `self.variant` needs, such as files or a container."""

    @abstractmethod
    async def _run_setup(self) -> None:
        """Run the set-up commands; raises `TargetError` if one fails."""

    @abstractmethod
    async def _launch(self) -> None:
        """Start an incarnation and call `_begun`."""

    @abstractmethod
    async def _end(self) -> None:
        """Ask the incarnation to end, and kill it after a timeout; returns once it has ended."""

    @abstractmethod
    async def _kill(self) -> None:
        """Send SIGKILL to the node and verify that it is dead."""

    @abstractmethod
    def _thaw_undo(self) -> Undo:
        """Return the action by which the warden ends a pause."""

    @abstractmethod
    async def _freeze(self) -> bool:
        """Freeze the node and verify that it is frozen; false if the node has ended."""

    @abstractmethod
    async def _thaw(self) -> None:
        """Thaw the node and verify that it runs."""

    @abstractmethod
    async def _set_pace(self) -> None:
        """Make the node compute slower, by the factor `slowed`."""

    @abstractmethod
    async def _empty(self) -> bool:
        """Empty the node's data folder; returns whether the folder had content."""

    @abstractmethod
    async def _ask_port(self, port: int, path: str) -> str | None:
        """Test a declared port; returns `None` or the reason why it is not ready."""

    @abstractmethod
    async def _run_beside(self, command: Sequence[str]) -> tuple[int | None, str]:
        """Run a command next to the node; returns its exit code (`None`: too slow) and output."""

    # --- verbs -------------------------------------------------------------------------------

    async def start(self, variant: str | None = None) -> bool:
        """Start the node if it is down.

        It runs as `variant`, or as its previous variant if that is `None`. Raises `UsageError` for
        an undeclared variant, `TargetError` if the set-up fails, and `InfrastructureError` for
        failures of the host.
        """
        if variant is not None:
            as_variant(self.spec, variant)  # raises `UsageError` for an undeclared variant
        async with self.turn:
            if self.state is not NodeState.DOWN:
                return False
            self.variant = variant or self.variant
            await self._prepare()
            if not self.set_up:
                await self._run_setup()
                if self.disk is not None:
                    # a power cut must not lose what the set-up wrote
                    await self.disk.make_durable()
                self.set_up = True
            # Watch the output before the launch, since the program may print at once.
            self.watch = self.log.on_line = LineWatch(self.spec)
            self.ended_by_host = False
            await self._launch()
            return True

    async def stop(self) -> bool:
        """Send the node its `NodeSpec.stop_signal`, and SIGKILL after a timeout."""
        async with self.turn:
            if self.state is NodeState.DOWN:
                return False
            await self._end()
            return True

    async def kill(self, cut: PowerCut | None = None) -> bool:
        """Kill the node (SIGKILL) and verify that it is dead; returns whether it was up.

        The power cut `cut` also applies to a node that is already down. The data are lost now or at
        the next start.
        """
        async with self.turn:
            self.power_cut = cut or self.power_cut
            was_up = self.state is not NodeState.DOWN
            if was_up:
                async with self.hurried():
                    await self._kill()
            if self.disk is not None and cut is not None:
                lost = await self.disk.cut_power(torn=cut.torn)
                self._bus.publish(self.spec.name, POWER_CUT, msgspec.structs.asdict(lost))
            return was_up

    async def pause(self, lease_s: float) -> bool:
        """Freeze the node and verify that it is frozen; false if it is not running."""
        async with self.turn:
            if self.state is not NodeState.RUNNING:
                return False
            deadline_s = lease_s + AFTER_LEASE_S
            self._warden.guard(self._pause_key, self._thaw_undo(), deadline_s=deadline_s)
            if not await self._freeze():
                self._release(self._pause_key)
                return False
            self.state = NodeState.PAUSED
            self.control.let_go()
            return True

    async def resume(self) -> bool:
        """Resume a paused node and verify that it runs; false if it is not paused."""
        async with self.turn:
            if self.state is not NodeState.PAUSED:
                return False
            return await self._resume()

    async def _resume(self) -> bool:
        await self._thaw()
        if self.state is not NodeState.PAUSED:
            return False  # the node has ended, and its exit event says so
        self._forget_pause(NodeState.RUNNING)
        await self.control.catch_up()
        return True

    async def slow(self, factor: float) -> None:
        """Make all computing of the node take `factor` times as long, even after restarts."""
        async with self.turn:
            if factor != self.slowed:
                self.slowed = factor
                await self._set_pace()

    async def wipe(self) -> bool:
        """Empty the node's data folder; raises `UsageError` unless the node is down.

        Returns whether the folder had content.
        """
        async with self.turn:
            if self.state is not NodeState.DOWN:
                raise UsageError(
                    f"cannot wipe the disk of node {self.spec.name!r}, which is "
                    f"{self.state.value}; kill or stop the node first"
                )
            changed = await self._empty()
            self.set_up = False
            return changed

    async def wait_ready(self) -> str | None:
        """Wait until the node is ready by its own declaration; returns why not, or `None`."""
        boots = self.boots

        def runs() -> bool:
            return self.state is not NodeState.DOWN and self.boots == boots

        return await wait_ready(self.spec, self.watch, runs, self._ask_port, self._run_beside)

    async def require_ready(self) -> None:
        """Wait until the node is ready, and raise an error if it does not become ready.

        If the host ended the node, it is an `InfrastructureError`, and otherwise a `StartError`.
        """
        reason = await self.wait_ready()
        if reason is not None:
            log = self.log.tail(EXIT_LOG_LINES)
            not_ready(self.spec.name, reason, log, by_host=self.ended_by_host)

    # --- for primitives ----------------------------------------------------------------------

    @property
    def _pause_key(self) -> str:
        return f"pause/{self.spec.name}"

    def _begun(self) -> None:
        self.state = NodeState.RUNNING
        self.control.started(self.boots)
        variant = {"variant": self.variant} if self.spec.variants else {}
        self._bus.publish(self.spec.name, "node-started", {"boot": self.boots, **variant})
        self.boots += 1
        self.power_cut = None

    def _over(self) -> list[str]:
        """Record that the node has exited; returns the last lines of its log."""
        self.log.end_incarnation()
        self._forget_pause(NodeState.DOWN)
        self.control.let_go()
        return self.log.tail(EXIT_LOG_LINES)

    def _publish_exit(self, code: int, *, expected: bool, by: str, log: list[str]) -> None:
        """Publish the exit of the node. `by` says who caused it, as in `ClusterEvent`."""
        self.ended_by_host = by == "host"
        data = {"code": code, "expected": expected, "by": by, "log": log}
        self._bus.publish(self.spec.name, "node-exited", data)

    def _forget_pause(self, state: NodeState) -> None:
        """Change the node's state. If it was paused, the warden no longer needs to resume it."""
        was, self.state = self.state, state
        if was is NodeState.PAUSED:
            self._release(self._pause_key)

    def _release(self, key: str) -> None:
        try:
            self._warden.release(key)
        except InfrastructureError as error:
            _log.warning("%s", error)

    def tell(self, what: str, *, undid: str | None = None) -> None:
        """Publish a failure of harness or host; `undid` is the kind of fault that it ended."""
        data = {"what": what} | ({} if undid is None else {"undid": undid})
        self._bus.publish(self.spec.name, "infrastructure", data)

    def hurried(self, *, after_s: float = 0.0) -> contextlib.AbstractAsyncContextManager[None]:
        """Release delayed disk requests inside this context (see `FuseDisk.hurried`)."""
        return contextlib.nullcontext() if self.disk is None else self.disk.hurried(after_s=after_s)
