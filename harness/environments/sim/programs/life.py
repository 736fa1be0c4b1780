"""One life of a program: its modules, its files, its clocks, and its `main`.

A life ends as a process does. It exits when `main` returns or raises, or by `SystemExit` in any
callback; a graceful stop sends it SIGTERM (or the node's `stop_signal`), which ends it at once
unless the program handles the signal. A kill leaves nothing that could act.
"""

from __future__ import annotations

import asyncio
import inspect
import operator
import re
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from harness.cluster import NodeSpec
from harness.env import NodeMain
from harness.environments.host.placeholders import fill_in, package_folder
from harness.environments.host.readiness import LineWatch
from harness.environments.sim.machine import SimEnv
from harness.environments.sim.programs.asyncio_part import end_tasks
from harness.environments.sim.programs.blocking import Interruption, run_blocking
from harness.environments.sim.programs.clocks import Clocks
from harness.environments.sim.programs.files import DATA, FILES, Files
from harness.environments.sim.programs.folder import FolderStore
from harness.environments.sim.programs.modules import Modules
from harness.environments.sim.programs.output import LogStream
from harness.environments.sim.programs.program_loop import ProgramLoop
from harness.environments.sim.programs.stand_ins import FIRST_PID, place_files, pretended, stand_ins
from harness.nodes.program import Program, program_of

if TYPE_CHECKING:
    from harness.environments.sim.names import Names

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{6,}")
_PURE: Final = ("AIOHTTP", "MULTIDICT", "YARL", "FROZENLIST", "PROPCACHE", "AIOSIGNAL")
"""Libraries that take their pure Python parts if a variable says so."""
_INTERRUPTED: Final = 130


def program_main(spec: NodeSpec, specs: Mapping[str, NodeSpec]) -> NodeMain:
    """The entry of a node whose command is a Python program; raises `UsageError`."""
    program = program_of(spec)

    async def main(env: Any, _: dict[str, Any]) -> None:
        assert isinstance(env, SimEnv), "programs run only in the simulation"
        await Life(env, spec, program, specs).run()

    return main


def filled(word: str, spec: NodeSpec, specs: Mapping[str, NodeSpec], names: Names) -> str:
    """A word of a node's command with its placeholders filled for the simulation."""
    values = {"host": names.address(spec.name), "data": DATA, "files": FILES}
    values |= {f"port:{port}": str(port) for port in spec.ports}
    for other in specs.values():
        values[f"host:{other.name}"] = other.name
        for port in other.ports:
            at = f"{other.name}:{port}"
            values |= {f"peer:{at}": at, f"address:{at}": at}
    return fill_in(word, spec, values, lambda package: str(package_folder(package)))


