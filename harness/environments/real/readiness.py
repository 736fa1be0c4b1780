"""Waiting until a real node is ready as it declares: one loop for processes and containers.

How a port or a command is asked differs, and is each environment's own (`Asks`). A node without a
probe is ready when it runs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final, NoReturn, Protocol

from harness.cluster import NodeSpec, ReadyCommand, ReadyHttp, ReadyLog, ReadyPort
from harness.deployment import describe
from harness.errors import InfrastructureError, TargetError

__all__ = ["COMMAND_S", "Asks", "LineWatch", "not_ready", "wait_ready"]

COMMAND_S: Final = 10.0
"""How long one try of a `ReadyCommand` may take."""
_POLL_S: Final = 0.1
_OUTPUT_CHARACTERS_MAX: Final = 500
LOG_LINES: Final = 20


class LineWatch:
    """Whether a line since its making matched (`NodeLog.on_line`); never without a `ReadyLog`."""

    def __init__(self, spec: NodeSpec) -> None:
        pattern = spec.ready.pattern if isinstance(spec.ready, ReadyLog) else None
        self._pattern = None if pattern is None else re.compile(pattern)
        self.seen = False

    def __call__(self, line: str) -> None:
        """Look at one line."""
        if self._pattern is not None and not self.seen:
            self.seen = self._pattern.search(line) is not None


class Asks(Protocol):
    """How an environment asks one of its nodes."""

    @property
    def watch(self) -> LineWatch:
        """The watch on the lines of this incarnation."""
        ...

    def runs(self) -> bool:
        """Whether the incarnation that is waited for still runs."""
        ...

    async def port(self, port: int, path: str) -> str | None:
        """As `harness.environments.real.probe.missing`, of a declared port."""
        ...

    async def command(self, command: Sequence[str]) -> tuple[int | None, str]:
        """The exit code of a command beside the node, `None` if it took too long; its output."""
        ...


async def wait_ready(spec: NodeSpec, asks: Asks) -> str | None:
    """Wait until the node is ready; why it is not, where it ended before or its time is over."""
    ready = spec.ready
    if ready is None:
        return None if asks.runs() else f"node {spec.name!r} is down"
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + ready.within_s
    while True:
        missing = await _missing(spec, asks)
        wanted = f"it is ready once {describe(ready)}" + (f" ({missing})" if missing else "")
        if not asks.runs():  # whatever was answered may have been by nobody of it
            return f"node {spec.name!r} ended before it was ready; {wanted}"
        if missing is None:
            return None
        if loop.time() >= deadline_s:
            return f"node {spec.name!r} did not get ready within {ready.within_s:g} s; {wanted}"
        await asyncio.sleep(_POLL_S)


async def _missing(spec: NodeSpec, asks: Asks) -> str | None:
    """Ask once: `None` if it is ready, else why not, where more than the probe can be said."""
    match spec.ready:
        case ReadyPort(port):
            return await asks.port(port, "")
        case ReadyHttp(port, path):
            return await asks.port(port, path)
        case ReadyCommand(command):
            code, output = await asks.command(command)
            said = output.strip()[-_OUTPUT_CHARACTERS_MAX:]
            how = "it took too long" if code is None else f"it exited with {code}"
            return None if code == 0 else f"{how}{said and f': {said}'}"
    return None if asks.watch.seen else ""


def not_ready(reason: str, log: Sequence[str], *, by_host: bool) -> NoReturn:
    """Raise what a deployment ends with, with the end of the node's log.

    `TargetError`, or `InfrastructureError` where the host ended the node.
    """
    shown = "".join(f"\n  {line}" for line in log[-LOG_LINES:]) or " it is empty"
    kind = InfrastructureError if by_host else TargetError
    raise kind(f"{reason}; the end of its log:{shown}")
