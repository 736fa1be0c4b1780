"""A node in a process or a container, and its verbs: written once, over a few primitives.

A verb holds the node's turn, does nothing to a node in the wrong state, guards a fault with the
warden before it happens, and verifies it on return. What differs by environment (starting, killing,
freezing) is a primitive, which a subclass implements.
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
    """A node over all of its incarnations. Verbs are idempotent, see `harness.cluster`."""

    def __init__(self, spec: NodeSpec, log: NodeLog, bus: EventBus, warden: Warden) -> None:
        self.spec = spec
        self.log = log
        self.state = NodeState.DOWN
        self.turn = asyncio.Lock()  # held by the verb that changes the state
        self.boots = 0
        self.variant = BASE  # from its next start on
        self.set_up = False
        self.watch = LineWatch(spec)
        self.ended_by_host = False
        self.power_cut: PowerCut | None = None  # which its next start finds on the disk
        self.disk: FuseDisk | None = None  # one of ours, of a foreign program
        self.slowed = 1.0  # the factor by which it computes more slowly
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
        """Write a line to the program's standard input; raises `InfrastructureError`."""

    @abstractmethod
    async def _prepare(self) -> None:
        """Make ready what an incarnation as `variant` needs, such as files or a container."""

    @abstractmethod
    async def _run_setup(self) -> None:
        """Run the set-up commands; raises `TargetError` for one that fails."""

    @abstractmethod
    async def _launch(self) -> None:
        """Start an incarnation and call `_begun`."""

    @abstractmethod
    async def _end(self) -> None:
        """Ask the incarnation to end, kill it after a bound, and wait for its end."""

    @abstractmethod
    async def _kill(self) -> None:
        """SIGKILL, verified dead on return."""

    @abstractmethod
    def _thaw_undo(self) -> Undo:
        """The warden's way to end a pause."""

    @abstractmethod
    async def _freeze(self) -> bool:
        """Freeze, verified on return; false where the node ended at this very moment."""

    @abstractmethod
    async def _thaw(self) -> None:
        """Thaw, verified on return."""

    @abstractmethod
    async def _set_pace(self) -> None:
        """Apply `slowed`."""

    @abstractmethod
    async def _empty(self) -> bool:
        """Empty the data folder; whether that changed anything."""

    @abstractmethod
    async def _ask_port(self, port: int, path: str) -> str | None:
        """The result of `probe.missing` for a declared port."""

    @abstractmethod
    async def _run_beside(self, command: Sequence[str]) -> tuple[int | None, str]:
        """The exit code (`None`: it took too long) and the output of a command next to the node."""

    # --- verbs -------------------------------------------------------------------------------

    async def start(self, variant: str | None = None) -> bool:
        """Start the node if it is down, as that variant or as the last one.

        Raises `InfrastructureError`, `UsageError`, or `TargetError` for a set-up that failed.
        """
        if variant is not None:
            as_variant(self.spec, variant)  # refuses one that is not declared
        async with self.turn:
            if self.state is not NodeState.DOWN:
                return False
            self.variant = variant or self.variant
            await self._prepare()
            if not self.set_up:
                await self._run_setup()
                if self.disk is not None:
                    await self.disk.make_durable()  # long ago, as far as the node can see
                self.set_up = True
            # An incarnation may print at once.
            self.watch = self.log.on_line = LineWatch(self.spec)
            self.ended_by_host = False
            await self._launch()
            return True

    async def stop(self) -> bool:
        """Ask the node to end (`NodeSpec.stop_signal`); SIGKILL after a bound."""
        async with self.turn:
            if self.state is NodeState.DOWN:
                return False
            await self._end()
            return True

    async def kill(self, cut: PowerCut | None = None) -> bool:
        """SIGKILL, verified dead on return. A power cut also hits the data of a node that is down.

        The data that it takes is gone at the next start.
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
        """Freeze the node, verified on return."""
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
        """Thaw a paused node, verified on return."""
        async with self.turn:
            if self.state is not NodeState.PAUSED:
                return False
            return await self._resume()

    async def _resume(self) -> bool:
        await self._thaw()
        if self.state is not NodeState.PAUSED:
            return False  # it ended meanwhile, which is an event of its own
        self._forget_pause(NodeState.RUNNING)
        await self.control.catch_up()
        return True

    async def slow(self, factor: float) -> None:
        """Make all computing take `factor` times as long, over restarts too."""
        async with self.turn:
            if factor != self.slowed:
                self.slowed = factor
                await self._set_pace()

    async def wipe(self) -> bool:
        """Empty the data folder; raises `UsageError` while the node is up."""
        async with self.turn:
            if self.state is not NodeState.DOWN:
                raise UsageError(
                    f"node {self.spec.name!r} is {self.state.value}; only the disk of a node that "
                    "is down can be wiped: kill or stop it first"
                )
            changed = await self._empty()
            self.set_up = False
            return changed

    async def wait_ready(self) -> str | None:
        """Wait until the node is ready as it declares; the reason if it never is."""
        boots = self.boots

        def runs() -> bool:
            return self.state is not NodeState.DOWN and self.boots == boots

        return await wait_ready(self.spec, self.watch, runs, self._ask_port, self._run_beside)

    async def require_ready(self) -> None:
        """The same; raises `TargetError`, or `InfrastructureError` where the host ended it."""
        reason = await self.wait_ready()
        if reason is not None:
            not_ready(reason, self.log.tail(EXIT_LOG_LINES), by_host=self.ended_by_host)

    # --- for primitives ----------------------------------------------------------------------

    @property
    def _pause_key(self) -> str:
        return f"pause/{self.spec.name}"

    def _begun(self) -> None:
        """Note that an incarnation has begun."""
        self.state = NodeState.RUNNING
        self.control.started(self.boots)
        variant = {"variant": self.variant} if self.spec.variants else {}
        self._bus.publish(self.spec.name, "node-started", {"boot": self.boots, **variant})
        self.boots += 1
        self.power_cut = None

    def _over(self) -> list[str]:
        """Note that the incarnation has ended; returns the end of its log."""
        self.log.end_incarnation()
        self._forget_pause(NodeState.DOWN)
        self.control.let_go()
        return self.log.tail(EXIT_LOG_LINES)

    def _publish_exit(self, code: int, *, expected: bool, by: str, log: list[str]) -> None:
        """Report the end of an incarnation; `by` as in `ClusterEvent`."""
        self.ended_by_host = by == "host"
        data = {"code": code, "expected": expected, "by": by, "log": log}
        self._bus.publish(self.spec.name, "node-exited", data)

    def _forget_pause(self, state: NodeState) -> None:
        """Change the state; the warden has nothing to thaw any more."""
        was, self.state = self.state, state
        if was is NodeState.PAUSED:
            self._release(self._pause_key)

    def _release(self, key: str) -> None:
        try:
            self._warden.release(key)
        except InfrastructureError as error:
            _log.warning("%s", error)

    def tell(self, what: str, *, undid: str | None = None) -> None:
        """Publish a failure of the harness or its host; `undid`: the kind of fault that it ended
        before its time.
        """
        data = {"what": what} | ({} if undid is None else {"undid": undid})
        self._bus.publish(self.spec.name, "infrastructure", data)

    def hurried(self, *, after_s: float = 0.0) -> contextlib.AbstractAsyncContextManager[None]:
        """Let no request to its disk be late meanwhile, see `FuseDisk.hurried`."""
        return contextlib.nullcontext() if self.disk is None else self.disk.hurried(after_s=after_s)
