"""The link proxy: the harness's own server, started for the run, or a user's Toxiproxy."""

from __future__ import annotations

import asyncio
import collections
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from harness.cluster import NodeState
from harness.environments import procfs
from harness.environments.host.starvation import LINK_PROXY
from harness.environments.host.watch import Interference, interference
from harness.environments.process.child import Child
from harness.environments.process.node import python_path
from harness.environments.toxiproxy.api import TOKEN_VARIABLE, VERSION
from harness.environments.toxiproxy.client import ToxiproxyClient, ToxiproxyError
from harness.environments.toxiproxy.proxy import Withheld
from harness.environments.warden import Kill, Warden, run_environment
from harness.errors import InfrastructureError, UsageError
from harness.support.loopback import is_loopback

_START_TIMEOUT_S: Final = 20.0
_EXIT_TIMEOUT_S: Final = 10.0
_LINE_BYTES_MAX: Final = 4096
_COMPLAINTS_MAX: Final = 20
_KEY: Final = "link-proxy"

_log = logging.getLogger(__name__)


class LinkProxy:
    """The link proxy of a run: the running server, and a client that configures it."""

    def __init__(
        self,
        client: ToxiproxyClient,
        *,
        ours: bool,
        child: Child | None = None,
        output: _Output | None = None,
    ) -> None:
        self.client = client
        self.ours = ours
        self._child = child
        self._output = output

    @staticmethod
    async def start(
        run_id: str,
        *,
        seed: int,
        folder: Path,
        warden: Warden,
        on_death: Callable[[InfrastructureError], None],
    ) -> LinkProxy:
        """Start the harness's own server; `on_death` is called if it ends before `close`."""
        output = _Output(on_death)
        token = secrets.token_urlsafe(32)  # keeps other users from changing faults
        child = Child(
            [
                *(sys.executable, "-P", "-m", "harness.environments.toxiproxy"),
                *("--listen", "127.0.0.1:0", "--proxy-metrics", "--seed", str(seed)),
            ],
            environment=os.environ
            | run_environment(run_id, "link-proxy")
            | {"PYTHONPATH": python_path(), TOKEN_VARIABLE: token},
            folder=folder,
            on_output=output.heard,
            on_exit=output.ended,
            on_lost=lambda error: _log.warning("lost the output of the link proxy: %s", error),
        )
        warden.guard(_KEY, Kill(*child.identity))
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                url = await output.address
            client = ToxiproxyClient(url, token=token)
            return LinkProxy(client, ours=True, child=child, output=output)
        except (TimeoutError, ToxiproxyError) as error:
            output.closing = True
            child.signal(signal.SIGKILL)
            raise InfrastructureError(f"the link proxy did not start: {error!r}") from error

    @staticmethod
    async def attach(url: str) -> LinkProxy:
        """Connect to a user's Toxiproxy; raises `UsageError` if it cannot serve the nodes."""
        try:
            client = ToxiproxyClient(url)
            if not is_loopback(client.host):
                raise UsageError(
                    f"--link-proxy {url}: nodes are local processes on loopback, so the server "
                    "must run on this machine; give its address as 127.0.0.1"
                )
            version = await client.version()
        except ToxiproxyError as error:
            raise UsageError(
                f"--link-proxy {url}: no Toxiproxy server answers there ({error}); start one "
                "with `toxiproxy-server -proxy-metrics`, or leave the option out to use ours"
            ) from error
        return LinkProxy(client, ours=VERSION in version)

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def interference(self) -> Interference | None:
        """Return the interference if another program has stopped the harness's own server."""
        stopped = self._child is not None and procfs.state(self._child.identity) in procfs.STOPPED
        return interference(LINK_PROXY, wanted=NodeState.RUNNING, stopped=stopped)

    def withheld(self, address: str) -> Interference | None:
        """Return the interference if the server held or dropped connections to `address`."""
        return None if self._output is None else self._output.withheld(address)

    async def close(self, run_id: str) -> None:
        """End the harness's own server, or remove the run's proxies from a user's server."""
        if self._output is not None:
            self._output.closing = True
        child = self._child
        if child is None:
            for name in await self.client.proxies():
                if name.startswith(f"{run_id}-"):
                    await self.client.delete(name)
            await self.client.close()
            return
        await self.client.close()
        child.signal(signal.SIGKILL)  # the server has no data to save
        if not await child.wait_exited(_EXIT_TIMEOUT_S):
            raise InfrastructureError(f"the link proxy (pid {child.pid}) survived SIGKILL")


class _Output:
    """Parses the output of the harness's server: its URL, then one report or error per line."""

    def __init__(self, on_death: Callable[[InfrastructureError], None]) -> None:
        self.address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.closing = False
        self._on_death = on_death
        self._line = b""
        self._complaints: collections.deque[str] = collections.deque(maxlen=_COMPLAINTS_MAX)
        self._withheld: dict[str, Withheld] = {}

    def heard(self, data: bytes) -> None:
        """Process a piece of the server's output. The piece may begin and end within a line."""
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[:_LINE_BYTES_MAX]
        for line in lines:
            if not self.address.done() and line.startswith(b"http://"):
                self.address.set_result(line.decode("utf-8", "replace"))
                continue
            try:
                report = msgspec.json.decode(line, type=Withheld)
            except msgspec.DecodeError:
                self._complaints.append(line.decode("utf-8", "replace"))
                _log.warning("link proxy: %s", self._complaints[-1])
            else:
                self._withheld[report.address] = report

    def ended(self, code: int) -> None:
        text = "\n".join([*self._complaints, self._line.decode("utf-8", "replace")]).strip()
        error = InfrastructureError(f"the link proxy ended with code {code}: {text}")
        if not self.address.done():
            self.address.set_exception(error)
        elif not self.closing:
            self._on_death(error)

    def withheld(self, address: str) -> Interference | None:
        """Return the interference if the server holds or has dropped connections to `address`.

        A drop counts until the end of the run, since a dropped caller may not call again.
        """
        report = self._withheld.get(address)
        if report is not None and report.dropped:
            return Interference(f"the link proxy dropped connections ({report.dropped} or more)")
        if report is not None and report.held:
            return Interference(
                "the link proxy held connections back while a link was cut, since it did not know "
                "who had opened them"
            )
        return None
