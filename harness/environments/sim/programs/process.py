"""The process of a simulated program: arguments, streams, files, signals, exit.

The process ends with an exit code, by `SystemExit` in any callback, or by a signal that it does not
handle. A graceful stop sends it SIGTERM, or the node's `stop_signal`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from harness.cluster import NodeSpec
from harness.environments.host.placeholders import fill_in, package_folder
from harness.environments.sim.machine import SimEnv
from harness.environments.sim.names import Names
from harness.environments.sim.programs.blocking import Interruption
from harness.environments.sim.programs.clocks import Clocks
from harness.environments.sim.programs.files import DATA, FILES, Files
from harness.environments.sim.programs.folder import FolderStore
from harness.environments.sim.programs.output import LogStream
from harness.environments.sim.programs.program_loop import ProgramLoop
from harness.nodes.program import Program, import_folders

INTERRUPTED: Final = 130
"""The exit code of a program that SIGINT ended."""
_FIRST_PID: Final = 100
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{6,}")
_PURE: Final = ("AIOHTTP", "MULTIDICT", "YARL", "FROZENLIST", "PROPCACHE", "AIOSIGNAL")
"""Libraries whose variable `..._NO_EXTENSIONS` makes them use pure Python."""


def filled(word: str, spec: NodeSpec, specs: Mapping[str, NodeSpec], names: Names) -> str:
    """Fill the placeholders in a word of a node's command, for the simulation."""
    values = {"host": names.address(spec.name), "data": DATA, "files": FILES}
    values |= {f"port:{port}": str(port) for port in spec.ports}
    for other in specs.values():
        values[f"host:{other.name}"] = other.name
        for port in other.ports:
            at = f"{other.name}:{port}"
            values |= {f"peer:{at}": at, f"address:{at}": at}
    return fill_in(word, spec, values, lambda package: str(package_folder(package)))


class Process:
    """The simulated process of a program, from a start of its node to the end."""

    def __init__(
        self, env: SimEnv, spec: NodeSpec, program: Program, specs: Mapping[str, NodeSpec]
    ) -> None:
        owner = env.owner
        machine, loop = owner.machine, owner.loop
        assert isinstance(loop, ProgramLoop)
        assert isinstance(machine.disk, FolderStore)
        self.name, self.random = env.name, env.random
        self.pid = _FIRST_PID + env.boot
        self.loop = loop
        self.program = program
        self._spec, self._owner = spec, owner

        def fill(word: str) -> str:
            return filled(word, spec, specs, loop.names)

        self.arguments = [fill(word) for word in program.arguments]
        self.declared_files = {path: fill(text) for path, text in spec.files.items()}
        base = {"HOME": DATA, "HOSTNAME": env.name, "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
        base |= {"PWD": DATA, "TZ": "UTC", "USER": "node", "PYTHONHASHSEED": "0"}
        base |= {f"{name}_NO_EXTENSIONS": "1" for name in _PURE}
        self.import_folders = import_folders(spec)
        self.environment = base | {key: fill(word) for key, word in spec.environment.items()}
        self.interruption = Interruption()
        self._ends_at_once = False
        self.at_exit: list[Callable[[], object]] = []
        self.streams: tuple[LogStream, ...] = ()
        self.clocks = Clocks(loop)
        self.files = Files(machine.disk, loop, machine.trouble, self.import_folders)
        loop.on_exit = self._exit_by
        owner.on_stop = self._stop

    # --- the end ----------------------------------------------------------------------------

    def finish(self) -> None:
        """Do what an interpreter does at exit: call exit handlers, and flush files."""
        if self._ends_at_once:
            return
        for function in reversed(self.at_exit):
            function()
        self.files.flush()
        for stream in self.streams:
            stream.finish()

    def exit(self, code: object) -> None:
        """End the node as `sys.exit(code)` does."""
        if not self.loop.alive:
            return
        if self.loop.free_at_ns > self.loop.world.now_ns:  # the last writes still take time
            self.loop.world.schedule(self.loop.free_at_ns, self.exit, code)
            return
        if code is None or isinstance(code, int):
            number = code or 0
        else:
            self.say(str(code))
            number = 1
        log = [f"the program exited with code {number}"]
        self._owner.machine.exit(number, expected=self._owner.stopping, log=log)

    def _exit_by(self, error: BaseException) -> None:
        if self.interruption.send(error):
            return
        if isinstance(error, SystemExit):
            self.finish()
            self.exit(error.code)
        elif isinstance(error, KeyboardInterrupt):
            self.exit(INTERRUPTED)

    def exit_now(self, status: int) -> NoReturn:
        """End at once like `os._exit`, without any clean-up."""
        self._ends_at_once = True
        self.exit(status)
        raise SystemExit(status)

    def _stop(self) -> None:
        self.signal(getattr(signal, self._spec.stop_signal))

    def signal(self, number: int) -> None:
        """Deliver a signal to the program.

        If the program has no handler for the signal, the signal ends it at once. SIGINT first tries
        to interrupt it, as in Python.
        """
        handler = self.loop.signal_handlers.get(number)
        if handler is not None:
            self.loop.call_soon(handler)
        elif number != signal.SIGINT or not self._interrupt():
            log = [f"ended by signal {number}"]
            self._owner.machine.exit(-number, expected=self._owner.stopping, log=log)

    def _interrupt(self) -> bool:
        """Do what Python does on SIGINT: raise in the blocking call, or cancel the main task."""
        if self.loop.main is None:
            return self.interruption.send(KeyboardInterrupt())
        return self.loop.interrupt()

    def kill(self, pid: int, number: int) -> None:
        """Act like `os.kill`. Only the program itself can be signalled."""
        if pid != self.pid:
            raise ProcessLookupError(3, "No such process")
        if number:
            self.signal(number)

    def refuse(self, what: str, instead: str) -> NoReturn:
        """End the run: the program needs a feature that the simulation does not have."""
        self.loop.refuse(what, instead)

    # --- output -----------------------------------------------------------------------------

    def say(self, line: str) -> None:
        """Write a line to the node's log, without addresses of objects."""
        if self.loop.alive:
            text = _ADDRESS.sub("0x...", line)
            self.loop.world.note(self.name, "prints", text.encode("utf-8", "backslashreplace"))
            self.loop.world.log(self.name, text)
            if self._owner.watch is not None:
                self._owner.watch(text)
