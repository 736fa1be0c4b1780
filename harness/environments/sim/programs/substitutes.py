"""Makes a program's substitutes for the standard-library modules that touch the outside world."""

from __future__ import annotations

import atexit
import builtins
import errno
import importlib
import io
import ipaddress
import os
import posix
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from harness.environments.sim.programs.asyncio_part import asyncio_module
from harness.environments.sim.programs.files import FILES, Files
from harness.environments.sim.programs.os_calls import OsCalls
from harness.environments.sim.programs.output import LogStream
from harness.environments.sim.programs.sockets import SimSocket

if TYPE_CHECKING:
    from harness.environments.sim.programs.modules import Modules
    from harness.environments.sim.programs.process import Process

_HARMLESS: Final = (
    *("fspath", "strerror", "stat_result", "terminal_size", "DirEntry", "error", "times_result"),
    *(
        "statvfs_result",
        "uname_result",
        "sched_param",
        "device_encoding",
        "umask",
        "waitstatus_to_exitcode",
    ),
    *("WIFEXITED", "WEXITSTATUS", "WIFSIGNALED", "WTERMSIG", "WCOREDUMP", "WIFSTOPPED", "WSTOPSIG"),
    *("WIFCONTINUED", "major", "minor", "makedev", "get_inheritable", "set_inheritable"),
    *("environ", "_path_normpath"),
)
_MISSING: Final = ("sendfile", "copy_file_range", "splice")
"""Functions that `os` lacks in a program, so libraries such as `shutil` read and write instead."""
_UID: Final = 1000
_INSTEAD_OF_SOCKETS: Final = "asyncio streams or transports (open_connection, start_server)"
_SOCKET_CALLS: Final = ("create_connection", "create_server", "socketpair", "fromfd")


def substitutes(process: Process) -> dict[str, Callable[[Modules], ModuleType]]:
    """Map the name of each replaced module to a function that makes the substitute."""
    return {
        "_io": lambda _: _io_module(process.files, "_io"),
        "_random": lambda _: _random_module(process),
        "asyncio": lambda _: asyncio_module(process.loop),
        "atexit": lambda _: _atexit_module(process),
        "builtins": _builtins_module,
        "datetime": lambda _: process.clocks.datetime_module(),
        "fcntl": lambda _: _fcntl_module(),
        "importlib": _importlib_module,
        "io": lambda _: _io_module(process.files, "io"),
        "posix": lambda _: _posix_module(process),
        "signal": lambda _: _signal_module(process),
        "socket": lambda _: _socket_module(process),
        "ssl": lambda _: _ssl_module(process),
        "sys": lambda modules: _sys_module(process, modules),
        "time": lambda _: process.clocks.time_module(),
        "uuid": lambda modules: _uuid_module(process, modules),
        "_uuid": lambda _: _missing("_uuid"),
        # without `_warnings`, a life has its own filters instead of the harness's
        "_warnings": lambda _: _missing("_warnings"),
    }


def _copy(real: ModuleType, **changes: Any) -> ModuleType:
    module = ModuleType(real.__name__, real.__doc__)
    module.__dict__.update(real.__dict__)
    module.__dict__.update(changes)
    return module


def _io_module(files: Files, name: str) -> ModuleType:
    module = _copy(io, open=files.open, open_code=lambda path: files.open(path, "rb"))
    module.__name__ = name

    def file_io(file: Any, mode: str = "r", *_: Any, **__: Any) -> Any:
        return files.open(file, mode.replace("b", "") + "b", 0)

    module.__dict__["FileIO"] = file_io
    return module


def _random_module(process: Process) -> ModuleType:
    """Make the substitute for `_random`, which `random` uses.

    A generator without a seed is seeded from the node's random stream.
    """
    import _random

    class Random(_random.Random):
        def seed(self, n: Any = None, /) -> None:
            super().seed(process.random.getrandbits(128) if n is None else n)

    return _copy(_random, Random=Random)


def _atexit_module(process: Process) -> ModuleType:
    def register(function: Any, *args: Any, **kwargs: Any) -> Any:
        process.at_exit.append(lambda: function(*args, **kwargs))
        return function

    return _copy(atexit, register=register, unregister=lambda _: None, _clear=lambda: None)


