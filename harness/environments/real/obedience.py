"""A node's end of the control channel: its standard input.

Only a pipe or a socket is one: a node that somebody starts by hand at a terminal, or on nothing,
is steered by nobody. Its end is no error: the driver has gone, and the node serves on until its
warden ends it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from typing import Any, Final

import msgspec

from harness.environments.faulty import DiskTrouble, FaultyClock
from harness.environments.real.control import OBEYED, Command, Condition, Obeyed
from harness.environments.real.lines import CONTROL_LEVEL

__all__ = ["Obedience"]

_READ_BYTES: Final = 65536
_LINE_BYTES_MAX: Final = 65536
_log = logging.getLogger(__name__)


class Obedience:
    """Makes a node's clock and disk as bad as the driver says."""

    def __init__(
        self,
        clock: FaultyClock,
        trouble: DiskTrouble,
        *,
        boot: int,
        write: Callable[[str, str, dict[str, Any]], None],
    ) -> None:
        """`write` puts out a line: its level, its event and its data."""
        self._clock = clock
        self._trouble = trouble
        self._boot = boot
        self._write = write
        self._touched = 0
        self._pending = b""

    def be(self, condition: Condition) -> None:
        """Be in this condition from now on."""
        self._clock.set(condition.clock)
        self._touched += self._trouble.set(condition.disk)

    def listen(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        """Obey what has been said already, and from now on whatever is said."""
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return
        os.set_blocking(descriptor, False)
        loop.add_reader(descriptor, self._read, loop, descriptor)
        self._read(loop, descriptor)
        self.report()

    def _read(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            _log.warning("the harness is not heard any more: %s", error)
            data = b""
        if not data:
            loop.remove_reader(descriptor)
            return
        self.take(data)

    def take(self, data: bytes) -> None:
        """Take what was said, in pieces of any size."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > _LINE_BYTES_MAX:
            lines.append(self._pending)
            self._pending = b""
        for line in lines:
            try:
                command = msgspec.json.decode(line, type=Command)
            except msgspec.DecodeError as error:
                _log.warning("the harness said %r: %s", line[:200], error)
                continue
            if command.boot == self._boot:
                self.be(command.condition)
                self._answer(command.number)

    def report(self) -> None:
        """Tell what was felt, without being asked: it listens, or it is about to end."""
        self._touched += self._trouble.touched()
        self._answer(0)

    def _answer(self, number: int) -> None:
        answer = Obeyed(number=number, touched=self._touched)
        self._write(CONTROL_LEVEL, OBEYED, msgspec.to_builtins(answer))
