"""Disks of ours under containers: mounted on the engine's host, bound where a volume would be.

An engine that is reached by a socket of this machine may still see other mounts than we do (one in
a virtual machine, say); a node that has come up is therefore looked at, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import msgspec

from harness.environments import procfs
from harness.environments.docker import sources
from harness.environments.docker.engine import Engine
from harness.environments.fuse.available import why_missing
from harness.environments.fuse.disk import FuseDisk
from harness.environments.fuse.mounts import detach_below
from harness.environments.process.cleaning import DISKS_PREFIX, OWNER_FILE
from harness.environments.real.power import PowerCut
from harness.environments.warden import Run, Warden
from harness.errors import InfrastructureError
from harness.plugins import DeploymentPlan

__all__ = ["Disks", "why_no_disks"]

_KEY: Final = "disks"
_MODE: Final = 0o1777  # whoever the node runs as


def why_no_disks(engine: Engine) -> str | None:
    """What a disk of ours lacks here."""
    if not engine.is_local:
        return "the engine runs on another machine, where nothing is mounted; use one of this"
    return why_missing()


class Disks:
    """Those of one run, by node."""

    def __init__(self, plan: DeploymentPlan, warden: Warden) -> None:
        """There is none yet."""
        self._plan = plan
        self._warden = warden
        self._folder: Path | None = None
        self._disks: dict[str, FuseDisk] = {}

    async def mount(self, engine: Engine, on_failure: Callable[[BaseException], None]) -> None:
        """Those that nodes declare, where they can be had; raises `InfrastructureError`."""
        names = [spec.name for spec in self._plan.nodes if spec.faulty_disk]
        if not names or why_no_disks(engine) is not None:
            return
        prefix = f"{DISKS_PREFIX}{self._plan.run_id}-"
        self._folder = folder = Path(tempfile.mkdtemp(prefix=prefix))
        owner = {"run_id": self._plan.run_id, "controller": str(procfs.identify(os.getpid()))}
        (folder / OWNER_FILE).write_text(json.dumps(owner), encoding="utf-8")
        # Guarded before the mounts, so it is undone after them.
        self._warden.guard(_KEY, Run(["rm", "-rf", "--", str(folder)]))
        for name in names:
            disk = self._disks[name] = FuseDisk(name, folder / name, self._warden)
            await disk.mounted(
                run_id=self._plan.run_id, seed=self._plan.seed, on_failure=on_failure
            )
            (folder / name).chmod(_MODE)
            await disk.make_durable()

    def of(self, node: str) -> FuseDisk | None:
        """The node's disk; `None` where it has a volume."""
        return self._disks.get(node)

    def paths(self) -> dict[str, str]:
        """Where they are mounted here."""
        return {name: str(disk.mount) for name, disk in self._disks.items()}

    async def mend(self) -> None:
        """Make all good."""
        await asyncio.gather(*(disk.mend() for disk in self._disks.values()))

    async def cut_power(self, node: str, cut: PowerCut | None) -> dict[str, int] | None:
        """What a power cut took, where the node is dead and has a disk of ours."""
        disk = self._disks.get(node)
        if disk is None or cut is None:
            return None
        return msgspec.structs.asdict(await disk.cut_power(torn=cut.torn))

    @contextlib.asynccontextmanager
    async def hurried(self, node: str, *, after_s: float = 0.0) -> AsyncIterator[None]:
        """Let the node's disk hold nobody up meanwhile, see `FuseDisk.hurried`."""
        disk = self._disks.get(node)
        async with contextlib.nullcontext() if disk is None else disk.hurried(after_s=after_s):
            yield

    def check_seen(self, node: str, pid: int | None) -> None:
        """Raise `InfrastructureError` where the node's first process has another disk."""
        disk = self._disks.get(node)
        if disk is not None and pid and not disk.is_seen_by(pid, sources.DATA_FOLDER):
            raise InfrastructureError(
                f"docker: {node} does not see the disk that is mounted for it on {disk.mount}: the "
                "engine has mounts of its own; run the harness where the engine runs"
            )

    async def let_go(self) -> None:
        """Hold nobody up who is to be killed: the end is near, and what is broken stays so."""
        for disk in self._disks.values():
            with contextlib.suppress(InfrastructureError):
                await disk.mend()

    async def close(self) -> None:
        """Take all away."""
        failures = await asyncio.gather(
            *(disk.close() for disk in self._disks.values()), return_exceptions=True
        )
        for failure in failures:
            if isinstance(failure, BaseException):
                raise failure
        if self._folder is not None:
            await asyncio.to_thread(detach_below, self._folder)
            await asyncio.to_thread(shutil.rmtree, self._folder)
            self._warden.release(_KEY)
