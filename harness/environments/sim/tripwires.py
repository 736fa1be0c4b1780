"""Run-time tripwires: a node fails at the line that reads a real clock or randomness.

While a node's code runs, the usual functions for time, randomness and threads raise an error. The
driver (which stores histories and shows progress) and other threads may call these functions.
Tripwires miss calls from C (`datetime.now`, unseeded `random.Random()`) and names imported with
`from time import ...`, which the lint in `harness.determinism` finds.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

_CLOCKS: Final = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_DRAWS: Final = (
    *("random", "randrange", "randint", "uniform", "choice", "choices", "shuffle", "sample"),
    *("getrandbits", "randbytes", "gauss", "expovariate", "betavariate", "seed", "_urandom"),
)
_WIRES: Final[tuple[tuple[Any, tuple[str, ...], str], ...]] = (
    (time, (*_CLOCKS, *(f"{name}_ns" for name in _CLOCKS)), "env.clock"),
    (time, ("sleep",), "asyncio.sleep"),
    (random, _DRAWS, "env.random"),
    (os, ("urandom", "getrandom"), "env.random"),
    (uuid, ("uuid1", "uuid4"), "env.random"),
    (threading.Thread, ("start",), "env.spawn"),
)

_REDIRECTED: Final[tuple[tuple[Any, tuple[str, ...]], ...]] = (
    (builtins, ("open",)),
    (io, ("open",)),
)
"""Functions that are forbidden only to nodes with a version of their own (`Tripwires.pretend`)."""


class DeterminismError(BaseException):
    """A node bypassed `Env`. As a `BaseException`, it passes the node's handlers."""


class Tripwires:
    """The tripwires of one world. The world sets `armed` while a node's callback runs.

    A violation also calls `on_violation`, so that a node cannot hide it by swallowing the error.
    """

    def __init__(self, on_violation: Callable[[str], None]) -> None:
        self.armed = False
        self.pretend: Callable[[str], Callable[..., Any] | None] = _nothing
        """Returns the running node's own version of a function, for nodes that are programs."""
        self._on_violation = on_violation

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Install the tripwires for this thread inside this context."""
        outer = _running.tripwires
        _WIRES_LAID.lay()
        _running.tripwires = self
        try:
            yield
        finally:
            _running.tripwires = outer
            _WIRES_LAID.take_up()

    def violated(self, name: str, instead: str) -> None:
        """Raise `DeterminismError` if a node, rather than the harness, has called `name`."""
        if self.armed:
            message = f"node code called {name}, which no seed replays; use {instead}"
            self._on_violation(message)
            raise DeterminismError(message)


def _nothing(_: str) -> None:
    return None


class _Running(threading.local):
    """The tripwires of the world that runs in this thread, if there is one."""

    tripwires: Tripwires | None = None


class _Wires:
    """The patched functions, from the start of the first world to the end of the last.

    A patched function does not refer to a world, since it may outlive the world: a thread may sleep
    in it, or a module may have imported `monotonic` by name.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._saved: list[tuple[Any, str, Any]] = []

    def lay(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            for owner, names, instead in _WIRES:
                for name in names:
                    original = getattr(owner, name, None)
                    if original is not None:
                        self._saved.append((owner, name, original))
                        wire = _wire(original, f"{owner.__name__}.{name}", instead)
                        setattr(owner, name, wire)
            for owner, names in _REDIRECTED:
                for name in names:
                    original = getattr(owner, name)
                    self._saved.append((owner, name, original))
                    setattr(owner, name, _wire(original, f"{owner.__name__}.{name}", None))

    def take_up(self) -> None:
        with self._lock:
            self._users -= 1
            while self._users == 0 and self._saved:
                setattr(*self._saved.pop())


_running: Final = _Running()
_WIRES_LAID: Final = _Wires()


def _wire(original: Callable[..., Any], name: str, instead: str | None) -> Callable[..., Any]:
    @functools.wraps(original)
    def wire(*args: Any, **kwargs: Any) -> Any:
        tripwires = _running.tripwires
        if tripwires is not None and tripwires.armed:
            pretended = tripwires.pretend(name)
            if pretended is not None:
                return pretended(*args, **kwargs)
            if instead is not None:
                tripwires.violated(name, instead)
        return original(*args, **kwargs)

    return wire
