"""The target's door to the world: everything a target node may touch comes through `Env`.

Target code is plain asyncio (`sleep`, `timeout`, `Queue`, `Lock`, ...), which the simulation
virtualises; clocks, sockets, files and randomness exist only here. The same target source then
runs in simulation, in local processes and in containers. Follows the interface that FoundationDB's
simulator made popular (`flow/include/flow/IAsyncFile.h` and friends): own every door and a seed
replays the world.

A dead incarnation's `Env` is inert: nothing that still runs after a kill reaches the network, the
disk, the trace or the history.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from harness.errors import UsageError
from harness.support.importing import hidden_by, import_module

__all__ = [
    "FRAME_BYTES_MAX",
    "Address",
    "ClientEnv",
    "Clock",
    "Conn",
    "Disk",
    "Env",
    "File",
    "Listener",
    "Network",
    "NodeMain",
    "PageHandler",
    "PageRequest",
    "PageResponse",
    "load_entry",
]

FRAME_BYTES_MAX = 64 * 1024 * 1024


class Address(NamedTuple):
    """A port of a node by their logical names, e.g. `("m1", 7051)`; environments resolve it."""

    node: str
    port: int

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"


class Clock(Protocol):
    """Time as this node sees it; skew, step and drift are injected into `wall_ns`."""

    def monotonic_ns(self) -> int:
        """Ns since an arbitrary start; the running loop's `time()` in integer form."""
        ...

    def wall_ns(self) -> int:
        """Ns since the epoch, as the node's wall clock shows it."""
        ...

    def max_error_ns(self) -> int:
        """The error bound an NTP daemon would report for `wall_ns`, in ns."""
        ...


class Conn(Protocol):
    """An ordered connection of frames. The unit is one frame of bytes, whole or not at all."""

    @property
    def peer(self) -> str:
        """The name of the node at the other end, or its address where no name is known."""
        ...

    async def send(self, frame: bytes) -> None:
        """Queue one frame; waits on back-pressure.

        Raises `ConnectionResetError` when the connection is gone, `ValueError` when the frame is
        larger than `FRAME_BYTES_MAX`.
        """
        ...

    def try_send(self, frame: bytes) -> bool:
        """Queue one frame as `send` does, if that needs no waiting; false when it does."""
        ...

    async def recv(self) -> bytes | None:
        """The next frame; `None` at an orderly end. Raises `ConnectionResetError`."""
        ...

    def close(self) -> None:
        """End the connection in order; safe to call twice."""
        ...


class Listener(Protocol):
    """A listening port."""

    def close(self) -> None:
        """Stop accepting; open connections stay."""
        ...


class Network(Protocol):
    """Connections of frames between named nodes."""

    def resolve(self, address: Address) -> Address:
        """The present address of a name: of its node, or of the node that took the name over.

        See `Cluster.alias`. `connect` does not look names up: a node decides how long to trust one.
        """
        ...

    async def listen(self, port: int, on_connect: Callable[[Conn], Awaitable[None]]) -> Listener:
        """Accept on `port`; each connection runs `on_connect` in a task of the node."""
        ...

    async def connect(self, address: Address) -> Conn:
        """Connect within the caller's own timeout.

        Raises `ConnectionRefusedError` if nothing listens; silence across a cut or to a paused
        node lasts until the caller's timeout.
        """
        ...


class File(Protocol):
    """An append-only file."""

    async def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; shorter only at the end of the file."""
        ...

    async def append(self, data: bytes) -> int:
        """Append and return the offset `data` starts at: visible, but not durable until `sync`."""
        ...

    async def sync(self) -> None:
        """Make everything appended so far durable. An `OSError` must be fatal to the caller."""
        ...

    async def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def size(self) -> int:
        """The visible size in bytes."""
        ...

    def close(self) -> None:
        """Close without syncing; safe to call twice."""
        ...


class Disk(Protocol):
    """A rooted directory of the node: append-only files and atomic replacement.

    Paths are relative, with `/` between parts; folders appear as needed.
    """

    async def open(self, path: str) -> File:
        """Open for appending, creating the file where it is missing."""
        ...

    async def read(self, path: str) -> bytes:
        """The whole file. Raises `FileNotFoundError`."""
        ...

    async def replace(self, path: str, data: bytes) -> None:
        """Replace the file atomically and durably (write aside, sync, rename, sync folder).

        What has begun is finished: a caller who is cancelled meanwhile is held up until then, so
        that what comes next (another replacement, a removal) does come next.
        """
        ...

    async def list(self, prefix: str = "") -> list[str]:
        """Paths that start with `prefix`, sorted."""
        ...

    async def remove(self, path: str) -> None:
        """Remove the file durably; a missing one is no error. Finished once begun, as above."""
        ...


class PageRequest(NamedTuple):
    """A GET of one of a node's pages: the decoded path, and the last value of each query field."""

    path: str
    query: Mapping[str, str]
    accepts_json: bool
    """Whether the caller would rather have JSON than HTML, by its `Accept` header."""


