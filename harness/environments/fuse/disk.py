"""Controls one node's FUSE disk from the driver: mounts it, and commands its server process.

The server reads commands from its standard input. When the harness dies, that input ends, and the
server unmounts the disk and exits. If the server itself was killed, the warden or `harness clean`
unmounts the disk. A failure of a disk is a failure of the host: it ends the run without a verdict
on any node.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.case import stream
from harness.cluster import DiskQuality, env_nodes_only
from harness.environments import procfs
from harness.environments.fuse.available import BINARY, find_binary
from harness.environments.fuse.mounts import SOURCE, detach, detach_undo, mounted_at
from harness.environments.warden import Warden, run_environment
from harness.errors import InfrastructureError

if TYPE_CHECKING:
    from harness.environments.process.child import Child

_ANSWER_S: Final = 20.0
_EXIT_S: Final = 10.0
_HURRY_EVERY_S: Final = 0.05
_OUTPUT_BYTES_MAX: Final = 4096
_SEEDS: Final = 1 << 63
_WRITE_BACK_MS: Final = 5000
"""How often ext4 commits its journal and Linux writes back pages, by default."""

_log = logging.getLogger(__name__)


def _write_back_ms(seed: int) -> int:
    """Return how often a run's disks write back unsynced data, in ms; 0 means never.

    The seed turns write-back on or off, since each choice finds bugs that the other misses. With
    write-back, a power cut loses the last seconds of unsynced data. Without, it loses all unsynced
    data.
    """
    return stream(seed, "disk/write-back").choice((0, _WRITE_BACK_MS))


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """The losses of a power cut: unsynced bytes, files with such bytes, and changed names."""

    bytes: int
    files: int
    names: int


class FuseDisk:
    """One node's FUSE disk: its mount point and its server process."""

    def __init__(self, node: str, mount: Path, warden: Warden) -> None:
        self.node = node
        self.mount = mount
        self._warden = warden
        self._child: Child | None = None
        self._serves = False
        self._closing = False
        self._output = b""
        self._answers: collections.deque[asyncio.Future[dict[str, Any]]] = collections.deque()
        self._failed: Callable[[BaseException], None] = lambda _: None
        self._draws = stream(0, node)
        self._early = 0
        self._quality = DiskQuality()

    async def mounted(
        self, *, run_id: str, seed: int, on_failure: Callable[[BaseException], None]
    ) -> None:
        """Mount an empty disk; raises `InfrastructureError` if that fails.

        The content lies in a folder next to the mount point. `on_failure` is called if the server
        ends before `close`, and for failures of the host.
        """
        from harness.environments.process.child import Child  # avoids an import cycle

        self._failed = on_failure
        self._draws = stream(seed, f"disk/{self.node}")
        folder = self.mount.with_name(self.mount.name + "~disk")  # no node has a tilde in its name
        folder.mkdir(parents=True)
        self.mount.mkdir(parents=True, exist_ok=True)
        self._warden.guard(self._key, detach_undo(self.mount))
        ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers.append(ready)
        binary = find_binary()
        assert binary is not None, "mounting comes after `why_missing`"
        self._child = Child(
            [
                *(binary, str(self.mount), str(folder)),
                *(f"{SOURCE}{self.node}", str(self._seed()), str(_write_back_ms(seed))),
            ],
            environment=os.environ | run_environment(run_id, f"disk:{self.node}"),
            folder=folder,
            listens=True,
            on_output=self._heard,
            on_exit=self._ended,
            on_lost=lambda error: on_failure(self._error(f"has lost its output: {error}")),
        )
        await self._answer(ready)
        self._serves = True

    @property
    def stopped(self) -> bool:
        """Whether the server process is stopped. The harness itself never stops it."""
        return self._child is not None and procfs.any_stopped(self._child.pid)

    @property
    def _key(self) -> str:
        return f"disk/{self.node}"

    def _seed(self) -> int:
        return self._draws.randrange(_SEEDS)

    def _error(self, what: str) -> InfrastructureError:
        return InfrastructureError(f"the disk of {self.node} ({BINARY}) {what}")

    def _heard(self, data: bytes) -> None:
        *lines, self._output = (self._output + data).split(b"\n")
        self._output = self._output[:_OUTPUT_BYTES_MAX]
        for line in lines:
            try:
                answer = msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError:
                _log.warning("disk of %s: %s", self.node, line.decode("utf-8", "replace"))
                self._output = line + b"\n" + self._output
                continue
            if "host" in answer:
                self._failed(self._error(f"failed on its host: {answer['host']}"))
            elif self._answers:
                waiting = self._answers.popleft()
                if not waiting.done():
                    waiting.set_result(answer)

    def _ended(self, code: int) -> None:
        output = self._output.decode("utf-8", "replace").strip()
        error = self._error(f"ended with code {code}: {output}")
        for waiting in self._answers:
            if not waiting.done():
                waiting.set_exception(error)
        self._answers.clear()
        if self._serves and not self._closing:
            self._failed(error)

    async def _answer(self, waiting: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await waiting
        except TimeoutError as error:
            raise self._error(f"did not answer within {_ANSWER_S:.0f} s") from error
        if "error" in answer:
            raise self._error(f"refused: {answer['error']}")
        return answer

    async def _ask(self, command: str) -> dict[str, Any]:
        child = self._child
        if child is None or child.exited.is_set():
            raise self._error("has no running server")
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers.append(waiting)
        child.say(command.encode() + b"\n")
        return await self._answer(waiting)

    # --- the verbs ----------------------------------------------------------------------------

    async def worsen_disk(self, quality: DiskQuality) -> int:
        """Set the faults of the disk. They are in effect on return (see `Controls.worsen_disk`)."""
        quality.check()
        if quality.bitrot:
            raise env_nodes_only("bit rot", [self.node])
        delay_us = round(quality.delay_ms * 1000)
        # the server is written in Rust, which can parse the `repr` of a Python float
        felt = await self._ask(f"set {quality.error!r} {int(quality.full)} {delay_us}")
        self._quality = quality
        if felt["early"] > self._early:
            self._early = felt["early"]
            _log.warning(
                "the disk of %s reached its limit of unsynced data and made older data durable, "
                "%d times so far",
                *(self.node, self._early),
            )
        return int(felt["eio"] + felt["enospc"] + felt["slow"])

    async def mend(self) -> None:
        if self._quality != DiskQuality():
            await self.worsen_disk(DiskQuality())

    async def cut_power(self, *, torn: bool) -> Lost:
        """Drop the unsynced data of a dead node. With `torn`, a part of it survives."""
        return msgspec.convert(await self._ask(f"cut {int(torn)} {self._seed()}"), Lost)

    async def make_durable(self) -> None:
        """Make all data on the disk durable, like sync(2)."""
        await self._ask("sync")

    async def wipe(self) -> None:
        await self._ask("wipe")

    @contextlib.asynccontextmanager
    async def hurried(self, *, after_s: float = 0.0) -> AsyncIterator[None]:
        """Release delayed requests inside this context, so that the node can die.

        The first `after_s` seconds are left to requests that end by themselves.
        """

        async def hurry() -> None:
            await asyncio.sleep(after_s)
            while True:
                await self._ask("release")
                await asyncio.sleep(_HURRY_EVERY_S)

        task = asyncio.get_running_loop().create_task(hurry(), name=f"hurry-{self.node}")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, InfrastructureError):
                await task

    def is_seen_by(self, pid: int, path: str) -> bool:
        """Whether process `pid` sees this disk mounted at `path`."""
        try:
            return mounted_at(path, pid) == f"{SOURCE}{self.node}"
        except OSError:
            return True  # unknown: the process has ended, or this user may not inspect it

    async def close(self) -> None:
        """Kill the server and unmount the disk; raises `InfrastructureError` if that fails."""
        self._closing = True
        child = self._child
        if child is not None:
            child.signal(signal.SIGKILL)  # the content is not needed any more
            if not await child.wait_exited(_EXIT_S):
                raise self._error(f"(pid {child.pid}) is still running after SIGKILL")
        await asyncio.to_thread(detach, self.mount)
        self._warden.release(self._key)
