"""Bringing up a real node: its set-up, and when it is ready as it declares.

One loop waits for processes and containers; how a port or a command is asked differs, and is each
environment's own. A node without a probe is ready when it runs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn

from harness.cluster import NodeSpec, ReadyCommand, ReadyHttp, ReadyLog, ReadyPort
from harness.errors import InfrastructureError, TargetError
from harness.nodes.deployment import describe

SETUP_S: Final = 300.0
"""How long each command of a set-up may take."""
_SETUP_CHARACTERS_MAX: Final = 4000
COMMAND_S: Final = 10.0
"""How long one try of a `ReadyCommand` may take."""
_POLL_S: Final = 0.1
_OUTPUT_CHARACTERS_MAX: Final = 500
LOG_LINES: Final = 20

AskPort = Callable[[int, str], Awaitable[str | None]]
"""As `harness.environments.host.probe.missing`, of a declared port."""
RunCommand = Callable[[Sequence[str]], Awaitable[tuple[int | None, str]]]
"""The exit code of a command next to the node, `None` if it took too long; its output."""


def failed_setup(spec: NodeSpec, command: Sequence[str], code: int | None, output: str) -> NoReturn:
    """Raise the `TargetError` for a command that did not exit with 0 (`None`: it took too long)."""
    how = f"took longer than {SETUP_S:.0f} s" if code is None else f"exited with {code}"
    end = output.strip()[-_SETUP_CHARACTERS_MAX:]
    quoted = "".join(f"\n  {line}" for line in end.splitlines()) or " nothing"
    raise TargetError(
        f"the set-up of node {spec.name!r} failed: {' '.join(command)!r} {how}; its output:{quoted}"
    )


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


async def wait_ready(
    spec: NodeSpec,
    watch: LineWatch,
    runs: Callable[[], bool],
    ask_port: AskPort,
    run_command: RunCommand,
) -> str | None:
    """Wait until the node is ready; why it is not, where it ended before or its time is over.

    `watch` is on the lines of this incarnation, and `runs` says whether that still runs.
    """
    ready = spec.ready
    if ready is None:
        return None if runs() else f"node {spec.name!r} is down"
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + ready.within_s
    while True:
        missing = await _missing(spec, watch, ask_port, run_command)
        wanted = f"it is ready once {describe(ready)}" + (f" ({missing})" if missing else "")
        if not runs():  # another process may have answered
            return f"node {spec.name!r} ended before it was ready; {wanted}"
        if missing is None:
            return None
        if loop.time() >= deadline_s:
            return f"node {spec.name!r} did not get ready within {ready.within_s:g} s; {wanted}"
        await asyncio.sleep(_POLL_S)


async def _missing(
    spec: NodeSpec, watch: LineWatch, ask_port: AskPort, run_command: RunCommand
) -> str | None:
    """Ask once: `None` if it is ready, else the reason, where one is known beyond the probe."""
    match spec.ready:
        case ReadyPort(port):
            return await ask_port(port, "")
        case ReadyHttp(port, path):
            return await ask_port(port, path)
        case ReadyCommand(command):
            code, output = await run_command(command)
            end = output.strip()[-_OUTPUT_CHARACTERS_MAX:]
            how = "it took too long" if code is None else f"it exited with {code}"
            return None if code == 0 else f"{how}{end and f': {end}'}"
    return None if watch.seen else ""


def not_ready(reason: str, log: Sequence[str], *, by_host: bool) -> NoReturn:
    """Raise what a deployment ends with, with the end of the node's log.

    `TargetError`, or `InfrastructureError` where the host ended the node.
    """
    quoted = "".join(f"\n  {line}" for line in log[-LOG_LINES:]) or " it is empty"
    kind = InfrastructureError if by_host else TargetError
    raise kind(f"{reason}; the end of its log:{quoted}")
