"""The target's interface to the world: everything a target node may use comes through `Env`.

Target code is plain asyncio (`sleep`, `timeout`, `Queue`, `Lock`, ...), which the simulation
virtualises; clocks, sockets, files and randomness exist only here. The same target source then runs
in simulation, in local processes and in containers. The design follows the interface that
FoundationDB's simulator made popular (`flow/include/flow/IAsyncFile.h` and related files): if the
harness controls every input, a seed replays the run.

The `Env` of a killed incarnation is inert: code that still runs after the kill cannot reach the
network, the disk, the trace or the history.
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
    """A port of a node, by logical names such as `("m1", 7051)`; the environment resolves it."""

    node: str
    port: int

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"


class Clock(Protocol):
    """Time as this node sees it; faults change `wall_ns` by skew, steps and drift."""

    def monotonic_ns(self) -> int:
        """Ns since an arbitrary start; the running loop's `time()` in integer form."""
        ...

    def wall_ns(self) -> int:
        """Ns since the epoch, as the node's wall clock shows it."""
        ...

    def max_error_ns(self) -> int:
        """The error bound that an NTP daemon would report for `wall_ns`, in ns."""
        ...


class Conn(Protocol):
    """An ordered connection of frames. A frame of bytes arrives whole or not at all."""

    @property
    def peer(self) -> str:
        """The name of the node at the other end, or its address if the name is unknown."""
        ...

    async def send(self, frame: bytes) -> None:
        """Queue one frame; waits on back-pressure.

        Raises `ConnectionResetError` when the connection is gone, `ValueError` when the frame is
        larger than `FRAME_BYTES_MAX`.
        """
        ...

    def try_send(self, frame: bytes) -> bool:
        """Queue one frame like `send` if no wait is necessary; returns false otherwise."""
        ...

    async def recv(self) -> bytes | None:
        """The next frame; `None` after an orderly close. Raises `ConnectionResetError`."""
        ...

    def close(self) -> None:
        """Close the connection in an orderly way; safe to call twice."""
        ...


class Listener(Protocol):
    """A listening port."""

    def close(self) -> None:
        """Stop accepting connections; open connections stay."""
        ...


class Network(Protocol):
    """Connections of frames between named nodes."""

    def resolve(self, address: Address) -> Address:
        """The current address of a name: that of its node, or of the node the name was redirected
        to.

        See `Cluster.alias`. `connect` does not look up names: a node decides how long to trust a
        lookup.
        """
        ...

    async def listen(self, port: int, on_connect: Callable[[Conn], Awaitable[None]]) -> Listener:
        """Accept connections on `port`; each one runs `on_connect` in a task of the node."""
        ...

    async def connect(self, address: Address) -> Conn:
        """Connect to an address; the caller sets its own timeout.

        Raises `ConnectionRefusedError` if nothing listens. Across a cut, or to a paused node, the
        call waits until the caller's timeout.
        """
        ...


class File(Protocol):
    """An append-only file."""

    async def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""
        ...

    async def append(self, data: bytes) -> int:
        """Append `data` and return its offset; it is visible, but not durable until `sync`."""
        ...

    async def sync(self) -> None:
        """Make everything appended so far durable. The caller must treat an `OSError` as fatal."""
        ...

    async def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""
        ...

    def size(self) -> int:
        """The visible size in bytes."""
        ...

    def close(self) -> None:
        """Close without syncing; safe to call twice."""
        ...


class Disk(Protocol):
    """The node's own directory: append-only files and atomic replacement.

    Paths are relative, with `/` between parts; missing folders are created.
    """

    async def open(self, path: str) -> File:
        """Open for appending; creates the file if it is missing."""
        ...

    async def read(self, path: str) -> bytes:
        """The content of the whole file. Raises `FileNotFoundError`."""
        ...

    async def replace(self, path: str, data: bytes) -> None:
        """Replace the file atomically and durably (write aside, sync, rename, sync folder).

        A replacement that has begun is always finished. If the caller is cancelled meanwhile, the
        cancellation waits for the end, so the caller's next action (another replacement, a removal)
        cannot overtake this one.
        """
        ...

    async def list(self, prefix: str = "") -> list[str]:
        """All paths that start with `prefix`, sorted."""
        ...

    async def remove(self, path: str) -> None:
        """Remove the file durably, if there is one. A removal that has begun is always finished."""
        ...


class PageRequest(NamedTuple):
    """A GET of one of a node's pages: the decoded path, and the last value of each query field."""

    path: str
    query: Mapping[str, str]
    accepts_json: bool
    """Whether the caller prefers JSON to HTML, by its `Accept` header."""


class PageResponse(NamedTuple):
    """A complete page."""

    status: int
    content_type: str
    body: bytes


PageHandler = Callable[[PageRequest], Awaitable[PageResponse]]
"""The function that makes a node's pages. An error in it becomes the page's answer (500) and an
event `page-failed`; it never ends the node."""


class Env(Protocol):
    """The environment of one node incarnation. Target code sees nothing else of the world."""

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
        """Run `coro` in a task that ends with the node; an unhandled error is the node's panic."""
        ...

    async def serve_pages(self, port: int, handler: PageHandler) -> None:
        """Serve pages for people on the declared `NodeSpec.pages`, until the node ends.

        Answers are limited in size, time and number (`harness.environments.pages`). Raises
        `ValueError` for another port, and `OSError` if the port is taken.
        """
        ...

    def endpoint(self, address: Address) -> tuple[str, int]:
        """The host and TCP port under which this node reaches `address`, for the target's own
        protocols.

        Raises `UsageError` in simulation, which has no sockets, and for an unknown address.
        """
        ...

    def page_url(self, address: Address) -> str:
        """The URL of another node's pages, without a path: `http://host:port`."""
        ...

    def event(self, kind: str, **data: Any) -> None:
        """Report an event of this `kind` with plain JSON `data`; it may trigger nemeses, and
        reports show it.

        A node announces its role with kind `leader` or `follower`, with `group` and `term`. It
        announces the position of a replica with kind `checkpoint`, with `group`, `index` and texts
        (`harness.run.divergence`). Kind `config-overruled` says that an administrator overruled
        votes (`harness.verdict.unsafe_change`). Only the driver may report the kinds in
        `harness.run.announcements.DRIVER_KINDS` (`node-started`, `node-exited`, `infrastructure`,
        `starvation`, `power-cut`, `config-forced`), and a term must be a whole number: a node that
        breaks these rules ends the run with a `TargetError`.
        """
        ...


class ClientEnv(Env, Protocol):
    """The harness's own interface to the world, which clients use; its node name is `client`."""

    async def get_page(
        self, address: Address, target: str, *, accept: str = "text/html"
    ) -> PageResponse:
        """GET a page of a node: `target` is a path, with a query or without.

        Faults on links between nodes do not affect the request. A paused node blocks it until the
        caller's timeout. Raises `ConnectionRefusedError` and `ConnectionResetError`.
        """
        ...


NodeMain = Callable[[Env, dict[str, Any]], Coroutine[Any, Any, None]]
"""A node written against `Env`: `async def main(env, config)`. It runs until it is cancelled (a
graceful stop). If it returns or raises by itself, the crash checker reports an exit."""


def load_entry(entry: str, node: str) -> NodeMain:
    """Import the function that `node` runs; raises `UsageError` that names the missing part."""
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