def _builtins_module(modules: Modules) -> ModuleType:
    module = ModuleType("builtins", builtins.__doc__)
    module.__dict__.update(modules.builtins)
    return module


def _fcntl_module() -> ModuleType:
    import fcntl

    def nothing(*_: Any) -> int:
        return 0  # no locks are needed, because only one process uses the data folder

    return _copy(fcntl, flock=nothing, lockf=nothing, fcntl=nothing, ioctl=nothing)


def _importlib_module(modules: Modules) -> ModuleType:
    def import_module(name: str, package: str | None = None) -> ModuleType:
        if name.startswith("."):
            name = importlib.util.resolve_name(name, package or "")
        return modules.load(name)

    module = _copy(importlib, import_module=import_module, __import__=modules.import_)
    module.__dict__["reload"] = lambda other: other
    return module


def _posix_module(process: Process) -> ModuleType:
    """Make the substitute for `posix`, which `os` uses.

    Its functions use the simulated disk, are harmless, or end the run.
    """
    refuse = process.refuse

    def refused(name: str) -> Callable[..., Any]:
        return lambda *_, **__: refuse(f"os.{name}", "asyncio, or files of the data folder")

    module = ModuleType("posix", posix.__doc__)
    for name, value in posix.__dict__.items():
        if name in _MISSING:
            continue
        harmless = not callable(value) or name in _HARMLESS or isinstance(value, type)
        module.__dict__[name] = value if harmless else refused(name)
    pid = process.pid
    module.__dict__.update(
        OsCalls(process.files).functions(),
        _have_functions=[],  # paths relative to a descriptor (`dir_fd`) are not supported
        environ={os.fsencode(k): os.fsencode(v) for k, v in process.environment.items()},
        putenv=lambda *_: None,
        unsetenv=lambda *_: None,
        urandom=process.random.randbytes,
        getrandom=lambda size, _=0: process.random.randbytes(size),
        getpid=lambda: pid,
        getppid=lambda: 1,
        getpgrp=lambda: pid,
        getuid=lambda: _UID,
        geteuid=lambda: _UID,
        getgid=lambda: _UID,
        getegid=lambda: _UID,
        getlogin=lambda: "node",
        cpu_count=lambda: 1,
        sched_getaffinity=lambda _: {0},
        getloadavg=lambda: (0.0, 0.0, 0.0),
        uname=lambda: posix.uname_result(("Linux", process.name, "6.0", "#1", "x86_64")),
        register_at_fork=lambda **_: None,
        kill=process.kill,
        _exit=process.exit_now,
        get_terminal_size=lambda *_: os.terminal_size((80, 24)),
    )
    return module


def _signal_module(process: Process) -> ModuleType:
    handlers = process.loop.signal_handlers

    def set_handler(number: int, handler: Any) -> Any:
        previous = handlers.pop(number, signal.SIG_DFL)
        if callable(handler):
            handlers[number] = lambda: handler(number, None)
        elif handler == signal.SIG_IGN:
            handlers[number] = lambda: None
        return previous

    def alarm(*_: Any) -> Any:
        process.refuse("signal.alarm", "loop.call_later")

    return _copy(
        signal,
        signal=set_handler,
        getsignal=lambda number: handlers.get(number, signal.SIG_DFL),
        alarm=alarm,
        setitimer=alarm,
        set_wakeup_fd=lambda *_, **__: -1,
        siginterrupt=lambda *_: None,
        raise_signal=lambda number: process.kill(process.pid, number),
    )


