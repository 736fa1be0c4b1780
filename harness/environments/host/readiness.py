"""Waits until a real node is ready, and reports failures of its set-up.

Processes and containers share this loop. Each environment has its own way to test a port and to run
a command. A node that declares no test (`NodeSpec.ready`) is ready when it runs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn

from harness.cluster import NodeSpec, ReadyCommand, ReadyHttp, ReadyLog, ReadyPort
from harness.errors import InfrastructureError, StartError
from harness.nodes.deployment import describe

SETUP_S: Final = 300.0
"""The time limit of each set-up command."""
_SETUP_CHARACTERS_MAX: Final = 4000
COMMAND_S: Final = 10.0
"""The time limit of one attempt of a `ReadyCommand`."""
_POLL_S: Final = 0.1
_OUTPUT_CHARACTERS_MAX: Final = 500
LOG_LINES: Final = 20

AskPort = Callable[[int, str], Awaitable[str | None]]
"""A function that tests a declared port, like `host.probe.missing`. The path may be empty."""
RunCommand = Callable[[Sequence[str]], Awaitable[tuple[int | None, str]]]
"""A function that runs a command next to the node; returns its exit code (`None`: too slow) and
output."""


def failed_setup(spec: NodeSpec, command: Sequence[str], code: int | None, output: str) -> NoReturn:
    """Raise `StartError` for a failed set-up command; the code `None` means a timeout."""
    how = f"took longer than {SETUP_S:.0f} s" if code is None else f"exited with {code}"
    lines = output.strip()[-_SETUP_CHARACTERS_MAX:].splitlines()
    raise StartError(
        f"the set-up of node {spec.name!r} failed: {' '.join(command)!r} {how}",
        node=spec.name,
        part="setup",
        log=lines,
        log_is="its output",
    )


class LineWatch:
    """Looks for the pattern of a node's `ReadyLog` in the node's output (`NodeLog.on_line`)."""

    def __init__(self, spec: NodeSpec) -> None:
        pattern = spec.ready.pattern if isinstance(spec.ready, ReadyLog) else None
        self._pattern = None if pattern is None else re.compile(pattern)
        self.seen = False

    def __call__(self, line: str) -> None:
        if self._pattern is not None and not self.seen:
            self.seen = self._pattern.search(line) is not None


async def wait_ready(
    spec: NodeSpec,
    watch: LineWatch,
    runs: Callable[[], bool],
    ask_port: AskPort,
    run_command: RunCommand,
) -> str | None:
    """Wait until the node is ready. Returns `None`, or the reason if it ends or takes too long.

    `watch` sees the output since the node's last start. `runs` tells whether the node still runs.
    """
    ready = spec.ready
    if ready is None:
        return None if runs() else f"node {spec.name!r} is down"
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + ready.within_s
    while True:
        missing = await _missing(spec, watch, ask_port, run_command)
        wanted = f"it is ready once {describe(ready)}" + (f" ({missing})" if missing else "")
        if not runs():  # check now, since another process may have answered the test
            return f"node {spec.name!r} ended before it was ready; {wanted}"
        if missing is None:
            return None
        if loop.time() >= deadline_s:
            return f"node {spec.name!r} did not get ready within {ready.within_s:g} s; {wanted}"
        await asyncio.sleep(_POLL_S)


async def _missing(
    spec: NodeSpec, watch: LineWatch, ask_port: AskPort, run_command: RunCommand
) -> str | None:
    """Test once whether the node is ready; `None` if it is, else a reason (may be "")."""
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


def not_ready(node: str, reason: str, log: Sequence[str], *, by_host: bool) -> NoReturn:
    """Raise an error for a node that did not become ready, with the end of the node's log.

    If the host ended the node, it is an `InfrastructureError`, and otherwise a `StartError`.
    """
    lines = log[-LOG_LINES:]
    if by_host:
        raise InfrastructureError(reason, output=lines)
    raise StartError(reason, node=node, log=lines, log_is="the end of its log")
