"""The target's interface to the world: everything a target node may use comes through `Env`.

Target code is plain asyncio (`sleep`, `timeout`, `Queue`, `Lock`, ...), which the simulation
virtualises. Clocks, sockets, files and randomness come only from `Env`. So the same target source
runs in simulation, in local processes and in containers. The design follows the interface that
FoundationDB's simulator made popular (`flow/include/flow/IAsyncFile.h` and related files): if the
harness controls every input, a seed replays the run.

Each start of a node gets an `Env` of its own. After a kill, this `Env` does nothing any more: code
that still runs cannot reach the network, the disk, the trace or the history.
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
    """A port of a node by the node's name, such as `("m1", 7051)`.

    Each environment maps an address to a real host and port.
    """

    node: str
    port: int

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"


class Clock(Protocol):
    """The clocks of a node. Clock faults shift `wall_ns`, or let it run too fast or too slow."""

    def monotonic_ns(self) -> int:
        """Return the time of the running event loop in whole ns; the start is arbitrary."""
        ...

    def wall_ns(self) -> int:
        """Return the time on the node's wall clock in ns since 1970."""
        ...

    def max_error_ns(self) -> int:
        """Return the error bound that an NTP daemon would report for `wall_ns`, in ns."""
        ...


class Conn(Protocol):
    """A connection to another node that carries frames of bytes in order.

    A frame arrives whole or not at all.
    """

    @property
    def peer(self) -> str:
        """The name of the node at the other end, or its address if the name is unknown."""
        ...

    async def send(self, frame: bytes) -> None:
        """Queue one frame for the peer; wait while too much data is queued.

        Raises `ConnectionResetError` if the connection is gone, and `ValueError` if the frame is
        larger than `FRAME_BYTES_MAX`.
        """
        ...

    def try_send(self, frame: bytes) -> bool:
        """Queue one frame if `send` would not have to wait; return whether the frame was queued."""
        ...

    async def recv(self) -> bytes | None:
        """Return the next frame from the peer, or `None` after an orderly close.

        Raises `ConnectionResetError` if the connection is gone.
        """
        ...

    def close(self) -> None:
        """Close the connection in an orderly way; safe to call twice."""
        ...


class Listener(Protocol):
    """A port on which a node accepts connections."""

    def close(self) -> None: ...


class Network(Protocol):
    """The network of a node: connections to named nodes."""

    def resolve(self, address: Address) -> Address:
        """Return the address to which the name of a node leads now (see `Cluster.alias`).

        `connect` never resolves names, so each node decides for how long it uses a result.
        """
        ...

    async def listen(self, port: int, on_connect: Callable[[Conn], Awaitable[None]]) -> Listener:
        """Accept connections on `port`; run `on_connect` for each connection, in a task of the
        node.
        """
        ...

    async def connect(self, address: Address) -> Conn:
        """Connect to an address; the caller sets its own timeout.

        Raises `ConnectionRefusedError` if no node listens. If the link is cut or the node is
        paused, the call waits until the caller's timeout.
        """
        ...


