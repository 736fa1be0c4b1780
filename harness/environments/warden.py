"""The warden: a detached process that guards one run, and undoes its faults if the driver cannot.

`python -m harness.environments.warden` reads JSON lines (`Message`) from its standard input. The
driver sends *keys*, each with one undo action: kill or continue a process, run a command, remove a
folder, send an HTTP request. The warden performs the action at the key's deadline. When the driver
dies, for any reason, the warden's input ends. Then the warden performs all remaining undo actions,
the last one first, kills every remaining process of the run, and exits. It runs in its own session
and ignores terminal signals, so Ctrl-C and a closed window do not affect it. The driver needs no
answers, since the warden reads all data in the pipe even after the driver has died.

The driver must send a key before it injects a fault, and undo the fault before it releases the key.
Undo actions are idempotent, so driver and warden may undo the same fault.

Every process of a run has `HARNESS_RUN_ID` and `HARNESS_CONTROLLER` in its environment. By these
variables, `leftovers` finds the processes of a run even if both its driver and its warden were
killed.
"""

from __future__ import annotations

import contextlib
import heapq
import http.client
import itertools
import os
import select
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from harness.environments import procfs
from harness.environments.controller import Controller, Life, life, this_controller
from harness.environments.procfs import ProcessId, remove_shared_memory
from harness.environments.scratch import remove_signed
from harness.errors import InfrastructureError

UNKNOWN_ROLE: Final = "?"
RUN_VARIABLE: Final = "HARNESS_RUN_ID"
CONTROLLER_VARIABLE: Final = "HARNESS_CONTROLLER"
ROLE_VARIABLE: Final = "HARNESS_PROCESS"
"""The variable with a process's role: `node:NAME`, `disk:NAME`, `link-proxy` or `warden`."""