class PageResponse(NamedTuple):
    """A page, whole."""

    status: int
    content_type: str
    body: bytes


PageHandler = Callable[[PageRequest], Awaitable[PageResponse]]
"""Makes a node's pages. An error of its own is that page's answer (500) and an event
`page-failed`, never the end of the node."""


class Env(Protocol):
    """One per node incarnation. Target code sees nothing else of the world."""

    @property
    def name(self) -> str:
        """The node's name."""
        ...

    @property
    def boot(self) -> int:
        """The number of earlier starts of the node."""
        ...

    @property
    def clock(self) -> Clock:
        """The node's clock."""
        ...

    @property
    def net(self) -> Network:
        """The node's network."""
        ...

    @property
    def disk(self) -> Disk:
        """The node's disk; survives kills and restarts."""
        ...

    @property
    def random(self) -> random.Random:
        """The node's own random stream, derived from the run's seed."""
        ...

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run `coro` in a task that dies with the node; an unhandled error panics the node."""
        ...

    async def serve_pages(self, port: int, handler: PageHandler) -> None:
        """Show pages to people on the declared `NodeSpec.pages`, until the node ends.

        Answers have bounds of size, time and number (`harness.environments.pages`). Raises
        `ValueError` for another port, `OSError` where it is taken.
        """
        ...

    def endpoint(self, address: Address) -> tuple[str, int]:
        """Host and TCP port under which this node reaches `address`, for protocols of their own.

        Raises `UsageError` in simulation, where there are no sockets, and for an unknown address.
        """
        ...

    def page_url(self, address: Address) -> str:
        """The URL of another node's pages, without a path: `http://host:port`."""
        ...

    def event(self, kind: str, **data: Any) -> None:
        """Trace `kind` with plain JSON `data`; nemeses may trigger on it, reports show it.

        Roles are announced this way: kind `leader` or `follower` with `group` and `term`; and where
        a replica is: kind `checkpoint` with `group`, `index` and texts (`harness.run.divergence`);
        kind `config-overruled` says that an administrator overruled votes
        (`harness.verdict.unsafe_change`). Kinds of `harness.run.announcements.DRIVER_KINDS`
        (`node-started`, `node-exited`, `infrastructure`, `starvation`, `power-cut`,
        `config-forced`) are the driver's alone, and a term is a whole number: a node that breaks
        this ends the run with a `TargetError`.
        """
        ...


class ClientEnv(Env, Protocol):
    """The harness's own door, on which clients run; its node name is `client`."""

    async def get_page(
        self, address: Address, target: str, *, accept: str = "text/html"
    ) -> PageResponse:
        """GET a page of a node: `target` is a path, with a query or without.

        Faults of links between nodes do not reach it. Waits for a paused node as long as the
        caller lets it. Raises `ConnectionRefusedError` and `ConnectionResetError`.
        """
        ...


NodeMain = Callable[[Env, dict[str, Any]], Coroutine[Any, Any, None]]
"""A node written against `Env`: `async def main(env, config)`. It runs until it is cancelled
(a graceful stop); returning or raising by itself is an exit that the crash checker reports."""


def load_entry(entry: str, node: str) -> NodeMain:
    """Import the function that `node` runs; raises `UsageError` that names what is missing."""
    whose = f"the entry {entry!r} of node {node!r}"
    module_name, _, function_name = entry.partition(":")
    if not module_name or not function_name:
        raise UsageError(f"{whose} must read like 'package.module:function'")
    try:
        module = import_module(module_name)
    except ImportError as error:
        why = hidden_by(module_name)
        raise UsageError(f"{whose} does not load: {error}{why and f'; {why}'}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"{whose} is no function; it must be `async def main(env, config)`")
    return function  # type: ignore[no-any-return]
