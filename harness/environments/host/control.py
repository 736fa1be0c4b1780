"""The channel by which the driver controls a node on `Env`: faults, aliases, stops at events.

This module has the messages and the driver's end. Commands go to the node's standard input, one
JSON object per line. Answers are lines of the node's output (`harness.environments.host.lines`).

A command contains all faults of the machine, so sending it twice is harmless, and only the last
command counts. A node answers each command with the command's number. It sends the number 0 when it
starts to listen and before it exits by itself. An *incarnation* is one run of the node, from a
start to its end. If a node dies before a command reaches it, its next incarnation finds the faults
in its `NodeFile`, since a machine's faults survive restarts.

The driver also chooses the events at which a node stops, and lets a stopped node continue
(`host.logs`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from harness.cluster import DiskQuality, NodeSpec, NodeState, check_clock, env_nodes_only
from harness.environments.faulty import ClockError
from harness.environments.host.foreignclock import ForeignClock
from harness.environments.host.lines import NodeLine
from harness.errors import InfrastructureError, UsageError

OBEYED: Final = "obeyed"
STOPPED: Final = "stopped"
_ANSWER_TIMEOUT_S: Final = 20.0
"""The longest wait for an answer. A shorter one would end runs on overloaded hosts."""
_ATTEMPTS: Final = 2
"""How many times a command is sent, since its answer may be lost with the node's output."""
_START_TIMEOUT_S: Final = 60.0
"""How long a new node may take, with its interpreter's start, until it listens to commands."""


T = TypeVar("T")
_log = logging.getLogger(__name__)


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's clock and disk faults, the events at which its node stops, and aliases."""

    clock: ClockError = ClockError()
    disk: DiskQuality = DiskQuality()
    stops_at: tuple[str, ...] = ()
    aliases: dict[str, str] = {}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command to the node's incarnation with the number `boot`. Other incarnations ignore it."""

    number: int
    boot: int
    condition: Condition
    goes_on: int = 0  # the node continues after its stops up to this number


class Obeyed(msgspec.Struct, frozen=True, kw_only=True):
    """A node's answer to the command `number`.

    `touched` counts the disk requests that faults have affected in this incarnation.
    """

    number: int
    touched: int


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """A node's message that it has stopped at an event. `stop` counts the incarnation's stops."""

    stop: int


