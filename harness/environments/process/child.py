"""A child process whose output and exit arrive as events on the loop.

A pidfd becomes readable when its process ends (pidfd_open(2)), so no thread has to wait for the
exit. Each child gets its own session, so Ctrl-C reaches only the driver. A signal to a program
reaches all processes that the program starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pwd
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from harness.environments import procfs
from harness.environments.process.calling import CallingAddress
from harness.environments.procfs import ProcessId, remove_shared_memory
from harness.environments.warden import Kill, Warden
from harness.errors import InfrastructureError, UsageError
from harness.exact import whole_number

_READ_BYTES: Final = 65536
_PIPE_BYTES: Final = 1024 * 1024
_DRAIN_READS_MAX: Final = 1024
_STATE_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.002
_KILL_TIMEOUT_S: Final = 10.0
_FOR_ALL: Final = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)


class Account(NamedTuple):
    """A user account of this machine, for programs that refuse to run as root (PostgreSQL)."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    environment: dict[str, str]

    def own(self, folder: Path) -> None:
        os.chown(folder, self.uid, self.gid)


def account_of(user: str | None) -> Account | None:
    """Return the account of `user`; `None` if `user` is `None` or the harness is not root.

    Raises `UsageError` if this machine has no such user.
    """
    if user is None or os.geteuid() != 0:
        return None
    name, _, group = user.partition(":")
    try:
        number, gid = whole_number(name), whole_number(group)
        entry = pwd.getpwnam(name) if number is None else pwd.getpwuid(number)
        if group and gid is None:
            raise UsageError(
                f"the user {user!r} has a group name; for processes, write the group's number or "
                "omit the group"
            )
    except KeyError:
        raise UsageError(
            f"this machine has no user {name!r}, as which a node must run; create the user "
            f"(useradd --system {name}), or use --env docker"
        ) from None
    gid = entry.pw_gid if gid is None else gid
    groups = tuple(os.getgrouplist(entry.pw_name, gid))
    variables = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    return Account(entry.pw_uid, gid, groups, variables)


