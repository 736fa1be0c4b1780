"""Run-time tripwires: a node that reads a real clock or real randomness fails at that line.

While a node's code runs, the usual doors to time, randomness and threads raise. The driver (which
stores histories and shows progress) and other threads pass. What the interpreter calls from C
(`datetime.now`, unseeded `random.Random()`) and names imported with `from time import ...` escape;
the lint in `harness.determinism` finds those.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["DeterminismError", "Tripwires"]

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


class DeterminismError(BaseException):
    """A node reached around `Env`. Not an `Exception`: no handler of the node should see it."""


class Tripwires:
    """Raises in node code only: the world sets `armed` while a node's callback runs.

    `on_violation` is told as well, so that a node which swallows the error does not hide it.
    """

    def __init__(self, on_violation: Callable[[str], None]) -> None:
        self.armed = False
        self._on_violation = on_violation
        self._thread = threading.get_ident()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Lay the wires, and take them up again whatever happens."""
        saved: list[tuple[Any, str, Any]] = []
        try:
            for owner, names, instead in _WIRES:
                for name in names:
                    original = getattr(owner, name, None)
                    if original is not None:
                        saved.append((owner, name, original))
                        wire = self._wire(original, f"{owner.__name__}.{name}", instead)
                        setattr(owner, name, wire)
            yield
        finally:
            for owner, name, original in reversed(saved):
                setattr(owner, name, original)

    def _wire(self, original: Callable[..., Any], name: str, instead: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def wire(*args: Any, **kwargs: Any) -> Any:
            if self.armed and threading.get_ident() == self._thread:
                message = f"node code called {name}, which no seed replays; use {instead}"
                self._on_violation(message)
                raise DeterminismError(message)
            return original(*args, **kwargs)

        return wire
