"""`harness clean` for processes: removes the remains of runs whose driver is dead.

Usually nothing remains, since the warden cleans up. This module is for runs whose driver and warden
were both killed.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.environments import procfs
from harness.environments.fuse.mounts import detach_below
from harness.environments.process.clocks import remove_clocks
from harness.environments.procfs import ProcessId, remove_shared_memory
from harness.environments.scratch import Owner, left_folders, remove_signed
from harness.environments.toxiproxy.client import ToxiproxyClient
from harness.environments.warden import leftovers
from harness.errors import CleaningError, InfrastructureError

_WARDEN_TIMEOUT_S: Final = 10.0
_EXIT_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02


def clean_dead_runs() -> list[str]:
    """Remove the processes, proxies and folders of dead runs; returns a line for each of them.

    If an object cannot be removed, the others are still removed, and then `CleaningError` is
    raised.
    """
    _wait_for_wardens()
    lines: list[str] = []
    failures: list[str] = []
    for process, run_id, role in list(leftovers()):
        if not procfs.send(process, signal.SIGKILL):
            continue
        try:
            _wait_gone(process)
            remove_shared_memory(process)
        except (OSError, InfrastructureError) as error:
            failures.append(f"run {run_id}: {error}")
        else:
            lines.append(f"killed {role} (pid {process.pid}) of run {run_id}")
    for folder, owner in left_folders():
        if isinstance(owner, str):
            lines.append(f"left {folder} alone: {owner}; remove it by hand if no run needs it")
            continue
        try:
            lines += _remove(folder, owner)
        except (OSError, InfrastructureError) as error:
            failures.append(f"run {owner.run_id}: {folder}: {error}")
    if failures:
        raise CleaningError(failures, lines)
    return lines


def _remove(folder: Path, owner: Owner) -> Iterator[str]:
    yield from _remove_proxies(owner)
    yield from remove_clocks(folder)
    for path in detach_below(folder):
        yield f"unmounted {path} of run {owner.run_id}"
    remove_signed(folder)
    yield f"removed {folder} of run {owner.run_id}"


def _wait_for_wardens() -> None:
    """Wait for the wardens of drivers that have just died, because they are still cleaning up."""
    deadline_s = time.monotonic() + _WARDEN_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if not any(role == "warden" for _, _, role in leftovers()):
            return
        time.sleep(_POLL_S)


def _wait_gone(process: ProcessId) -> None:
    deadline_s = time.monotonic() + _EXIT_TIMEOUT_S
    while procfs.is_alive(process):
        if time.monotonic() > deadline_s:
            raise InfrastructureError(f"process {process.pid} is still alive after SIGKILL")
        time.sleep(_POLL_S)


def _remove_proxies(owner: Owner) -> list[str]:
    """Remove a dead run's proxies from the user's Toxiproxy; returns a line for each of them."""
    url = owner.link_proxy
    if url is None:
        return []

    async def remove() -> list[str]:
        client = ToxiproxyClient(url)
        try:
            names = [n for n in await client.proxies() if n.startswith(f"{owner.run_id}-")]
            for name in names:
                await client.delete(name)
        finally:
            await client.close()
        return [f"removed the proxy {name} from {url}" for name in names]

    try:
        return asyncio.run(remove())
    except InfrastructureError as error:
        return [f"could not look for proxies of run {owner.run_id}: {error}"]