class Child:
    """A child process of the driver, with callbacks for its output and exit."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        listens: bool = False,
        on_output: Callable[[bytes], None],
        on_exit: Callable[[int], None],
        on_lost: Callable[[OSError], None],
        account: Account | None = None,
        calling: CallingAddress | None = None,
    ) -> None:
        """Start the process. Without `listens`, its standard input is empty, and `say` fails."""

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,
                user=None if account is None else account.uid,
                group=None if account is None else account.gid,
                extra_groups=None if account is None else account.groups,
            )

        try:
            self._popen = start() if calling is None else calling.started(start)
        except OSError as error:
            raise InfrastructureError(f"cannot start {argv[0]!r}: {error}") from error
        identity = procfs.identify(self._popen.pid)
        assert identity is not None, "a child that is not waited for stays visible"
        self.identity: ProcessId = identity
        self.exited = asyncio.Event()
        self._killed: list[ProcessId] = []
        self._on_output = on_output
        self._on_exit = on_exit
        self._on_lost = on_lost  # called if the child's output cannot be read
        self._loop = asyncio.get_running_loop()
        assert self._popen.stdout is not None
        self._output = self._popen.stdout.fileno()
        os.set_blocking(self._output, False)
        if self._popen.stdin is not None:
            os.set_blocking(self._popen.stdin.fileno(), False)
        # A larger pipe lets the child continue while the driver is busy. The system may refuse a
        # larger pipe to this user.
        with contextlib.suppress(PermissionError):
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._pidfd = os.pidfd_open(self._popen.pid)
        self._loop.add_reader(self._output, self._readable)
        self._loop.add_reader(self._pidfd, self._ended)

    @property
    def pid(self) -> int:
        """The pid of the child. It is also the id of the child's process group."""
        return self._popen.pid

    def _readable(self) -> bool:
        """Read available output of the child; false if there is none now."""
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            self._loop.remove_reader(self._output)
            self._on_lost(error)
            return False
        if not data:
            self._loop.remove_reader(self._output)
            return False
        self._on_output(data)
        return True

    def _ended(self) -> None:
        code = self._popen.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        # The other processes of the child's group are orphans now.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        remove_shared_memory(self.identity)
        for _ in range(_DRAIN_READS_MAX):
            if not self._readable():
                break
        self._loop.remove_reader(self._output)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        self.exited.set()
        self._on_exit(code)

    def say(self, line: bytes) -> None:
        """Write a line to the child's standard input, atomically and without waiting.

        Raises `InfrastructureError` if the pipe is full, or if the line is too long for an atomic
        write (pipe(7)). If the child has ended, the line is dropped, since `on_exit` reports the
        end.
        """
        if len(line) > select.PIPE_BUF:
            raise InfrastructureError(
                f"cannot write a line of {len(line)} bytes to process {self.pid}; "
                f"the limit is {select.PIPE_BUF}"
            )
        assert self._popen.stdin is not None
        if self.exited.is_set():
            return
        try:
            os.write(self._popen.stdin.fileno(), line)
        except BlockingIOError as error:
            raise InfrastructureError(
                f"process {self.pid} does not read its standard input, so the pipe is full"
            ) from error
        except BrokenPipeError:
            return

    def signal(self, number: signal.Signals) -> bool:
        """Signal the child's process group; false if the child has ended.

        Signals in `_FOR_ALL` also reach descendants in other process groups.
        """
        if self.exited.is_set():
            return False
        # Some programs, such as PostgreSQL, put their children into other process groups.
        # PostgreSQL itself passes on SIGTERM, but it cannot pass on SIGKILL or SIGSTOP.
        others = procfs.outside_group(self._popen.pid) if number in _FOR_ALL else []
        # This is safe: no other process gets this pid before the driver has waited for the child.
        try:
            os.killpg(self._popen.pid, number)
        except ProcessLookupError:
            return False
        for process in others:
            with contextlib.suppress(PermissionError):
                procfs.send(process, number)
        if number == signal.SIGKILL:
            self._killed = others
        return True

    async def wait_exited(self, timeout_s: float) -> bool:
        """Wait until the child has ended; false after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.exited.wait()
                # Also wait for killed descendants in other process groups.
                while any(map(procfs.is_alive, self._killed)):  # noqa: ASYNC110 - a poll
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            return False
        return True

    async def wait_stopped(self, *, stopped: bool) -> None:
        """Wait until the child and all descendants are stopped or, without `stopped`, until all
        run.

        Raises `InfrastructureError` after a timeout, or if the child ends.
        """
        try:
            async with asyncio.timeout(_STATE_TIMEOUT_S):
                while True:
                    state = procfs.state(self.identity)
                    if state in {None, "Z", "X"}:
                        raise InfrastructureError(f"process {self.pid} ended in the meantime")
                    pid = self.pid
                    if procfs.all_stopped(pid) if stopped else not procfs.any_stopped(pid):
                        return
                    if stopped:  # also stops descendants that were created since the last signal
                        self.signal(signal.SIGSTOP)
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            wanted = "stop" if stopped else "continue"
            raise InfrastructureError(
                f"process {self.pid} did not {wanted} within {_STATE_TIMEOUT_S:.0f} s"
            ) from error


async def run_once(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    account: Account | None,
    calling: CallingAddress | None = None,
    warden: Warden,
    key: str,
    timeout_s: float,
    on_output: Callable[[bytes], None] = lambda _: None,
    on_start: Callable[[ProcessId], None] = lambda _: None,
) -> tuple[int | None, str]:
    """Run a set-up command or a test next to a node, until the command ends.

    Returns the exit code (`None` if the command took too long and was killed) and the output. If
    the driver dies, the warden kills the command, which it knows by `key`. Raises
    `InfrastructureError` if the command cannot be started or killed.
    """
    codes: list[int] = []
    output = bytearray()

    def take(data: bytes) -> None:
        output.extend(data)
        on_output(data)

    child = Child(
        argv,
        environment=environment,
        folder=folder,
        on_output=take,
        on_exit=codes.append,
        on_lost=lambda _: None,  # then the output is incomplete
        account=account,
        calling=calling,
    )
    warden.guard(key, Kill(*child.identity))
    try:
        on_start(child.identity)
        in_time = await child.wait_exited(timeout_s)
    finally:
        child.signal(signal.SIGKILL)
        gone = await child.wait_exited(_KILL_TIMEOUT_S)
        if gone:
            warden.release(key)
    if not gone:
        raise InfrastructureError(
            f"{argv[0]!r} (pid {child.pid}) is still alive {_KILL_TIMEOUT_S:.0f} s after SIGKILL"
        )
    return codes[0] if in_time else None, output.decode("utf-8", "replace")
