"""The interface of the world that clocks, event loops and disks use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

Entry = tuple[int, int, Callable[[Any], None] | None, Any]
"""An entry of the heap: time in ns, sequence, action, argument; see `world`."""


class Scheduler(Protocol):
    """Virtual time, the heap over it, and the queue of event loops with ready callbacks."""

    now_ns: int
    heap: list[Entry]
    sequence: Iterator[int]
    runnable: deque[Any]
    current: Any

    def schedule(self, at_ns: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Call `action(argument)` at a present or future time, outside of all nodes."""

    def timer_cancelled(self) -> None:
        """Count a heap entry whose timer was cancelled."""

    def note(self, node: str, what: str, data: bytes = b"") -> None:
        """Add an occurrence on a node to the digest and to the trace."""

    def log(self, node: str, line: str) -> None:
        """Append a line to a node's log."""
