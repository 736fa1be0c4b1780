"""Makes the harness's own calls fail: the n-th call of a kind in this process.

Only calls that come from the harness and its plug-ins count, not calls of the interpreter. Nodes,
proxies and wardens are other processes, whose calls never fail. The kinds of calls:

| kind       | what fails                                                      | how              |
|------------|-----------------------------------------------------------------|------------------|
| write      | files written, made, moved, removed, synced; bytes sent         | ENOSPC, reset    |
| read       | files and pipes read, bytes received                            | EIO, reset       |
| descriptor | a file, pipe, pidfd or socket opened                            | EMFILE           |
| engine     | a process started or signalled; a request to Docker or the link | EAGAIN, no       |
|            | proxy, before it is carried out or after                        | connection       |
| checker    | a checker called                                                | one of several   |
"""

import builtins
import errno
import functools
import io
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

KINDS: Final = ("write", "read", "descriptor", "engine", "checker")
OURS: Final = {"harness", "results", "checkers", "targets", "workloads", "nemesis", "docker",
               "http_register", "toy_register"}  # fmt: skip
PASSED_THROUGH: Final = {"pathlib", "tempfile", "shutil", "contextlib", "functools", "os", __name__}
FRAMES_MAX: Final = 30
CHECKER_FAILURES: Final = (RuntimeError, MemoryError, SystemExit, None)


class Injector:
    """A counter of calls that fails the `nth` call of a kind, and all later ones if `lasting`."""

    def __init__(self, kind: str | None = None, nth: int = 0, *, lasting: bool = False) -> None:
        self.counts = dict.fromkeys(KINDS, 0)
        self.failed = 0
        self.where = ""
        self._kind, self._nth, self._lasting = kind, nth, lasting
        self._lock = threading.Lock()

    def hit(self, kind: str, what: str) -> bool:
        """Count one call; return whether it must fail."""
        with self._lock:
            self.counts[kind] += 1
            count = self.counts[kind]
            fails = kind == self._kind and (
                count >= self._nth if self._lasting else count == self._nth
            )
            if fails:
                self.failed += 1
                self.where = self.where or what
            return fails

    def install(self) -> None:
        """Install the failures permanently; use this only in a separate process."""
        self._files()
        self._sockets()
        self._processes()
        self._engines()
        self._checkers()

    # --- files -------------------------------------------------------------------------------

    def _files(self) -> None:
        for name in ("write", "replace", "rename", "mkdir", "unlink", "symlink", "fsync"):
            self._patch_os(name, "write", errno.ENOSPC)
        self._patch_os("read", "read", errno.EIO)
        for name in ("open", "pidfd_open", "pipe"):
            self._patch_os(name, "descriptor", errno.EMFILE)
        real = io.open

        @functools.wraps(real)
        def opened(file: Any, *arguments: Any, **named: Any) -> Any:
            if isinstance(file, int) or not is_ours():
                return real(file, *arguments, **named)
            if self.hit("descriptor", f"open {file}"):
                raise OSError(errno.EMFILE, "injected: too many open files", str(file))
            return _File(real(file, *arguments, **named), self, str(file))

        io.open = builtins.open = opened  # type: ignore[assignment]

    def _patch_os(self, name: str, kind: str, number: int) -> None:
        real = getattr(os, name)

        @functools.wraps(real)
        def call(*arguments: Any, **named: Any) -> Any:
            if is_ours() and self.hit(kind, f"os.{name}"):
                raise OSError(number, f"injected: {os.strerror(number)}")
            return real(*arguments, **named)

        setattr(os, name, call)

    # --- sockets -----------------------------------------------------------------------------

    def _sockets(self) -> None:
        real_init = socket.socket.__init__

        def made(this: socket.socket, *arguments: Any, **named: Any) -> None:
            fresh = len(arguments) < 4 and named.get("fileno") is None
            if fresh and self.hit("descriptor", "socket"):
                raise OSError(errno.EMFILE, "injected: too many open files")
            real_init(this, *arguments, **named)

        socket.socket.__init__ = made  # type: ignore[method-assign]
        for name, kind in (("send", "write"), ("sendall", "write"), ("recv", "read"),
                           ("recv_into", "read")):  # fmt: skip
            self._patch_socket(name, kind)

    def _patch_socket(self, name: str, kind: str) -> None:
        real = getattr(socket.socket, name)

        def call(this: socket.socket, *arguments: Any) -> Any:
            if not _is_own_pipe(this) and self.hit(kind, f"socket.{name}"):
                raise ConnectionResetError(errno.ECONNRESET, "injected: connection reset")
            return real(this, *arguments)

        setattr(socket.socket, name, call)

    # --- processes and engines -----------------------------------------------------------------

    def _processes(self) -> None:
        real_init = subprocess.Popen.__init__

        def started(this: Any, arguments: Any, *rest: Any, **named: Any) -> None:
            if self.hit("engine", f"start {str(arguments)[:60]}"):
                raise BlockingIOError(errno.EAGAIN, "injected: no more processes")
            real_init(this, arguments, *rest, **named)
            if this.stdin is not None:
                this.stdin = _File(this.stdin, self, "pipe")

        subprocess.Popen.__init__ = started  # type: ignore[method-assign]
        self._patch_os("killpg", "engine", errno.EPERM)

    def _engines(self) -> None:
        from harness.environments.toxiproxy.client import ToxiproxyClient

        exchange = ToxiproxyClient._exchange

        async def exchanged(this: Any, method: str, url: str, content: bytes) -> Any:
            fails = self.hit("engine", f"{method} of the link proxy")
            if fails and self.counts["engine"] % 2:
                raise ConnectionResetError("injected: before the request")
            answer = await exchange(this, method, url, content)
            if fails:
                raise ConnectionResetError("injected: after the request")
            return answer

        ToxiproxyClient._exchange = exchanged  # type: ignore[method-assign]
        try:
            import requests
        except ImportError:
            return
        send = requests.Session.send

        def sent(this: Any, request: Any, **named: Any) -> Any:
            fails = self.hit("engine", f"{request.method} {request.path_url[:60]}")
            if fails and self.counts["engine"] % 2:
                raise requests.ConnectionError("injected: before the request")
            answer = send(this, request, **named)
            if fails:
                answer.close()
                raise requests.ConnectionError("injected: after the request")
            return answer

        requests.Session.send = sent  # type: ignore[method-assign]

    def _checkers(self) -> None:
        from harness.verdict import judge as checking

        result_of_check = checking.result_of_check

        def judged(name: str, check: Callable[[], Any], **options: Any) -> Any:
            if self.hit("checker", name):
                failure = CHECKER_FAILURES[self.counts["checker"] % len(CHECKER_FAILURES)]
                return result_of_check(name, functools.partial(_fail, failure), **options)
            return result_of_check(name, check, **options)

        checking.result_of_check = judged


