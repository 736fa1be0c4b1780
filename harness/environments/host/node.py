"""The program that runs one node: `python -m harness.environments.host.node`.

It reads one JSON object (`NodeFile`) from the file named by `HARNESS_NODE_FILE` or `--file PATH`.
Without a file, as in `docker/compose.yaml`, it reads the object from the variable `HARNESS_NODE`.
Then it runs the entry on a `RealEnv`. Faults of the node's clock and disk arrive on standard input
(`host.control`).

SIGTERM cancels the entry, and the node exits with code 0, even if tasks fail during the
cancellation. No other exit has code 0, which `host.exits` relies on. SIGINT is ignored. If the host
keeps the node from starting, the node exits with `EXIT_HOST`.

The node panics if the entry returns or raises by itself, or if a spawned task fails. It then writes
the traceback as its last line and exits at once with code 1: a node that has lost a task but keeps
answering is worse than a dead node.

This module imports little, since six nodes may start at once on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from harness.case import stream
from harness.env import NodeMain, load_entry
from harness.environments.faulty import DiskTrouble, FaultyClock
from harness.environments.host.control import Condition
from harness.environments.host.env import RealClock, RealEnv
from harness.environments.host.exits import EXIT_HOST
from harness.environments.host.lines import EVENT_LEVEL, NodeLine, encode_line
from harness.environments.host.obedience import Obedience
from harness.environments.host.power import PowerCut, cut_power
from harness.errors import UsageError

NODE_FILE_VARIABLE: Final = "HARNESS_NODE_FILE"
NODE_VARIABLE: Final = "HARNESS_NODE"
EXIT_PANIC: Final = 1
_CLOSE_TIMEOUT_S: Final = 5.0


class _Selector(selectors.DefaultSelector):
    """A selector that measures timeouts by the node's clock, which may run too fast or too slowly.

    A new clock error arrives as an event on the loop, which then computes its timeout again.
    """

    def __init__(self, clock: FaultyClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Convert the timeout from the node's time to correct time.
        if timeout is not None and timeout > 0:
            timeout /= self._clock.rate
        return super().select(timeout)


class DriftingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the time of the node's clock, which may be wrong."""

    def __init__(self, clock: FaultyClock) -> None:
        super().__init__(_Selector(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.monotonic_ns() / 1e9


class NodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """All parameters of a node.

    `listen` maps declared ports to addresses. `connect` and `pages` map `node:port` to the address
    of a node and to that of its web pages.
    """

    name: str
    boot: int
    entry: str
    config: dict[str, Any]
    seed: int
    data: str
    listen: dict[str, tuple[str, int]]
    connect: dict[str, tuple[str, int]]
    pages: dict[str, tuple[str, int]] = {}
    power_cut: PowerCut | None = None  # the power cut since the node last ran, if any
    condition: Condition = Condition()


class _Output:
    """The node's standard output, written line by line."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._open = True
        self.before_the_end: Callable[[], None] | None = None  # called by `panic` before it exits
        self.asked_to_end = False  # SIGTERM has arrived, and later failures do not count

    def write(self, level: str, event: str, data: dict[str, Any]) -> None:
        line = NodeLine(time.time_ns(), level, event, self._node, data)
        view = memoryview(encode_line(line))
        while view and self._open:
            try:
                view = view[os.write(sys.stdout.fileno(), view) :]
            except BrokenPipeError:
                # The driver is gone. The node keeps serving until the warden ends it.
                self._open = False

    def panic(self, where: str, error: BaseException | None) -> NoReturn:
        """Write the reason of a panic, and exit before any other task can run."""
        data: dict[str, Any] = {"logger": "harness.node", "message": f"panic in {where}"}
        if error is not None:
            data["message"] += f": {error!r}"
            data["traceback"] = "".join(traceback.format_exception(error))
        if self.before_the_end is not None:
            self.before_the_end()
        self.write("critical", "log", data)
        os._exit(0 if self.asked_to_end else EXIT_PANIC)


class _LogHandler(logging.Handler):
    def __init__(self, output: _Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        data = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info is not None:
            data["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        self._output.write(record.levelname.lower(), "log", data)


async def _run(node: NodeFile, entry: NodeMain, output: _Output, clock: FaultyClock) -> None:
    draws = stream(node.seed, f"disk-trouble/{node.name}/{node.boot}")
    trouble = DiskTrouble(draws, f"{node.seed}/{node.name}")
    obedience = Obedience(clock, trouble, boot=node.boot, write=output.write)
    obedience.be(node.condition)
    output.before_the_end = obedience.report
    loop = asyncio.get_running_loop()

    def on_event(kind: str, data: dict[str, Any]) -> None:
        output.write(EVENT_LEVEL, kind, data)
        obedience.stand_still(loop, kind)

    env = RealEnv(
        node.name,
        boot=node.boot,
        seed=node.seed,
        data=Path(node.data),
        listen={int(port): where for port, where in node.listen.items()},
        connect=node.connect,
        pages=node.pages,
        on_event=on_event,
        on_panic=lambda task, error: output.panic(f"task {task!r}", error),
        clock=clock,
        trouble=trouble,
    )
    env.net.aliases = obedience.aliases
    if sys.stdin is not None:  # `None` if standard input was closed at the start
        obedience.listen(loop, sys.stdin.fileno())
    loop.set_exception_handler(lambda _, context: _unhandled(output, context))
    main_task = loop.create_task(entry(env, node.config), name="main")

    def stop() -> None:
        output.asked_to_end = True
        main_task.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        await main_task
    except BaseException as error:  # noqa: BLE001 - every end of main but a stop is a panic
        # Only a cancellation after SIGTERM is a stop. The target may also cancel its own entry.
        if not (output.asked_to_end and isinstance(error, asyncio.CancelledError)):
            output.panic("main", error)
    if output.asked_to_end:
        with contextlib.suppress(TimeoutError):  # tasks that hang end with the process
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await env.close()
        obedience.report()
        return
    output.panic("main: it returned, but a node runs until it is stopped", None)


def _unhandled(output: _Output, context: dict[str, Any]) -> None:
    """Log an error that asyncio cannot deliver, such as a callback's. The node continues."""
    error = context.get("exception")
    data: dict[str, Any] = {"logger": "asyncio", "message": str(context.get("message"))}
    if isinstance(error, BaseException):
        data["traceback"] = "".join(traceback.format_exception(error))
    output.write("error", "log", data)


def _read_file(path: str | None) -> NodeFile:
    """Read a node's parameters from the file `path`; if it is `None`, from `HARNESS_NODE`.

    This variable is the same at each start, so its parameters get a unique boot number: random
    numbers depend on it, and must differ after a restart.
    """
    try:
        if path is not None:
            return msgspec.json.decode(Path(path).read_bytes(), type=NodeFile)
        node = msgspec.json.decode(os.environ[NODE_VARIABLE], type=NodeFile)
        return msgspec.structs.replace(node, boot=time.time_ns() // 1_000_000)
    except msgspec.DecodeError as error:
        source = NODE_VARIABLE if path is None else repr(path)
        raise UsageError(f"the node file {source} is invalid: {error}") from error


def _lose_power(node: NodeFile, cut: PowerCut) -> None:
    rng = stream(node.seed, f"power-cut/{node.name}/{node.boot}")
    lost = cut_power(Path(node.data), rng, torn=cut.torn)
    logging.getLogger("harness.disk").info("the power cut lost %d unsynced bytes", lost)


def main(arguments: list[str] | None = None) -> int:
    """Run one node until it is stopped; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m harness.environments.host.node")
    parser.add_argument(
        "--file", help=f"path of the node's parameters as JSON; default: ${NODE_FILE_VARIABLE}"
    )
    path = parser.parse_args(arguments).file or os.environ.get(NODE_FILE_VARIABLE) or None
    if path is None and NODE_VARIABLE not in os.environ:
        parser.error(f"no node file: give --file PATH or set {NODE_FILE_VARIABLE}")
    # Ctrl-C reaches the driver, which stops the nodes itself
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        node = _read_file(path)
        output = _Output(node.name)
        logging.basicConfig(level=logging.INFO, handlers=[_LogHandler(output)])
        if node.power_cut is not None:
            _lose_power(node, node.power_cut)
        entry = load_entry(node.entry, node.name)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"the host keeps the node from starting: {error}\n")
        return EXIT_HOST
    clock = FaultyClock(RealClock(), node.condition.clock)
    with asyncio.Runner(loop_factory=lambda: DriftingLoop(clock)) as runner:
        runner.run(_run(node, entry, output, clock))
    return 0


if __name__ == "__main__":
    sys.exit(main())
