"""libfaketime for the foreign programs of a run in containers.

The shared memory of such a node (`/dev/shm`) is a volume in memory that its keeper has as well:
what libfaketime reads is written there by commands in the keeper, while the node runs, is frozen or
is down, and whatever its image is. The library comes from the harness's node image and is copied
into the node's container; it works with any image whose C library is glibc.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harness.environments.docker.engine.archives import tar_files
from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.node.node import DockerNode
from harness.environments.faulty import ClockError
from harness.environments.host.faketime import (
    LIBRARY,
    PAGE,
    SEMAPHORE,
    Names,
    preload,
    setting,
    without_waits,
)
from harness.environments.host.foreignclock import PROCESSES, ForeignClock
from harness.errors import InfrastructureError

if TYPE_CHECKING:
    from harness.environments.docker.node.containers import Containers

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - in containers
NO_PRELOAD: Final = {"LD_PRELOAD": ""}
"""For commands beside a node: what they read of the clock is not what the node reads."""
_NAME: Final = "harness"
_NAMES: Final = Names.of(_NAME)
_LIBRARY: Final = "harness/libfaketime-harness.so"

_ENCODE: Final = ("sh", "-c", f"base64 -w 0 /usr/lib/*/faketime/{LIBRARY}")
_SEMAPHORE: Final = "".join(rf"\{byte:03o}" for byte in SEMAPHORE)
# A keeper is prepared once.
_PREPARE: Final = f"""
cd {SHARED_MEMORY} || exit 1
printf '{_SEMAPHORE}' >{_NAMES.semaphore}
head -c {len(PAGE)} /dev/zero >{_NAMES.page}
chmod 666 {_NAMES.semaphore} {_NAMES.page}
"""
# It looks as if nobody had read it in ages, so that the kernel notes when somebody does.
_WRITE: Final = f"""
cd {SHARED_MEMORY} || exit 1
printf '%s\\n' "$1" >new.setting && chmod 644 new.setting && touch -a -d @0 new.setting &&
mv new.setting {_NAMES.setting}
"""
_WHEN_READ: Final = ("stat", "-c", "%X", f"{SHARED_MEMORY}/{_NAMES.setting}")


def _done(engine: Engine, keeper: str, command: Sequence[str]) -> str:
    result = engine.exec(keeper, command)
    if result.code != 0:
        raise InfrastructureError(
            f"docker: {keeper} did not do what libfaketime needs: {result.output.strip()[-500:]}"
        )
    return result.output


def _write(engine: Engine, keeper: str, line: str) -> None:
    _done(engine, keeper, ["sh", "-c", _WRITE, "write", line])


def prepare(engine: Engine, keeper: str) -> None:
    """Put into the shared memory of a keeper what its node's libfaketime needs."""
    _done(engine, keeper, ["sh", "-c", _PREPARE])
    _write(engine, keeper, setting(ClockError()))


def library(engine: Engine, keeper: str) -> bytes:
    """An archive, for `/`, with the library of the image in which this keeper runs."""
    text = _done(engine, keeper, _ENCODE)
    try:
        found = base64.b64decode(text.strip(), validate=True)
    except binascii.Error as error:
        raise InfrastructureError(f"docker: libfaketime came broken: {text[:200]!r}") from error
    return tar_files({_LIBRARY: without_waits(found)})


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What the environment of a node, which has `given`, needs as well."""
    return preload(f"/{_LIBRARY}", _NAME, SHARED_MEMORY, given)


class DockerClock:
    """How the driver reaches the libfaketime of one node (`foreignclock.Reach`)."""

    def __init__(
        self, node: str, containers: Containers, in_thread: Callable[..., Awaitable[Any]]
    ) -> None:
        self._node = node
        self._containers = containers
        self._engine = containers.engine
        self._keeper = containers.keeper(node)
        self._in_thread = in_thread

    async def write(self, line: str) -> None:
        """Make this the setting, at once and as a whole."""
        await self._in_thread(_write, self._engine, self._keeper, line)

    async def was_read(self) -> bool:
        """Whether somebody has read it since it was written."""
        when: str = await self._in_thread(_done, self._engine, self._keeper, _WHEN_READ)
        return when.strip() != "0"

    async def processes(self) -> str:
        """What `PROCESSES` prints of all that run below the container's init."""
        _, output = await self.ask([*PROCESSES, "1"])
        return output.partition("\n")[2] if output.startswith("process 1 ") else output

    async def ask(self, command: Sequence[str]) -> tuple[int | None, str]:
        """Run a command in the node's container; one that has ended can run nothing."""
        try:
            found: tuple[int | None, str] = await self._in_thread(
                self._containers.command, self._node, command
            )
        except InfrastructureError as error:
            return 1, str(error)
        return found


def give_clocks(
    names: Iterable[str],
    nodes: Mapping[str, DockerNode],
    containers: Containers,
    in_thread: Callable[..., Awaitable[Any]],
) -> None:
    """Let the driver reach the clocks of these nodes."""
    for name in names:
        entry = nodes[name]
        reach = DockerClock(name, containers, in_thread)
        entry.control.foreign_clock = ForeignClock(entry.control.spec, reach)
