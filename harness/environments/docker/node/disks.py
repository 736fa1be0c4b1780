"""FUSE disks under containers: mounted on the engine's host and bound in place of a volume.

An engine behind a local socket may still see different mounts, for instance if it runs in a virtual
machine. Each node is therefore checked once after its start.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.environments.docker.engine.engine import Engine
from harness.environments.fuse.available import why_missing
from harness.environments.fuse.disk import FuseDisk
from harness.environments.fuse.mounts import detach_below
from harness.environments.host.control import gather_all
from harness.environments.scratch import DISKS_PREFIX, remove_signed, sign
from harness.environments.warden import RemoveFolder, Warden
from harness.errors import InfrastructureError
from harness.plugins import DeploymentPlan

_KEY: Final = "disks"
_MODE: Final = 0o1777  # a node may run as any user


def why_no_disks(engine: Engine) -> str | None:
    """The reason why FUSE disks are impossible with this engine; `None` if possible."""
    if not engine.is_local:
        return "the engine runs on another machine, where nothing is mounted; use one of this"
    return why_missing()


class Disks:
    """The FUSE disks of one run."""

    def __init__(self, plan: DeploymentPlan, warden: Warden) -> None:
        """Create an object without disks; `mount` adds them."""
        self._plan = plan
        self._warden = warden
        self._folder: Path | None = None
        self.mounted: dict[str, FuseDisk] = {}  # by node; other nodes have a volume

    async def mount(self, engine: Engine, on_failure: Callable[[BaseException], None]) -> None:
        """Mount the disks that nodes declare, if possible; raises `InfrastructureError`."""
        names = [spec.name for spec in self._plan.nodes if spec.faulty_disk]
        if not names or why_no_disks(engine) is not None:
            return
        prefix = f"{DISKS_PREFIX}{self._plan.run_id}-"
        self._folder = folder = Path(tempfile.mkdtemp(prefix=prefix))
        sign(folder, self._plan.run_id)
        # Guarded before the mounts, so the warden removes the folder after them.
        self._warden.guard(_KEY, RemoveFolder(str(folder)))
        for name in names:
            disk = self.mounted[name] = FuseDisk(name, folder / name, self._warden)
            await disk.mounted(
                run_id=self._plan.run_id, seed=self._plan.seed, on_failure=on_failure
            )
            (folder / name).chmod(_MODE)
            await disk.make_durable()

    def paths(self) -> dict[str, str]:
        return {name: str(disk.mount) for name, disk in self.mounted.items()}

    async def let_go(self) -> None:
        """Heal all disks, which releases delayed requests, so that nodes can be killed."""
        for disk in self.mounted.values():
            with contextlib.suppress(InfrastructureError):
                await disk.mend()

    async def close(self) -> None:
        await gather_all(disk.close() for disk in self.mounted.values())
        if self._folder is not None:
            await asyncio.to_thread(detach_below, self._folder)
            await asyncio.to_thread(remove_signed, self._folder)
            self._warden.release(_KEY)
