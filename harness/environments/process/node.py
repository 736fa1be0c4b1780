"""A node that is a local process: implements the primitives of `host.real_node`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.cluster import NodeSpec, NodeState, Usage
from harness.environments import procfs
from harness.environments.callers import CallerBook
from harness.environments.fuse.disk import FuseDisk
from harness.environments.host import probe
from harness.environments.host.exits import ended_by
from harness.environments.host.foreignclock import ForeignClock
from harness.environments.host.logs import EventBus, NodeLog
from harness.environments.host.node import NODE_FILE_VARIABLE, NodeFile
from harness.environments.host.readiness import COMMAND_S, SETUP_S, failed_setup
from harness.environments.host.real_node import RealNode
from harness.environments.host.watch import Interference, family_stopped, interference
from harness.environments.process.addresses import LOOPBACK, Ports, Topology, fill
from harness.environments.process.calling import CallingAddress
from harness.environments.process.child import Child, account_of, run_once
from harness.environments.process.clocks import ProcessClock
from harness.environments.process.processor import PERIOD_S, SlowProcessor
from harness.environments.process.squatters import PortWatch
from harness.environments.warden import AFTER_LEASE_S, Continue, Kill, Warden, run_environment
from harness.errors import InfrastructureError, StartError
from harness.nodes.deployment import as_variant
from harness.nodes.program import import_folders, is_program, real_command

_ROOM_BYTES_MIN: Final = 1024 * 1024
"""With less free disk space, a failure of a node is the host's fault."""
_NO_PROGRAM: Final = frozenset({errno.EACCES, errno.ENOENT, errno.ENOEXEC, errno.ENOTDIR})
"""The errors (errno) of a failed start that are the fault of the command, not of this machine."""
_STOP_TIMEOUT_S: Final = 10.0
_KILL_TIMEOUT_S: Final = 10.0

_log = logging.getLogger(__name__)


def _held_bytes(folder: Path) -> int | None:
    """Return the total size of all files in a folder, or `None` if it cannot be read."""
    held = 0
    try:
        for path in folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                held += status.st_size if stat.S_ISREG(status.st_mode) else 0
    except OSError:
        return None
    return held


def python_path() -> str:
    """Return the `PYTHONPATH` with which a child can import everything that the driver can."""
    return os.pathsep.join(dict.fromkeys(path for path in sys.path if path))


