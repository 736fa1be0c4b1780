"""How the driver steers the clock and the disk of a node on `Env`: the words, and its own end.

Commands go to the node's standard input, a JSON object a line; the answers come among its output
(`harness.environments.real.lines`). A command holds all that is wrong with the machine, so it may
be given twice, and only the last one counts. A node answers each, and 0 when it begins to listen
and before it ends by itself. What it did not live to hear is in its `NodeFile` when it starts
again: what is wrong with a machine outlasts its nodes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from harness.cluster import (
    DiskQuality,
    NodeSpec,
    NodeState,
    check_clock,
    check_disk_quality,
    env_nodes_only,
)
from harness.environments.faulty import ClockError
from harness.environments.real.lines import NodeLine
from harness.errors import InfrastructureError

__all__ = ["OBEYED", "Command", "Condition", "NodeControl", "Obeyed"]

OBEYED: Final = "obeyed"
_ANSWER_TIMEOUT_S: Final = 20.0
"""A host that starves its nodes is no reason to give up a run."""
_ATTEMPTS: Final = 2
"""An answer may be lost where the output of a node breaks off: it is asked for again."""
_START_TIMEOUT_S: Final = 60.0
"""Of a node that was just started: how long an interpreter may take to come up."""


_log = logging.getLogger(__name__)


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a machine."""

    clock: ClockError = ClockError()
    disk: DiskQuality = DiskQuality()


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A line for the incarnation `boot` of a node; others take no notice."""

    number: int
    boot: int
    condition: Condition


class Obeyed(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an answer. `touched`: requests that felt the disk's trouble in this life."""

    number: int
    touched: int


class NodeControl:
    """The driver's end for one node, over all of its incarnations."""

    def __init__(
        self,
        spec: NodeSpec,
        *,
        turn: asyncio.Lock,
        state: Callable[[], NodeState],
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """`turn` is held by whoever changes `state`. `send` raises `InfrastructureError`."""
        self._spec = spec
        self._turn = turn
        self._state = state
        self._send = send
        self.condition = Condition()
        self._boot = 0
        self._number = 0  # of the last command
        self._reached = -1  # the last that was obeyed; 0: it listens
        self._behind = False  # a paused node does not know all yet
        self._touched = 0
        self._touched_in_life = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    # --- what becomes of the node -------------------------------------------------------------

    def started(self, boot: int) -> None:
        """A new life has begun, with `condition` in its `NodeFile`."""
        self._boot = boot
        self._reached = -1
        self._touched_in_life = 0
        self._behind = False

    def let_go(self) -> None:
        """The node is paused or down: it answers later or never, so nobody waits for it."""
        waiting, self._waiting = self._waiting, []
        for _, answered in waiting:
            if not answered.done():
                answered.set_result(None)

    async def catch_up(self) -> None:
        """Tell a node that goes on what it has missed. Nobody waits for its answer."""
        if self._behind:
            await self._send(self._command())
            self._behind = False

    def hear(self, line: NodeLine) -> None:
        """Take an answer."""
        try:
            obeyed = msgspec.convert(line.data, Obeyed)
        except msgspec.ValidationError as error:  # its program wrote this, not its runner
            _log.warning("%s answered %r: %s", self._spec.name, line.data, error)
            return
        self._touched += obeyed.touched - self._touched_in_life
        self._touched_in_life = obeyed.touched
        self._reached = max(self._reached, obeyed.number)
        for number, answered in self._waiting:
            if number <= self._reached and not answered.done():
                answered.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]

    # --- the verbs ----------------------------------------------------------------------------

    async def skew(self, *, offset_ns: int, drift_ppm: int) -> None:
        """See `harness.cluster.Cluster.skew`; in force on return where the node is running."""
        check_clock(offset_ns=offset_ns, drift_ppm=drift_ppm)
        self._check_ours("a clock fault")
        since_ns = time.time_ns()
        clock = ClockError(offset_ns=offset_ns, drift_ppm=drift_ppm, since_ns=since_ns)
        await self._set(clock=clock)

    async def worsen_disk(self, quality: DiskQuality) -> int:
        """See `harness.cluster.Cluster.worsen_disk`; in force on return where it is running.

        What a node that was killed has felt since it was last heard of is not known, nor counted.
        """
        check_disk_quality(quality)
        self._check_ours("a disk fault")
        await self._set(disk=quality)
        touched, self._touched = self._touched, 0
        return touched

    async def mend(self) -> None:
        """Make clock and disk good, where they are not."""
        clock = self.condition.clock
        if clock.offset_ns or clock.drift_ppm or self.condition.disk != DiskQuality():
            await self._set(clock=ClockError(), disk=DiskQuality())

    def _check_ours(self, what: str) -> None:
        if self._spec.entry is None:
            raise env_nodes_only(what, [self._spec.name])

    def _command(self) -> bytes:
        self._number += 1
        command = Command(number=self._number, boot=self._boot, condition=self.condition)
        return msgspec.json.encode(command) + b"\n"

    async def _set(self, **changes: Any) -> None:
        async with self._turn:
            self.condition = msgspec.structs.replace(self.condition, **changes)
            if self._state() is NodeState.PAUSED:
                self._behind = True
            if self._state() is not NodeState.RUNNING:
                return
            await self._send(self._command())
            number, boot = self._number, self._boot
        if not await self._obeyed(0, boot, _START_TIMEOUT_S):
            raise InfrastructureError(
                f"{self._spec.name} has not begun to listen to the harness "
                f"{_START_TIMEOUT_S:.0f} s after its start"
            )
        for _ in range(_ATTEMPTS - 1):
            if await self._obeyed(number, boot, _ANSWER_TIMEOUT_S / _ATTEMPTS):
                return
            async with self._turn:
                if not self._lives(boot):
                    return
                await self._send(self._command())
        if not await self._obeyed(number, boot, _ANSWER_TIMEOUT_S / _ATTEMPTS):
            raise InfrastructureError(
                f"{self._spec.name} runs, but has not done what it was told to its clock and its "
                f"disk within {_ANSWER_TIMEOUT_S:.0f} s"
            )

    def _lives(self, boot: int) -> bool:
        """Whether this life of the node goes on, at this moment."""
        return self._boot == boot and self._state() is NodeState.RUNNING

    async def _obeyed(self, number: int, boot: int, limit_s: float) -> bool:
        """Wait until a command is obeyed, or nobody is there to do so; false when it takes longer.

        A later command says all that an earlier one did.
        """
        if not self._lives(boot) or self._reached >= number:
            return True
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, answered))
        try:
            async with asyncio.timeout(limit_s):
                await answered
        except TimeoutError:
            return not self._lives(boot)
        return True