class File(Protocol):
    """An append-only file on the disk of a node."""

    async def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`, or fewer at the end of the file."""
        ...

    async def append(self, data: bytes) -> int:
        """Append `data` and return its offset. Reads see `data` at once; only `sync` makes it
        durable.
        """
        ...

    async def sync(self) -> None:
        """Make all data appended so far durable. The caller must treat an `OSError` as fatal."""
        ...

    async def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""
        ...

    def size(self) -> int:
        """Return the size of the file in bytes, unsynced data included."""
        ...

    def close(self) -> None:
        """Close the file without syncing its data; safe to call twice."""
        ...


class Disk(Protocol):
    """The node's own directory: append-only files and atomic replacement.

    Paths are relative, with `/` between parts; missing folders are created.
    """

    async def open(self, path: str) -> File: ...

    async def read(self, path: str) -> bytes:
        """Return the content of a whole file. Raises `FileNotFoundError` if the file is missing."""
        ...

    async def replace(self, path: str, data: bytes) -> None:
        """Replace the file atomically and durably (write a new file, sync, rename, sync the
        folder).

        A replacement that has begun is always finished. If the caller is cancelled, the
        cancellation arrives after that, so the caller's next action cannot overtake the
        replacement.
        """
        ...

    async def list(self, prefix: str = "") -> list[str]:
        """Return the paths of all files that start with `prefix`, sorted."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file durably, if it exists. A removal that has begun is always finished."""
        ...


class PageRequest(NamedTuple):
    """A GET request for a node's page. `query` has the last value of each field of the query."""

    path: str
    query: Mapping[str, str]
    accepts_json: bool
    """Whether the caller prefers JSON to HTML, by its `Accept` header."""


class PageResponse(NamedTuple):
    """The answer to a `PageRequest`: a complete page."""

    status: int
    content_type: str
    body: bytes


PageHandler = Callable[[PageRequest], Awaitable[PageResponse]]
"""The function that makes a node's pages. If it raises, the page has status 500 and the node
reports an event `page-failed`; the node keeps running."""


class Env(Protocol):
    """The interface of a node to the world, from one start of the node to its end.

    Target code uses no other interface.
    """

    @property
    def name(self) -> str: ...

    @property
    def boot(self) -> int:
        """The number of earlier starts of the node."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def net(self) -> Network: ...

    @property
    def disk(self) -> Disk:
        """The node's disk, which survives kills and restarts of the node."""
        ...

    @property
    def random(self) -> random.Random: ...

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run `coro` in a task that ends with the node; an error that it raises ends the node."""
        ...

    async def serve_pages(self, port: int, handler: PageHandler) -> None:
        """Serve web pages for people on the port `NodeSpec.pages`, until the node ends.

        Answers are limited in size, time and number (`harness.environments.pages`). Raises
        `ValueError` if `port` is not `NodeSpec.pages`, and `OSError` if the port is taken.
        """
        ...

    def endpoint(self, address: Address) -> tuple[str, int]:
        """The host and TCP port under which this node reaches `address`, for the target's own
        protocols.

        Raises `UsageError` in simulation, which has no sockets, and for an unknown address.
        """
        ...

    def page_url(self, address: Address) -> str:
        """Return the URL of another node's pages, without a path: `http://host:port`."""
        ...

    def event(self, kind: str, **data: Any) -> None:
        """Report an event of this `kind` with plain JSON `data`. Events may trigger nemeses;
        reports show them.

        A node announces its role with the kind `leader` or `follower`, and with `group` and `term`.
        With the kind `checkpoint` it publishes `group`, `index` and digests of a replica's state
        (`harness.run.divergence`). The kind `config-overruled` means that an administrator
        overruled votes (`harness.verdict.unsafe_change`).

        A node must not report the kinds in `harness.run.announcements.DRIVER_KINDS`, and a term
        must be a whole number. A node that breaks these rules ends the run with a `TargetError`.
        """
        ...

    def point(self, kind: str, **data: Any) -> None:
        """Report that the node has reached a named point of its code (`Target.points`).

        Like an event, a point may trigger nemeses, and the node's log shows it. In simulation it
        changes nothing else, so a run is the same with more or fewer points.
        """
        ...


class ClientEnv(Env, Protocol):
    """The interface of the harness's own clients to the world; its `name` is "client"."""

    async def get_page(
        self, address: Address, target: str, *, accept: str = "text/html"
    ) -> PageResponse:
        """Return a page of a node from a GET request; `target` is a path with an optional query.

        Link faults between nodes do not affect the request. A paused node blocks it until the
        caller's timeout. Raises `ConnectionRefusedError` or `ConnectionResetError`.
        """
        ...


NodeMain = Callable[[Env, dict[str, Any]], Coroutine[Any, Any, None]]
"""The function that a node written against `Env` runs: `async def main(env, config)`. It runs until
it is cancelled, which is a graceful stop. If it returns or raises by itself, the node has exited,
and the crash checker reports this."""


def load_entry(entry: str, node: str) -> NodeMain:
    """Import the function that `node` runs. Raises a `UsageError` that states the missing part."""
    whose = f"the entry {entry!r} of node {node!r}"
    module_name, _, function_name = entry.partition(":")
    if not module_name or not function_name:
        raise UsageError(f"{whose} must have the form 'package.module:function'")
    try:
        module = import_module(module_name)
    except ImportError as error:
        why = hidden_by(module_name)
        raise UsageError(f"{whose} does not load: {error}{why and f'; {why}'}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"{whose} is not a function; it must be `async def main(env, config)`")
    return function  # type: ignore[no-any-return]