def _socket_module(process: Process) -> ModuleType:
    loop, names = process.loop, process.loop.names

    class Socket(SimSocket):
        def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: Any = None):
            del fileno
            super().__init__(loop, family, type, proto)

    def getaddrinfo(
        host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        del flags
        return names.look_up(host, port, process.name, family=family, kind=type, proto=proto)

    def gethostbyname(host: str) -> str:
        return getaddrinfo(host, 0)[0][4][0]  # type: ignore[no-any-return]

    def refused(name: str) -> Callable[..., Any]:
        return lambda *_, **__: process.refuse(f"socket.{name}", _INSTEAD_OF_SOCKETS)

    return _copy(
        socket,
        **{name: refused(name) for name in _SOCKET_CALLS},
        socket=Socket,
        SocketType=Socket,
        getaddrinfo=getaddrinfo,
        gethostbyname=gethostbyname,
        gethostname=lambda: process.name,
        getfqdn=lambda name="": name or process.name,
        getnameinfo=lambda address, _: (address[0], str(address[1])),
        has_dualstack_ipv6=lambda: False,
        has_ipv6=False,
    )


def _ssl_module(process: Process) -> ModuleType:
    """Make the substitute for `ssl`: a program can create contexts, but not use them."""
    import ssl

    class SSLContext:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.options = ssl.Options(0)
            self.verify_mode, self.check_hostname = ssl.CERT_NONE, False

        def __getattr__(self, name: str) -> Any:
            if name.startswith("wrap_"):
                process.refuse("TLS", "plain TCP: the simulated network needs no encryption")
            if name.startswith(("set_", "load_")):
                return lambda *_, **__: None
            raise AttributeError(name)

    def context(*_: Any, **__: Any) -> SSLContext:
        return SSLContext()

    return _copy(
        ssl,
        SSLContext=SSLContext,
        create_default_context=context,
        _create_unverified_context=context,
    )


def _uuid_module(process: Process, modules: Modules) -> ModuleType:
    module = modules.copy_of("uuid")
    address = ipaddress.IPv4Address(process.loop.names.address(process.name))
    module.__dict__["_node"] = 0x0242 << 32 | int(address)
    return module


def _missing(name: str) -> ModuleType:
    raise ModuleNotFoundError(f"the simulation has no module {name!r}", name=name)


def _sys_module(process: Process, modules: Modules) -> ModuleType:
    out, err = LogStream(process.say, "<stdout>"), LogStream(process.say, "<stderr>")
    process.streams = (out, err)
    return _copy(
        sys,
        modules=modules.loaded,
        argv=[process.program.module, *process.arguments],
        stdin=io.StringIO(),
        stdout=out,
        stderr=err,
        __stdin__=None,
        __stdout__=out,
        __stderr__=err,
        path=[*process.import_folders, *sys.path],
        warnoptions=[],
        settrace=lambda _: None,
        setprofile=lambda _: None,
        setrecursionlimit=lambda _: None,
        set_asyncgen_hooks=lambda *_, **__: None,
        addaudithook=lambda _: None,
    )


def pretended(process: Process) -> dict[str, Callable[..., Any]]:
    """Map each guarded function (see `tripwires`) to the one that shared modules get instead."""
    pretend = {f"time.{name}": each for name, each in process.clocks.functions().items()}
    for name in ("random", "randrange", "randint", "uniform", "choice", "choices", "shuffle"):
        pretend[f"random.{name}"] = getattr(process.random, name)
    for name in ("sample", "getrandbits", "randbytes", "gauss", "expovariate", "betavariate"):
        pretend[f"random.{name}"] = getattr(process.random, name)
    pretend["builtins.open"] = pretend["io.open"] = process.files.open
    pretend["random.seed"] = lambda *_, **__: None
    pretend["random._urandom"] = pretend["os.urandom"] = process.random.randbytes
    pretend["os.getrandom"] = lambda size, _=0: process.random.randbytes(size)

    def start(thread: threading.Thread) -> None:
        process.refuse(
            f"a thread ({type(thread).__name__}.start)",
            "asyncio tasks, or loop.run_in_executor and asyncio.to_thread, which run inline",
        )

    pretend["Thread.start"] = start
    return pretend


def place_files(process: Process) -> None:
    """Write the node's declared files before its program starts."""
    write = OsCalls(process.files).functions()
    for path, text in process.declared_files.items():
        where = f"{FILES}/{path}"
        parts = where.split("/")[2:-1]
        for depth in range(len(parts)):
            try:
                write["mkdir"]("/".join([FILES, *parts[: depth + 1]]))
            except OSError as error:
                if error.errno != errno.EEXIST:
                    raise
        with process.files.open(where, "w") as file:
            file.write(text)