class Life:
    """One life of a program on a simulated machine."""

    def __init__(
        self, env: SimEnv, spec: NodeSpec, program: Program, specs: Mapping[str, NodeSpec]
    ) -> None:
        owner = env.owner
        machine, loop = owner.machine, owner.loop
        assert isinstance(loop, ProgramLoop)
        assert isinstance(machine.disk, FolderStore)
        self.name, self.boot, self.random = env.name, env.boot, env.random
        self.loop = loop
        self.program = program
        self._spec, self._owner = spec, owner

        def fill(word: str) -> str:
            return filled(word, spec, specs, loop.names)

        self.arguments = [fill(word) for word in program.arguments]
        base = {"HOME": DATA, "HOSTNAME": env.name, "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
        base |= {"PWD": DATA, "TZ": "UTC", "USER": "node", "PYTHONHASHSEED": "0"}
        base |= {f"{name}_NO_EXTENSIONS": "1" for name in _PURE}
        self.environment = base | {key: fill(word) for key, word in spec.environment.items()}
        self._interruption = Interruption()
        self._interrupted = False
        self._main: asyncio.Task[Any] | None = None
        self.at_exit: list[Callable[[], object]] = []
        self.streams: tuple[LogStream, ...] = ()
        self.clocks = Clocks(loop, machine.clock)
        self.files = Files(machine.disk, loop, machine.trouble)
        replaced: dict[str, Any] = {
            "open": self.files.open,
            "print": self._print,
            "input": self._input,
        }
        replaced |= {"breakpoint": lambda *_, **__: None}
        loop.prepare({})
        self.modules = Modules(stand_ins(self), replaced, self.refuse)
        loop.prepare(pretended(self))
        loop.on_exit = self._exit_by
        owner.on_stop = self._stop
        owner.watch = LineWatch(spec)
        self._declared = {path: fill(text) for path, text in spec.files.items()}

    # --- main -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Import the program and call its callable; exit with its code."""
        self.loop.mark_system()
        code: object = 0
        try:
            place_files(self, self._declared)
            self.modules.load("sys")
            function = operator.attrgetter(self.program.function)(
                self.modules.load(self.program.module)
            )
            if inspect.iscoroutinefunction(function):
                code = await self._run_coroutine(function())
            else:
                code = await run_blocking(lambda: self._call(function), self._interruption)
        except SystemExit as error:
            code = error.code
        except KeyboardInterrupt:
            code = _INTERRUPTED
        finally:
            if self.loop.alive:
                self._finish()
        self._exit(code)

    async def _run_coroutine(self, coroutine: Any) -> Any:
        self._main = self.loop.create_task(coroutine, name="program")
        try:
            return await self._main
        except asyncio.CancelledError:
            if self._interrupted:
                raise KeyboardInterrupt from None
            raise
        finally:
            await end_tasks(self.loop)

    def _call(self, function: Callable[[], Any]) -> Any:
        result = function()
        if inspect.iscoroutine(result):
            return self.loop.run_until_complete(result)
        return result

    def _finish(self) -> None:
        for function in reversed(self.at_exit):
            function()
        for stream in self.streams:
            stream.finish()

    # --- the end ----------------------------------------------------------------------------

    def _exit(self, code: object) -> None:
        if not self.loop.alive:
            return
        if code is None or isinstance(code, int):
            number = code or 0
        else:
            self.say(str(code))
            number = 1
        log = [f"the program exited with code {number}"]
        self._owner.machine.exit(number, expected=self._owner.stopping, log=log)

    def _exit_by(self, error: BaseException) -> None:
        if self._interruption.send(error):
            return
        if isinstance(error, SystemExit):
            self._finish()
            self._exit(error.code)
        elif isinstance(error, KeyboardInterrupt):
            self._exit(_INTERRUPTED)

    def exit_now(self, status: int) -> NoReturn:
        """`os._exit`: end at once, without any clean-up."""
        self._exit(status)
        raise SystemExit(status)

    def _stop(self) -> None:
        self.signal(getattr(signal, self._spec.stop_signal))

    def signal(self, number: int) -> None:
        """Deliver a signal, whose default action ends the program at once."""
        handler = self.loop.signal_handlers.get(number)
        if handler is not None:
            self.loop.call_soon(handler)
        elif number == signal.SIGINT and self._interrupt():
            return
        else:
            self._owner.machine.exit(
                -number, expected=self._owner.stopping, log=[f"ended by signal {number}"]
            )

    def _interrupt(self) -> bool:
        """Do what Python does on SIGINT: interrupt the call that blocks, or the main task."""
        if self._main is None:
            return self._interruption.send(KeyboardInterrupt())
        self._interrupted = True
        return self._main.cancel()

    def kill(self, pid: int, number: int) -> None:
        """`os.kill`, which reaches only the program itself."""
        if pid != FIRST_PID + self.boot:
            raise ProcessLookupError(3, "No such process")
        if number:
            self.signal(number)

    def refuse(self, what: str, instead: str) -> NoReturn:
        """End the run, since the program needs something that the simulation does not have."""
        self.loop.refuse(what, instead)

    # --- output -----------------------------------------------------------------------------

    def say(self, line: str) -> None:
        """Write a line to the node's log, without the addresses of objects."""
        if self.loop.alive:
            text = _ADDRESS.sub("0x...", line)
            self.loop.world.note(self.name, "prints", text.encode("utf-8", "backslashreplace"))
            self.loop.world.log(self.name, text)
            if self._owner.watch is not None:
                self._owner.watch(text)

    def _print(self, *values: Any, file: Any = None, **options: Any) -> None:
        where = self.modules.loaded["sys"].stdout if file is None else file
        print(*values, file=where, **options)

    def _input(self, *_: Any) -> NoReturn:
        raise EOFError("a simulated program has no standard input")