_RUN_TIMEOUT_S: Final = 60.0
_HTTP_TIMEOUT_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 90.0
_AGAIN_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""How long the warden waits before it repeats undo actions that failed at the end of the run."""
_READ_BYTES: Final = 65536
AFTER_LEASE_S: Final = 1.0
"""The time from a lease's end to the warden's deadline, so that the driver acts first."""


class Kill(msgspec.Struct, frozen=True, tag_field="kind", tag="kill"):
    """Undo action: kill exactly this process, and remove its System V shared memory."""

    pid: int
    start_ticks: int


class Continue(msgspec.Struct, frozen=True, tag_field="kind", tag="cont"):
    """Undo action: continue this process, and with `group` its process group and descendants."""

    pid: int
    start_ticks: int
    group: bool = False


class Run(msgspec.Struct, frozen=True, tag_field="kind", tag="run"):
    """Undo action: run a command, with a timeout of a minute."""

    argv: list[str]


class RemoveFolder(msgspec.Struct, frozen=True, tag_field="kind", tag="remove"):
    """Undo action: remove `files` and a signed folder (`harness.environments.scratch`)."""

    folder: str
    files: list[str] = []


class HttpRequest(msgspec.Struct, frozen=True, tag_field="kind", tag="http"):
    """Undo action: send a request. Status 404 is a success, since the object is gone."""

    method: str
    url: str
    body: str = ""
    token: str = ""

    def __repr__(self) -> str:
        """Return the request as text for logs, without the token."""
        return f"HttpRequest({self.method!r}, {self.url!r}, {self.body!r})"


Undo = Kill | Continue | Run | RemoveFolder | HttpRequest


class Guard(msgspec.Struct, frozen=True, tag_field="op", tag="guard"):
    """A message to the warden: perform `undo` after `deadline_s` or when the driver dies."""

    key: str
    undo: Undo
    deadline_s: float | None = None


class Release(msgspec.Struct, frozen=True, tag_field="op", tag="release"):
    """A message to the warden: forget the key, because nothing is left to undo for it."""

    key: str


Message = Guard | Release


# --- the process -----------------------------------------------------------------------------


def _request(undo: HttpRequest) -> None:
    url = urllib.parse.urlsplit(undo.url)
    connection = http.client.HTTPConnection(url.netloc, timeout=_HTTP_TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {undo.token}"} if undo.token else {}
        connection.request(undo.method, url.path or "/", undo.body or None, headers)
        response = connection.getresponse()
        response.read()
        if response.status >= 400 and response.status != 404:
            raise InfrastructureError(f"{undo.method} {undo.url} answered {response.status}")
    finally:
        connection.close()


def _perform(undo: Undo) -> None:
    match undo:
        case Kill(pid, start_ticks):
            process = ProcessId(pid, start_ticks)
            if procfs.send(process, signal.SIGKILL):
                remove_shared_memory(process)
        case Continue(pid, start_ticks, group):
            if procfs.send(ProcessId(pid, start_ticks), signal.SIGCONT) and group:
                # The group may be gone by now, but SIGCONT is harmless for other processes.
                os.killpg(pid, signal.SIGCONT)
                for process in procfs.outside_group(pid):
                    procfs.send(process, signal.SIGCONT)
        case Run(argv):
            subprocess.run(
                argv,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=_RUN_TIMEOUT_S,
            )
        case RemoveFolder(folder, files):
            for path in files:
                Path(path).unlink(missing_ok=True)
            remove_signed(Path(folder))
        case HttpRequest():
            _request(undo)


class _Book:
    """The keys in the order of their arrival, each with its undo action and deadline."""

    def __init__(self) -> None:
        self._undos: dict[str, tuple[int, Undo]] = {}
        self._deadlines: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()

    def handle(self, message: Message, now_s: float) -> None:
        """Apply a message from the driver. A key that is sent again replaces its undo action."""
        if isinstance(message, Release):
            self._undos.pop(message.key, None)
            return
        number = next(self._numbers)
        self._undos.pop(message.key, None)
        self._undos[message.key] = (number, message.undo)
        if message.deadline_s is not None:
            heapq.heappush(self._deadlines, (now_s + message.deadline_s, number, message.key))

    def next_deadline_s(self) -> float | None:
        return self._deadlines[0][0] if self._deadlines else None

    def expired(self, now_s: float) -> Iterator[tuple[str, Undo]]:
        """Remove and yield the keys that have reached their deadlines."""
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, number, key = heapq.heappop(self._deadlines)
            held = self._undos.get(key)
            if held is not None and held[0] == number:
                del self._undos[key]
                yield key, held[1]

    def remaining(self) -> Iterator[tuple[str, Undo]]:
        """Remove and yield all keys, the last one first."""
        while self._undos:
            key, (_, undo) = self._undos.popitem()
            yield key, undo


def _undo(key: str, undo: Undo) -> bool:
    """Perform an undo action and report the result; a failure raises no error.

    Returns `False` if a command or a removal failed, since a second attempt may succeed.
    """
    try:
        _perform(undo)
    except Exception as error:  # noqa: BLE001 - reported; the rest still has to be undone
        _report(f"could not undo {key}: {error!r}")
        return not isinstance(undo, (Run, RemoveFolder))
    _report(f"undid {key}: {undo}")
    return True


def _report(text: str) -> None:
    try:
        os.write(sys.stderr.fileno(), f"{time.strftime('%H:%M:%S')} warden: {text}\n".encode())
    except OSError:
        return  # the log cannot be written, but undoing faults must continue


def serve(descriptor: int) -> None:
    """Handle messages and deadlines until the input ends. Then undo all keys that are left."""
    book = _Book()
    decoder = msgspec.json.Decoder(Message)
    pending = b""
    while True:
        deadline_s = book.next_deadline_s()
        wait_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        readable, _, _ = select.select([descriptor], [], [], wait_s)
        if readable:
            data = os.read(descriptor, _READ_BYTES)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                try:
                    book.handle(decoder.decode(line), time.monotonic())
                except msgspec.DecodeError as error:
                    _report(f"ignored the line {line[:200]!r}: {error}")
        for key, undo in book.expired(time.monotonic()):
            _undo(key, undo)
    left = [(key, undo) for key, undo in book.remaining() if not _undo(key, undo)]
    _sweep(os.environ.get(RUN_VARIABLE), os.environ.get(CONTROLLER_VARIABLE))
    # While children of a killed server write into a folder, its removal fails. Repeat it, because
    # `harness clean` may not recognize such a folder.
    for wait_s in _AGAIN_S:
        if not left:
            break
        time.sleep(wait_s)
        left = [(key, undo) for key, undo in left if not _undo(key, undo)]


def _sweep(run_id: str | None, controller: str | None) -> None:
    """Kill processes of the run that no key names, such as children of foreign programs.

    A process must have both the run id and the controller, since two drivers may use the same run
    id.
    """
    if not run_id or not controller:
        return
    for process, run, owner, role in _marked():
        if (run, owner) == (run_id, controller) and role not in {"warden", UNKNOWN_ROLE}:
            _undo(role, Kill(*process))


def main() -> int:
    """Run the warden process until its input ends; returns the exit code 0."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    serve(sys.stdin.fileno())
    return 0


