"""A command that runs beside a node and ends: a step of its set-up, or a readiness probe."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.environments.process.accounts import Account
from harness.environments.process.child import Child
from harness.environments.procfs import ProcessId
from harness.environments.warden import Kill, Warden
from harness.errors import InfrastructureError

__all__ = ["run_once"]

_KILL_TIMEOUT_S: Final = 10.0


async def run_once(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    account: Account | None,
    warden: Warden,
    key: str,
    timeout_s: float,
    on_output: Callable[[bytes], None],
    on_start: Callable[[ProcessId], None],
) -> int | None:
    """Run it to its end; the exit code, `None` when it took too long and was killed.

    `key` names it to the warden. It never survives the caller. Raises `InfrastructureError` where
    it cannot be started, or ended.
    """
    codes: list[int] = []
    child = Child(
        argv,
        environment=environment,
        folder=folder,
        on_output=on_output,
        on_exit=codes.append,
        on_lost=lambda _: None,  # less is shown of what it printed
        account=account,
    )
    warden.guard(key, Kill(*child.identity))
    try:
        on_start(child.identity)
        in_time = await child.wait_exited(timeout_s)
    finally:
        child.signal(signal.SIGKILL)
        gone = await child.wait_exited(_KILL_TIMEOUT_S)
        if gone:
            warden.release(key)
    if not gone:
        raise InfrastructureError(
            f"{argv[0]!r} (pid {child.pid}) is still there {_KILL_TIMEOUT_S:.0f} s after SIGKILL"
        )
    return codes[0] if in_time else None
