"""The target's interface to the world: everything a target node may use comes through `Env`.

Target code is plain asyncio (`sleep`, `timeout`, `Queue`, `Lock`, ...), which the simulation
virtualises; clocks, sockets, files and randomness come only from `Env`. The same target source then
runs in simulation, in local processes and in containers. The design follows the interface that
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
    """A port of a node in logical form, such as `("m1", 7051)`; each environment maps an address to
    a real host and port.
    """

    node: str
    port: int

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"


class Clock(Protocol):
    """The clocks of a node; faults change `wall_ns` by skew, steps and drift."""

    def monotonic_ns(self) -> int:
        """Return the `time()` of the running loop in whole ns, counted from an arbitrary start."""
        ...

    def wall_ns(self) -> int:
        """Return ns since the epoch, as the node's wall clock shows them."""
        ...

    def max_error_ns(self) -> int:
        """The error bound that an NTP daemon would report for `wall_ns`, in ns."""
        ...


class Conn(Protocol):
    """A connection to another node that carries frames of bytes in order. A frame arrives whole or
    not at all.
    """

    @property
    def peer(self) -> str:
        """The name of the node at the other end, or its address if the name is unknown."""
        ...

    async def send(self, frame: bytes) -> None:
        """Queue one frame for the peer; wait while too much data is queued.

        Raises `ConnectionResetError` when the connection is gone, `ValueError` when the frame is
        larger than `FRAME_BYTES_MAX`.
        """
        ...

    def try_send(self, frame: bytes) -> bool:
        """Queue one frame if `send` would not have to wait; return whether the frame was queued."""
        ...

    async def recv(self) -> bytes | None:
        """Return the next frame from the peer, or `None` after an orderly close. Raises
        `ConnectionResetError` when the connection is gone.
        """
        ...

    def close(self) -> None:
        """Close the connection in an orderly way; safe to call twice."""
        ...


class Listener(Protocol):
    """A port on which a node accepts connections."""

    def close(self) -> None:
        """Stop accepting connections; open connections stay."""
        ...


class Network(Protocol):
    """The network of a node: connections to named nodes."""

    def resolve(self, address: Address) -> Address:
        """Return the current address for the name of a node. `Cluster.alias` may have redirected
        the name to another node.

        `connect` never resolves names, so a node itself decides how long it trusts a result.
        """
        ...

    async def listen(self, port: int, on_connect: Callable[[Conn], Awaitable[None]]) -> Listener:
        """Accept connections on `port`; run `on_connect` for each connection, in a task of the
        node.
        """
        ...

    async def connect(self, address: Address) -> Conn:
        """Connect to an address; the caller sets its own timeout.

        Raises `ConnectionRefusedError` if nothing listens. Across a cut, or to a paused node, the
        call waits until the caller's timeout.
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

    async def open(self, path: str) -> File:
        """Open a file for appending; create the file if it is missing."""
        ...

    async def read(self, path: str) -> bytes:
        """Return the content of a whole file. Raises `FileNotFoundError` if the file is missing."""
        ...

    async def replace(self, path: str, data: bytes) -> None:
        """Replace the file atomically and durably (write aside, sync, rename, sync folder).

        A replacement that has begun is always finished. A cancellation of the caller waits until
        the replacement is finished, so the caller's next action (another replacement, a removal)
        cannot overtake this replacement.
        """
        ...

    async def list(self, prefix: str = "") -> list[str]:
        """Return the paths of all files that start with `prefix`, sorted."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file durably; do nothing if the file is missing. A removal that has begun is
        always finished.
        """
        ...


class PageRequest(NamedTuple):
    """A GET request for a page of a node; `query` has the last value of each query field."""

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
    """The interface of one node incarnation to the world; target code uses no other interface."""

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
        """The node's disk, which survives kills and restarts of the node."""
        ...

    @property
    def random(self) -> random.Random:
        """The node's own random stream, derived from the run's seed."""
        ...

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
        """The URL of another node's pages, without a path: `http://host:port`."""
        ...

    def event(self, kind: str, **data: Any) -> None:
        """Report an event of this `kind` with plain JSON `data`; it may trigger nemeses, and
        reports show it.

        A node announces its role with kind `leader` or `follower`, with `group` and `term`. With
        kind `checkpoint` it announces `group`, `index` and digests of a replica's state
        (`harness.run.divergence`). Kind `config-overruled` says that an administrator overruled
        votes (`harness.verdict.unsafe_change`). Only the driver may report the kinds in
        `harness.run.announcements.DRIVER_KINDS` (`node-started`, `node-exited`, `infrastructure`,
        `starvation`, `power-cut`, `config-forced`), and a term must be a whole number: a node that
        breaks these rules ends the run with a `TargetError`.
        """
        ...

    def point(self, kind: str, **data: Any) -> None:
        """Report that the node has reached a point of its code (`Target.points`).

        Like an event, a point may trigger nemeses, and the node's log shows it. In simulation, it
        disturbs nothing else: a run is the same with more or fewer points.
        """
        ...


class ClientEnv(Env, Protocol):
    """The interface of the harness's own clients to the world; its `name` is "client"."""

    async def get_page(
        self, address: Address, target: str, *, accept: str = "text/html"
    ) -> PageResponse:
        """Return a page of a node from a GET request; `target` is a path with an optional query.

        Faults on links between nodes do not affect the request. A paused node blocks the request
        until the caller's timeout. Raises `ConnectionRefusedError` or `ConnectionResetError`.
        """
        ...


NodeMain = Callable[[Env, dict[str, Any]], Coroutine[Any, Any, None]]
"""The function of a node written against `Env`: `async def main(env, config)`. The function runs
until it is cancelled (a graceful stop). If it returns or raises by itself, the node has exited, and
the crash checker reports the exit."""


def load_entry(entry: str, node: str) -> NodeMain:
    """Import the function that `node` runs; raises `UsageError` that names the missing part."""
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
