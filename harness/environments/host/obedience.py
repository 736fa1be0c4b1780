"""A node's end of the control channel (`host.control`): the node's standard input.

Standard input is a control channel only if it is a pipe or a socket. A node that was started by
hand, at a terminal or without input, has no driver. If the input ends, the driver is gone. The node
then keeps serving until the warden ends it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import stat
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from harness.environments.faulty import DiskTrouble, FaultyClock
from harness.environments.host.control import OBEYED, STOPPED, Command, Condition, Obeyed, Stopped
from harness.environments.host.lines import CONTROL_LEVEL

_READ_BYTES: Final = 65536
_LINE_BYTES_MAX: Final = 65536
_STOP_S_MAX: Final = 1.0
_log = logging.getLogger(__name__)


class Obedience:
    """Applies the driver's commands to a node: clock and disk faults, aliases, stops at events."""

    def __init__(
        self,
        clock: FaultyClock,
        trouble: DiskTrouble,
        *,
        boot: int,
        write: Callable[[str, str, dict[str, Any]], None],
    ) -> None:
        """`write(level, event, data)` writes one line of output with these three values."""
        self._clock = clock
        self._trouble = trouble
        self._boot = boot
        self._write = write
        self.aliases: dict[str, str] = {}
        self._touched = 0
        self._pending = b""
        self._number = 0  # of the last command
        self._descriptor: int | None = None  # the control channel while it is open
        self._stops_at: tuple[str, ...] = ()
        self._stops = 0
        self._goes_on = 0

    def be(self, condition: Condition) -> None:
        self._clock.set(condition.clock)
        self._touched += self._trouble.set(condition.disk)
        self._stops_at = condition.stops_at
        self.aliases.clear()
        self.aliases.update(condition.aliases)

    def listen(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        """Start to obey the commands from `descriptor`, including any that have already arrived."""
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        loop.add_reader(descriptor, self._read, loop, descriptor)
        self._read(loop, descriptor)
        self.report()

    def _read(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            _log.warning("lost the control channel to the harness: %s", error)
            data = b""
        if not data:
            self._descriptor = None
            loop.remove_reader(descriptor)
            return
        self.take(data)

    def take(self, data: bytes) -> None:
        """Process a piece of input, which may begin and end within a command."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > _LINE_BYTES_MAX:
            lines.append(self._pending)
            self._pending = b""
        for line in lines:
            try:
                command = msgspec.json.decode(line, type=Command)
            except msgspec.DecodeError as error:
                _log.warning("ignored an invalid command %r: %s", line[:200], error)
                continue
            if command.boot != self._boot:
                continue
            if command.number > self._number:  # an older command is answered but not applied
                self._number = command.number
                self.be(command.condition)
                self._goes_on = command.goes_on
            self._answer(command.number)

    def stand_still(self, loop: asyncio.AbstractEventLoop, kind: str) -> None:
        """Block the node after an event with a trap, until the driver lets the node continue.

        The whole event loop blocks, so no task of the node can run. The node still obeys commands.
        """
        if kind not in self._stops_at or self._descriptor is None:
            return
        self._stops += 1
        self._write(CONTROL_LEVEL, STOPPED, msgspec.to_builtins(Stopped(stop=self._stops)))
        end_s = time.monotonic() + _STOP_S_MAX
        while self._goes_on < self._stops and self._descriptor is not None:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                _log.warning("continued after the event %s without waiting for the driver", kind)
                return
            if select.select([self._descriptor], [], [], left_s)[0]:
                self._read(loop, self._descriptor)

    def report(self) -> None:
        """Report how many disk requests faults have affected, as an answer with the number 0."""
        self._touched += self._trouble.touched()
        self._answer(0)

    def _answer(self, number: int) -> None:
        answer = Obeyed(number=number, touched=self._touched)
        self._write(CONTROL_LEVEL, OBEYED, msgspec.to_builtins(answer))