class NodeControl:
    """The driver's end of the control channel to one node, over all of its incarnations."""

    def __init__(
        self,
        spec: NodeSpec,
        *,
        turn: asyncio.Lock,
        state: Callable[[], NodeState],
        send: Callable[[bytes], Awaitable[None]],
        springs_have_run: Callable[[str], Awaitable[None]],
    ) -> None:
        """`turn` is the lock of `RealNode` for starts, stops, kills, pauses and resumes.

        `send` may raise `InfrastructureError`. `springs_have_run` waits for the callbacks that the
        node's last event triggered (see `Deployed.trap`).
        """
        self.spec = spec
        self._turn = turn
        self._state = state
        self._send = send
        self._springs_have_run = springs_have_run
        self.foreign_clock: ForeignClock | None = None
        self.condition = Condition()
        self._boot = 0
        self._number = 0  # of the last command
        self._reached = -1  # the number in the node's last answer
        self._behind = False  # a paused node has missed a command
        self._touched = 0
        self._touched_in_life = 0
        self._goes_on = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    # --- what becomes of the node -------------------------------------------------------------

    def started(self, boot: int) -> None:
        """Record that an incarnation has started with the current `condition`."""
        self._boot = boot
        self._reached = -1
        self._touched_in_life = 0
        self._goes_on = 0
        self._behind = False

    def let_go(self) -> None:
        """Stop waiting for answers, because the node was paused or has ended."""
        waiting, self._waiting = self._waiting, []
        for _, answered in waiting:
            if not answered.done():
                answered.set_result(None)

    async def catch_up(self) -> None:
        """Send the latest command to a resumed node that missed it; do not await the answer."""
        if self._behind:
            await self._send(self._command())
            self._behind = False

    def hear(self, line: NodeLine) -> None:
        try:
            if line.event == STOPPED:
                stop = msgspec.convert(line.data, Stopped).stop
                self._begin(self._let_go_on(stop, self._boot))
                return
            obeyed = msgspec.convert(line.data, Obeyed)
        except msgspec.ValidationError as error:  # the node's runner did not write this line
            _log.warning("%s sent an invalid answer %r: %s", self.spec.name, line.data, error)
            return
        self._touched += obeyed.touched - self._touched_in_life
        self._touched_in_life = obeyed.touched
        self._reached = max(self._reached, obeyed.number)
        for number, answered in self._waiting:
            if number <= self._reached and not answered.done():
                answered.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]

    # --- events -------------------------------------------------------------------------------

    def stop_at(self, kinds: tuple[str, ...]) -> None:
        """Make the node stop at events of these kinds until the event's callbacks have run."""
        if self.spec.entry is not None and kinds != self.condition.stops_at:
            self.condition = msgspec.structs.replace(self.condition, stops_at=kinds)
            self._begin(self._pass_on())

    async def _pass_on(self) -> None:
        async with self._turn:
            await self._tell()

    async def _let_go_on(self, stop: int, boot: int) -> None:
        await self._springs_have_run(self.spec.name)
        if self._boot == boot:
            self._goes_on = max(self._goes_on, stop)
            # not under `turn`: the call that holds it may be waiting for the node
            await self._tell()

    async def _tell(self) -> None:
        """Send the condition to a running node. A paused node gets it when it is resumed."""
        if self._state() is NodeState.RUNNING:
            await self._send(self._command())
        elif self._state() is NodeState.PAUSED:
            self._behind = True

    def _begin(self, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(telling, name=f"tell-{self.spec.name}")
        self._tasks.add(task)
        task.add_done_callback(self._told)

    def _told(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a command did not reach %s: %s", self.spec.name, error)

    # --- the verbs ----------------------------------------------------------------------------

    async def skew(self, *, offset_ns: int, drift_ppm: int) -> int | None:
        """Set the clock error of the node's machine (see `harness.cluster.Controls.skew`).

        If the node is running, the error is in effect when this method returns.
        """
        check_clock(offset_ns=offset_ns, drift_ppm=drift_ppm)
        if self.foreign_clock is not None:  # not under `turn`: a hanging probe must not delay kills
            state = self._state()
            return await self.foreign_clock.skew(state, offset_ns=offset_ns, drift_ppm=drift_ppm)
        if self.spec.entry is None:
            raise UsageError(
                f"a clock fault cannot reach {self.spec.name}: this foreign program was started "
                "without libfaketime, since the case plans no clock fault for it"
            )
        since_ns = time.time_ns()
        clock = ClockError(offset_ns=offset_ns, drift_ppm=drift_ppm, since_ns=since_ns)
        await self._set(clock=clock)
        return None

    async def worsen_disk(self, quality: DiskQuality) -> int:
        """Set the faults of the node's disk (see `harness.cluster.Controls.worsen_disk`).

        If the node is running, the faults are in effect when this method returns. The returned
        count may be too low: if the node was killed, requests affected after its last report are
        not counted.
        """
        quality.check()
        if self.spec.entry is None:
            raise env_nodes_only("a disk fault", [self.spec.name])
        await self._set(disk=quality)
        touched, self._touched = self._touched, 0
        return touched

    async def lead(self, aliases: Mapping[str, str]) -> None:
        """Set the aliases that a node on `Env` sees (`Cluster.alias`)."""
        if self.spec.entry is not None:
            await self._set(aliases=dict(aliases))

    async def mend(self) -> None:
        if self.foreign_clock is not None:
            await self.foreign_clock.mend(self._state())
        clock = self.condition.clock
        if clock.offset_ns or clock.drift_ppm or self.condition.disk != DiskQuality():
            await self._set(clock=ClockError(), disk=DiskQuality())

    def _command(self) -> bytes:
        self._number += 1
        command = Command(
            number=self._number,
            boot=self._boot,
            condition=self.condition,
            goes_on=self._goes_on,
        )
        return msgspec.json.encode(command) + b"\n"

    async def _set(self, **changes: Any) -> None:
        async with self._turn:
            self.condition = msgspec.structs.replace(self.condition, **changes)
            await self._tell()
            number, boot = self._number, self._boot
        if not await self._obeyed(0, boot, _START_TIMEOUT_S):
            raise InfrastructureError(
                f"{self.spec.name} did not start to read commands of the harness within "
                f"{_START_TIMEOUT_S:.0f} s of its start"
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
                f"{self.spec.name} runs, but did not carry out a command within "
                f"{_ANSWER_TIMEOUT_S:.0f} s"
            )

    def _lives(self, boot: int) -> bool:
        return self._boot == boot and self._state() is NodeState.RUNNING

    async def _obeyed(self, number: int, boot: int, limit_s: float) -> bool:
        """Wait until the node has answered a command or its incarnation has ended; false after
        `limit_s`.

        An answer to a later command counts as well, since every command contains all faults.
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


async def prove_clocks(
    controls: Iterable[NodeControl], wait_ready: Callable[[str], Awaitable[object]]
) -> None:
    """Check that clock faults work on all foreign programs that run with libfaketime.

    If they fail on some, all programs are checked, and then the first error is raised.
    """
    clocks = [each.foreign_clock for each in controls if each.foreign_clock is not None]
    await gather_all(clock.prove(wait_ready) for clock in clocks)


async def gather_all(work: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all awaitables. Then return their results, or raise the first failure."""
    answers = await asyncio.gather(*work, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return cast("list[T]", answers)