# --- the driver's side -----------------------------------------------------------------------


def run_environment(run_id: str, role: str) -> dict[str, str]:
    """Return the environment variables by which `leftovers` finds a process of a run."""
    controller = str(this_controller())
    return {RUN_VARIABLE: run_id, CONTROLLER_VARIABLE: controller, ROLE_VARIABLE: role}


class Warden:
    """The driver's connection to its run's warden."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: IO[bytes]) -> None:
        self._process = process
        self._pipe = pipe
        self._encoder = msgspec.json.Encoder()

    @staticmethod
    def start(run_id: str, *, log: Path | None = None) -> Warden:
        """Start the warden of `run_id`. It logs its undo actions to the file `log`."""
        environment = os.environ | run_environment(run_id, "warden")
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        with open(log if log is not None else os.devnull, "ab") as errors:  # noqa: PTH123
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "harness.environments.warden"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        assert process.stdin is not None
        return Warden(process, process.stdin)

    @property
    def pid(self) -> int:
        return self._process.pid

    def guard(self, key: str, undo: Undo, *, deadline_s: float | None = None) -> None:
        """Tell the warden to perform `undo` at the deadline, or if the driver dies.

        Raises `InfrastructureError` if the warden is gone.
        """
        self._send(Guard(key=key, undo=undo, deadline_s=deadline_s))

    def release(self, key: str) -> None:
        """Tell the warden to forget `key`; raises `InfrastructureError` if the warden is gone."""
        self._send(Release(key=key))

    def _send(self, message: Message) -> None:
        try:
            self._pipe.write(self._encoder.encode(message) + b"\n")
            self._pipe.flush()
        except (OSError, ValueError) as error:
            raise InfrastructureError(
                f"the warden (pid {self.pid}) of this run is gone: {error}; no more faults are "
                "injected, since no process would undo them if the harness died"
            ) from error

    def close(self) -> None:
        """Make the warden perform all remaining undo actions, and wait until it has exited.

        Raises `InfrastructureError` if the warden fails or takes too long.
        """
        with contextlib.suppress(BrokenPipeError):  # if the warden is dead, its exit code says so
            self._pipe.close()
        try:
            code = self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise InfrastructureError(
                f"the warden (pid {self.pid}) did not finish within {_CLOSE_TIMEOUT_S:.0f} s; "
                "run `harness clean` once the warden has finished"
            ) from error
        if code != 0:
            raise InfrastructureError(
                f"the warden (pid {self.pid}) ended with code {code}; run `harness clean`"
            )


def leftovers() -> Iterator[tuple[ProcessId, str, str]]:
    """Yield (process, run id, role) for the processes of runs whose driver is dead."""
    here = this_controller()
    for process, run_id, controller, role in _marked():
        try:
            owner = Controller.parse(controller)
        except ValueError:
            continue  # another program has set the variable
        if procfs.is_alive(process) and life(owner, here, same_machine=True) is Life.DEAD:
            yield process, run_id, role


def _marked() -> Iterator[tuple[ProcessId, str, str, str]]:
    """Yield (process, run id, controller, role) for each process that belongs to a run."""
    for process in procfs.all_processes():
        environment = procfs.environment_of(process.pid)
        run_id, controller = environment.get(RUN_VARIABLE), environment.get(CONTROLLER_VARIABLE)
        if run_id and controller:
            yield process, run_id, controller, environment.get(ROLE_VARIABLE, UNKNOWN_ROLE)


if __name__ == "__main__":
    sys.exit(main())
