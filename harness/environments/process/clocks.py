"""Sets the clocks of foreign programs (not written for the harness) by libfaketime.

libfaketime's files are in the machine's shared memory, where libfaketime looks for its semaphore
and its page. The setting file needs a file system on which the kernel records read times, as it
does in shared memory. The file names contain a digest of the run's scratch folder, so that `harness
clean` finds the files. The warden removes them together with the scratch folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.cluster import NodeSpec
from harness.environments.faulty import ClockError
from harness.environments.host.faketime import (
    PAGE,
    SEMAPHORE,
    Names,
    find_library,
    preload,
    setting,
    without_waits,
)
from harness.environments.host.foreignclock import PROCESSES
from harness.environments.host.readiness import COMMAND_S, RunCommand
from harness.environments.process.child import run_once
from harness.environments.warden import Warden
from harness.errors import InfrastructureError, UsageError

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where shm_open(3) and sem_open(3) look
_COPY: Final = "libfaketime-harness.so"


def check_clocks(nodes: Iterable[str]) -> None:
    """Raise `UsageError` if clock faults may affect any of `nodes` and libfaketime is missing."""
    wanted = ", ".join(nodes)
    if wanted and find_library() is None:
        raise UsageError(
            f"faults of the clocks of foreign programs ({wanted}) need libfaketime, which is not "
            "installed; install it (apt-get install libfaketime), or use --env docker"
        )


def _name(scratch: Path, node: str) -> str:
    digest = hashlib.blake2b(str(scratch).encode(), digest_size=6).hexdigest()
    return f"harness-{digest}-{node}"


def clock_files(scratch: Path, nodes: Iterable[str]) -> list[str]:
    """Return the paths of libfaketime's files in shared memory for these nodes."""
    return [str(_MEMORY / file) for node in nodes for file in Names.of(_name(scratch, node))]


def remove_clocks(scratch: Path) -> list[str]:
    """Remove a run's libfaketime files from shared memory; returns a line for each file."""
    lines = []
    for file in sorted(_MEMORY.glob(f"*{_name(scratch, '')}*")):
        file.unlink(missing_ok=True)
        lines.append(f"removed {file}")
    return lines


class ProcessClock:
    """The driver's access to the libfaketime of one node (see `foreignclock.Reach`)."""

    def __init__(
        self,
        spec: NodeSpec,
        scratch: Path,
        *,
        warden: Warden,
        pid: Callable[[], int | None],
        run: RunCommand,
    ) -> None:
        """Create libfaketime's files. `run` runs a command next to the node, for `ask`."""
        self._spec = spec
        self._name = _name(scratch, spec.name)
        self._names = Names.of(self._name)
        self._library = scratch / _COPY
        self._scratch = scratch
        self._warden = warden
        self._pid = pid
        self._run = run
        try:
            self._make()
        except OSError as error:
            raise InfrastructureError(f"libfaketime cannot be set up: {error}") from error

    def _make(self) -> None:
        if not self._library.exists():
            library = find_library()
            assert library is not None, "looked for before"
            self._library.write_bytes(without_waits(library.read_bytes()))
            self._library.chmod(0o644)
        for name, data in ((self._names.semaphore, SEMAPHORE), (self._names.page, PAGE)):
            path = _MEMORY / name
            path.write_bytes(data)
            path.chmod(0o666)  # any user of a node may use the file
        self._write(setting(ClockError()))

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        return preload(str(self._library), self._name, str(_MEMORY), given)

    def _write(self, line: str) -> None:
        path = _MEMORY / self._names.setting
        new = path.with_suffix(".new")
        new.write_text(f"{line}\n", encoding="ascii")
        new.chmod(0o644)
        os.utime(new, ns=(0, new.stat().st_mtime_ns))  # so that the kernel records the next read
        new.replace(path)

    async def write(self, line: str) -> None:
        try:
            self._write(line)
        except OSError as error:
            raise InfrastructureError(
                f"the clock of {self._spec.name} cannot be set: {error}"
            ) from error

    async def was_read(self) -> bool:
        try:
            return (_MEMORY / self._names.setting).stat().st_atime_ns != 0
        except OSError as error:
            raise InfrastructureError(
                f"the setting file for the clock of {self._spec.name} is gone: {error}"
            ) from error

    async def processes(self) -> str:
        pid = self._pid()
        if pid is None:
            return "it has ended"
        _, output = await run_once(
            [*PROCESSES, str(pid)],
            environment=dict(os.environ),
            folder=self._scratch,
            account=None,  # the harness is root or the node's user, so it may inspect the node
            warden=self._warden,
            key=f"look/{self._spec.name}",
            timeout_s=COMMAND_S,
        )
        return output

    async def ask(self, command: Sequence[str]) -> tuple[int | None, str]:
        return await self._run(command)
