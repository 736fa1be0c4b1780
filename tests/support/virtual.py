"""An event loop whose time jumps to the next timer instead of waiting, and its clock."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "every task waits and no timer runs: a deadlock"
        self.now_s += max(0.0, timeout)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Selector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, then cancel remaining tasks."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)


class VirtualClock:
    """The clock of the running loop.

    It starts at `begin_ns`, and its wall clock at `wall_begin_ns`.
    """

    def __init__(self, begin_ns: int = 0, wall_begin_ns: int = 0) -> None:
        self.begin_ns, self.wall_begin_ns = begin_ns, wall_begin_ns

    def monotonic_ns(self) -> int:
        return self.begin_ns + round(asyncio.get_running_loop().time() * 1e9)

    def wall_ns(self) -> int:
        return self.wall_begin_ns + self.monotonic_ns()

    def max_error_ns(self) -> int:
        return 0
