"""Gives containers FUSE disks, which are mounted on the engine's host and replace volumes.

An engine with a local socket may still have other mounts, for example if it runs in a virtual
machine. So after a node starts, the harness checks whether the node sees its disk.
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
_MODE: Final = 0o1777  # any user of a node may write to its disk


def why_no_disks(engine: Engine) -> str | None:
    """Return the reason why FUSE disks do not work with this engine, or `None`."""
    if not engine.is_local:
        return "the engine runs on another machine, which lacks the mounts; use a local engine"
    return why_missing()


class Disks:
    """The FUSE disks of one run."""

    def __init__(self, plan: DeploymentPlan, warden: Warden) -> None:
        """Make an empty record of disks; `mount` mounts them."""
        self._plan = plan
        self._warden = warden
        self._folder: Path | None = None
        self.mounted: dict[str, FuseDisk] = {}  # node: disk; other nodes have volumes

    async def mount(self, engine: Engine, on_failure: Callable[[BaseException], None]) -> None:
        """Mount a disk for each node that declares `faulty_disk`, if FUSE disks work here.

        Raises `InfrastructureError` if a mount fails.
        """
        names = [spec.name for spec in self._plan.nodes if spec.faulty_disk]
        if not names or why_no_disks(engine) is not None:
            return
        prefix = f"{DISKS_PREFIX}{self._plan.run_id}-"
        self._folder = folder = Path(tempfile.mkdtemp(prefix=prefix))
        sign(folder, self._plan.run_id)
        # The warden undoes the latest entry first, so it unmounts disks before it removes the
        # folder.
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
        """Heal all disks. This releases delayed requests, which would keep nodes from dying."""
        for disk in self.mounted.values():
            with contextlib.suppress(InfrastructureError):
                await disk.mend()

    async def close(self) -> None:
        await gather_all(disk.close() for disk in self.mounted.values())
        if self._folder is not None:
            await asyncio.to_thread(detach_below, self._folder)
            await asyncio.to_thread(remove_signed, self._folder)
            self._warden.release(_KEY)