class ProcessNode(RealNode):
    """One node, run as a process."""

    def __init__(
        self,
        spec: NodeSpec,
        *,
        run_id: str,
        seed: int,
        folder: Path,
        log: NodeLog,
        bus: EventBus,
        warden: Warden,
        ports: Ports,
        topology: Topology,
        callers: CallerBook,
        faked_clock: bool = False,
    ) -> None:
        """`faked_clock` means that the node is a foreign program and starts with libfaketime."""
        super().__init__(spec, log, bus, warden)
        self._run_id = run_id
        self._seed = seed
        self._file = folder / f"{spec.name}.json"
        self._data = folder / spec.name
        self._files = folder / f"{spec.name}~files"  # no node has a tilde in its name
        self._account = account_of(spec.user)
        self._ports = ports
        self._listen, self._connect = topology.listen_map(spec), topology.connect_map(spec.name)
        real_ports = [port for _, port in self._listen.values()]
        self._port_watch = PortWatch(real_ports, run_id=run_id, role=f"node:{spec.name}")
        self._pages = topology.pages
        self._addresses = topology.addresses
        self._callers = callers
        host = topology.hosts.get(spec.name)
        self._calling = None if host is None else CallingAddress(host, topology.detours(spec.name))
        self._kill_key, self._slow_key = f"node/{spec.name}", f"slow/{spec.name}"
        self._child: Child | None = None
        self._expected = False
        self._oom_kills: int | None = None
        self._processor = SlowProcessor(
            asyncio.get_running_loop(),
            used_s=self._computed_s,
            stop=self._stop_for,
            go_on=self._go_on,
        )
        self._family: list[int] = []  # cached pids of the node's process and its descendants
        self._family_until_s = 0.0
        self._clock = self._with_clock(folder) if faked_clock else None
        self._make_data_folder()

    def _with_clock(self, scratch: Path) -> ProcessClock:
        clock = ProcessClock(
            self.spec, scratch, warden=self._warden, pid=lambda: self.pid, run=self._run_beside
        )
        self.control.foreign_clock = ForeignClock(self.spec, clock)
        return clock

    @property
    def data_folder(self) -> Path:
        return self._data

    def _make_data_folder(self) -> None:
        self._data.mkdir(parents=True)
        if self._account is not None:
            self._account.own(self._data)

    async def mount(self, on_failure: Callable[[BaseException], None]) -> None:
        """Mount a FUSE disk as the data folder; raises `InfrastructureError` if that fails."""
        self.disk = FuseDisk(self.spec.name, self._data, self._warden)
        await self.disk.mounted(run_id=self._run_id, seed=self._seed, on_failure=on_failure)
        if self._account is not None:
            self._account.own(self._data)
        await self.disk.make_durable()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def interference(self) -> Interference | None:
        """Return the interference of another program with the node's processes or ports.

        `None` while the harness changes the node's state, or while a slow-CPU fault has stopped it.
        """
        if self.turn.locked() or self._processor.stopped:
            return None
        child = self._child
        if child is None:
            self._ports.hold_again(self.spec.name)
        elif procfs.is_alive(child.identity):
            stopped = family_stopped(child.pid, wanted=self.state)
            if seen := interference(self.spec.name, wanted=self.state, stopped=stopped):
                return seen
        squatter = self._port_watch.squatter(self.pid)
        if squatter is None:
            return None
        return Interference(f"{self.spec.name}: {squatter}", impostor=True)

    def usage(self) -> Usage:
        """Return the memory use of the node's process and the size of its data folder; thread-safe.

        A FUSE disk is not measured, since disk faults would delay the measurement or make it fail.
        """
        child = self._child
        disk_bytes = _held_bytes(self._data) if self.disk is None else None
        if child is None:
            return Usage(disk_bytes=disk_bytes)
        return Usage(
            procfs.memory_bytes(child.identity), disk_bytes, procfs.written_bytes(child.identity)
        )

    # --- starting ----------------------------------------------------------------------------

    async def _prepare(self) -> None:
        for name, template in self.spec.files.items():
            path = self._files / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._filled(template), encoding="utf-8")

    async def _run_setup(self) -> None:
        for command in self.spec.setup:
            code, output = await self._run_command(command, SETUP_S, self.log.feed)
            self.log.end_incarnation()
            if code != 0:
                if (lack := _lack_of(self._data)) is not None:
                    raise InfrastructureError(f"cannot set up node {self.spec.name!r}: {lack}")
                failed_setup(self.spec, command, code, output)

    async def _run_beside(self, command: Sequence[str]) -> tuple[int | None, str]:
        return await self._run_command(command, COMMAND_S, lambda _: None)

    async def _run_command(
        self, command: Sequence[str], timeout_s: float, on_output: Callable[[bytes], None]
    ) -> tuple[int | None, str]:
        """Run a command in the node's data folder, as its user and with its environment.

        Returns the exit code (`None` after a timeout) and the output.
        """
        return await run_once(
            [self._filled(word) for word in command],
            environment=self._environment(),
            folder=self._data,
            account=self._account,
            calling=self._calling,
            warden=self._warden,
            key=f"beside/{self.spec.name}",
            timeout_s=timeout_s,
            on_output=on_output,
            on_start=lambda process: self._callers.note(self.spec.name, process, part="beside"),
        )

    async def _launch(self) -> None:
        argv, environment = self._command()
        self._expected = False
        self._oom_kills = procfs.oom_kills()
        if self.spec.entry is None:
            self._ports.let_go(self.spec.name)
        try:
            child = Child(
                argv,
                environment=environment,
                folder=self._data,
                listens=self.spec.entry is not None,
                on_output=self.log.feed,
                on_exit=self._exited,
                on_lost=lambda error: self.tell(
                    f"the output of {self.spec.name} cannot be read any more: {error}"
                ),
                account=self._account,
                calling=self._calling,
            )
        except InfrastructureError as error:
            if not self.boots and getattr(error.__cause__, "errno", None) in _NO_PROGRAM:
                raise StartError(error.what, node=self.spec.name, part="command") from error
            raise
        self._child = child
        self._warden.guard(self._kill_key, Kill(*child.identity))
        self._callers.note(self.spec.name, child.identity)
        self._begun()
        self._processor.begin()

    @property
    def _form(self) -> NodeSpec:
        return as_variant(self.spec, self.variant)

    def _filled(self, word: str) -> str:
        return fill(
            word,
            self.spec,
            data=self._data,
            files=self._files,
            listen=self._listen,
            connect=self._connect,
            addresses=self._addresses,
        )

    def _environment(self) -> dict[str, str]:
        account = {} if self._account is None else self._account.environment
        declared = {name: self._filled(value) for name, value in self._form.environment.items()}
        return (
            os.environ
            | account
            | declared
            | run_environment(self._run_id, f"node:{self.spec.name}")
        )

    def _command(self) -> tuple[list[str], dict[str, str]]:
        spec, environment = self._form, self._environment()
        if spec.entry is None:
            environment |= {} if self._clock is None else self._clock.environment(environment)
            command = spec.command
            if is_program(spec):
                command = real_command(spec, sys.executable)
                folders = (*import_folders(spec), python_path())
                environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
            return [self._filled(word) for word in command], environment
        node = NodeFile(
            name=spec.name,
            boot=self.boots,
            entry=spec.entry,
            config=spec.config,
            seed=self._seed,
            data=str(self._data),
            listen=self._listen,
            connect=self._connect,
            pages=self._pages,
            power_cut=self.power_cut,
            condition=self.control.condition,
        )
        self._file.write_bytes(msgspec.json.encode(node))
        environment |= {NODE_FILE_VARIABLE: str(self._file), "PYTHONPATH": python_path()}
        # -P: a file in the data folder cannot replace a module
        return [sys.executable, "-P", "-m", "harness.environments.host.node"], environment

    async def _ask_port(self, port: int, path: str) -> str | None:
        # the real port, not a proxy's: readiness must not depend on link faults
        real = self._ports.real(self.spec.name, port)
        return await asyncio.to_thread(probe.missing, LOOPBACK, real, path)

    # --- the end -----------------------------------------------------------------------------

    def _exited(self, code: int) -> None:
        self._processor.end()
        self._child = None
        log = self._over()
        self._release(self._kill_key)
        kills = procfs.oom_kills()
        oom_kills = None if kills is None or self._oom_kills is None else kills - self._oom_kills
        by, note = ended_by(
            code,
            expected=self._expected,
            on_env=self.spec.entry is not None,
            oom_kills=oom_kills,
        )
        lack = self._hold_ports_again()
        if by == "itself" and code > 0 and (lack := _lack_of(self._data) or lack) is not None:
            by, note = "host", f"harness: {lack}"
        log += [note] if note else []
        self._publish_exit(code, expected=self._expected, by=by, log=log)

    def _hold_ports_again(self) -> str | None:
        """Reserve the node's ports again. Returns a clause if another program has one of them."""
        try:
            taken = self._ports.hold_again(self.spec.name)
            return self._port_watch.squatter(None) or self._port_watch.unshared(taken)
        except OSError as error:
            return f"the programs that use its ports could not be determined: {error}"

    @property
    def _running(self) -> Child:
        assert self._child is not None, "a node that is up has a process"
        return self._child

    async def _end(self) -> None:
        child = self._running
        self._expected = True
        child.signal(signal.Signals[self.spec.stop_signal])
        child.signal(signal.SIGCONT)  # a stopped process would not handle the signal
        if not await child.wait_exited(_STOP_TIMEOUT_S):
            _log.warning("%s did not stop after its stop signal; killing it", self.spec.name)
            async with self.hurried():
                await self._kill()

    async def _kill(self) -> None:
        child = self._running
        self._expected = True
        child.signal(signal.SIGKILL)
        if not await child.wait_exited(_KILL_TIMEOUT_S):
            raise InfrastructureError(
                f"{self.spec.name} (pid {child.pid}) is still alive "
                f"{_KILL_TIMEOUT_S:.0f} s after SIGKILL"
            )

    # --- pause -------------------------------------------------------------------------------

    def _thaw_undo(self) -> Continue:
        return Continue(*self._running.identity, group=True)

    async def _freeze(self) -> bool:
        child = self._running
        self._processor.end()
        child.signal(signal.SIGSTOP)
        return await self._is_stopped(child, stopped=True)

    async def _thaw(self) -> None:
        child = self._running
        child.signal(signal.SIGCONT)
        if await self._is_stopped(child, stopped=False):
            self._processor.begin()

    async def _is_stopped(self, child: Child, *, stopped: bool) -> bool:
        """Wait until `child` is stopped (or runs, if not `stopped`); false if it has ended."""
        try:
            await child.wait_stopped(stopped=stopped)
        except InfrastructureError:
            if self._child is child:
                raise
        return self._child is child

    async def _send(self, line: bytes) -> None:
        if self._child is not None:
            self._child.say(line)

    # --- processors --------------------------------------------------------------------------

    async def _set_pace(self) -> None:
        self._processor.factor = self.slowed
        if self.state is NodeState.RUNNING:
            self._processor.begin()

    def _computed_s(self) -> float:
        if self._child is None:
            return 0.0
        pid, now_s = self._child.pid, asyncio.get_running_loop().time()
        if (
            self._family[:1] != [pid] or now_s >= self._family_until_s
        ):  # finding descendants is slow
            self._family = procfs.family(pid)
            self._family_until_s = now_s + PERIOD_S
        return procfs.computed_s(self._family)

    def _stop_for(self, stop_s: float) -> bool:
        child = self._child
        if child is None:
            return False
        undo = Continue(*child.identity, group=True)
        try:
            self._warden.guard(self._slow_key, undo, deadline_s=stop_s + AFTER_LEASE_S)
            return child.signal(signal.SIGSTOP)
        except (InfrastructureError, PermissionError) as error:  # the node may run as another user
            self.tell(f"{self.spec.name} is no longer slowed down: {error}")
            return False

    def _go_on(self) -> None:
        if self._child is not None:
            self._child.signal(signal.SIGCONT)
        self._release(self._slow_key)

    # --- disk --------------------------------------------------------------------------------

    async def _empty(self) -> bool:
        had_any = any(self._data.iterdir())
        if self.disk is None:
            await asyncio.to_thread(shutil.rmtree, self._data)
            self._make_data_folder()
        else:
            await self.disk.wipe()
        return had_any


def _lack_of(folder: Path) -> str | None:
    """Return a clause about a full or broken disk, or `None`. Such a disk may make a node fail."""
    try:
        status = os.statvfs(folder)
    except OSError as error:
        return f"the data folder {folder} cannot be looked at any more: {error}"
    if status.f_bavail * status.f_frsize < _ROOM_BYTES_MIN or (
        status.f_files and not status.f_favail
    ):
        return f"the disk of the data folder {folder} is full"
    return None