def is_ours() -> bool:
    """Whether the harness or a plug-in made the call, directly or through pathlib."""
    frame = sys._getframe(2)
    for _ in range(FRAMES_MAX):
        if frame is None:
            return False
        module = str(frame.f_globals.get("__name__"))
        if module not in PASSED_THROUGH:
            return module.partition(".")[0] in OURS
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _is_own_pipe(sock: socket.socket) -> bool:
    """Whether a socket is one of the pair with which an event loop wakes itself."""
    if sock.family != socket.AF_UNIX:
        return False
    try:
        return sock.getpeername() in {"", b""} and sock.getsockname() in {"", b""}
    except OSError:
        return False


def _fail(failure: type[BaseException] | None) -> None:
    if failure is not None:
        raise failure("injected" if failure is not SystemExit else 0)


class _File:
    """A proxy of an open file that counts reads and writes."""

    def __init__(self, file: Any, injector: Injector, name: str) -> None:
        self._file, self._injector, self._name = file, injector, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        self._file.__enter__()
        return self

    def __exit__(self, *arguments: object) -> Any:
        return self._file.__exit__(*arguments)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def read(self, *arguments: Any) -> Any:
        self._check("read", errno.EIO)
        return self._file.read(*arguments)

    def readinto(self, *arguments: Any) -> Any:
        self._check("read", errno.EIO)
        return self._file.readinto(*arguments)

    def write(self, data: Any) -> Any:
        self._check("write", errno.ENOSPC)
        return self._file.write(data)

    def _check(self, kind: str, number: int) -> None:
        if self._injector.hit(kind, f"{kind} {self._name[-60:]}"):
            raise OSError(number, f"injected: {os.strerror(number)}", self._name)
