"""`harness clean` for processes: what is left of runs whose driver is dead, and only of those.

Usually nothing: the warden has undone it. This is for a driver and a warden that were both killed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness.environments import procfs
from harness.environments.fuse.mounts import detach_below
from harness.environments.process.clocks import remove_clocks
from harness.environments.procfs import ProcessId
from harness.environments.sharedmemory import remove_shared_memory
from harness.environments.toxiproxy.client import ToxiproxyClient
from harness.environments.warden import leftovers
from harness.errors import InfrastructureError

__all__ = ["DISKS_PREFIX", "OWNER_FILE", "SCRATCH_PREFIX", "clean_dead_runs", "sign"]

SCRATCH_PREFIX: Final = "harness-process-"
DISKS_PREFIX: Final = "harness-disks-"
"""Of folders with disks for containers, which are cleaned away like scratch folders."""
OWNER_FILE: Final = "owner.json"
_WARDEN_TIMEOUT_S: Final = 10.0
_EXIT_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02


def sign(folder: Path, run_id: str, link_proxy: str | None = None) -> None:
    """Note in a folder which run of ours it is of, and which Toxiproxy has proxies of that run."""
    owner = {"run_id": run_id, "controller": str(procfs.this_process()), "link_proxy": link_proxy}
    (folder / OWNER_FILE).write_text(json.dumps(owner), encoding="utf-8")


def clean_dead_runs() -> list[str]:
    """Remove processes, proxies and scratch folders; returns a line for each."""
    _wait_for_wardens()
    lines: list[str] = []
    for process, run_id, role in list(leftovers()):
        if procfs.send(process, signal.SIGKILL):
            _wait_gone(process)
            remove_shared_memory(process)
            lines.append(f"killed {role} (pid {process.pid}) of run {run_id}")
    for folder, owner in _dead_scratch_folders():
        lines += _remove_proxies(owner)
        lines += remove_clocks(folder)
        lines += [f"unmounted {path} of run {owner['run_id']}" for path in detach_below(folder)]
        shutil.rmtree(folder, onerror=_ignore_missing)
        lines.append(f"removed {folder} of run {owner['run_id']}")
    return lines


def _wait_for_wardens() -> None:
    """A warden whose driver has just died is at work; let it finish."""
    deadline_s = time.monotonic() + _WARDEN_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if not any(role == "warden" for _, _, role in leftovers()):
            return
        time.sleep(_POLL_S)


def _wait_gone(process: ProcessId) -> None:
    deadline_s = time.monotonic() + _EXIT_TIMEOUT_S
    while procfs.is_alive(process):
        if time.monotonic() > deadline_s:
            raise InfrastructureError(f"process {process.pid} is still there after SIGKILL")
        time.sleep(_POLL_S)


def _dead_scratch_folders() -> Iterator[tuple[Path, dict[str, Any]]]:
    below = Path(tempfile.gettempdir())
    folders = [*below.glob(f"{SCRATCH_PREFIX}*"), *below.glob(f"{DISKS_PREFIX}*")]
    for folder in sorted(folders):
        try:
            owner = json.loads((folder / OWNER_FILE).read_text(encoding="utf-8"))
            controller = ProcessId.parse(owner["controller"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # another user's, or one that is being made or removed at this moment
        if not procfs.is_alive(controller):
            yield folder, owner


def _ignore_missing(_call: object, _path: object, exc_info: tuple[Any, Any, Any]) -> None:
    """Another `clean` at this moment may have been there first."""
    if not isinstance(exc_info[1], FileNotFoundError):
        raise exc_info[1]


def _remove_proxies(owner: dict[str, Any]) -> list[str]:
    """Take a dead run's proxies off a Toxiproxy that is not ours."""
    url = owner.get("link_proxy")
    if not isinstance(url, str):
        return []

    async def remove() -> list[str]:
        client = ToxiproxyClient(url)
        try:
            names = [n for n in await client.proxies() if n.startswith(f"{owner['run_id']}-")]
            for name in names:
                await client.delete(name)
        finally:
            await client.close()
        return [f"removed the proxy {name} from {url}" for name in names]

    try:
        return asyncio.run(remove())
    except InfrastructureError as error:
        return [f"could not look for proxies of run {owner['run_id']}: {error}"]
