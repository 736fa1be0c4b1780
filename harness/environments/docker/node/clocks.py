"""libfaketime for the foreign programs of a run in containers.

The shared memory of such a node (`/dev/shm`) is a volume in memory that its keeper has as well:
what libfaketime reads is written there by commands in the keeper, while the node runs, is frozen
or is down, with any image. The library comes from the harness's node image and is copied
into the node's container; it works with any image whose C library is glibc.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final

from harness.environments.docker.engine.archives import tar_files
from harness.environments.docker.engine.engine import Engine
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
from harness.errors import InfrastructureError

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - in containers
NO_PRELOAD: Final = {"LD_PRELOAD": ""}
"""For commands next to a node, which read another clock than the node."""
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
# An access time in the distant past, so that the kernel notes the next read.
_WRITE: Final = f"""
cd {SHARED_MEMORY} || exit 1
printf '%s\\n' "$1" >new.setting && chmod 644 new.setting && touch -a -d @0 new.setting &&
mv new.setting {_NAMES.setting}
"""
WHEN_READ: Final = ("stat", "-c", "%X", f"{SHARED_MEMORY}/{_NAMES.setting}")


def run_in_keeper(engine: Engine, keeper: str, command: Sequence[str]) -> str:
    """The output of a command in a keeper; raises `InfrastructureError`."""
    result = engine.exec(keeper, command)
    if result.code != 0:
        raise InfrastructureError(
            f"docker: {keeper} did not do what libfaketime needs: {result.output.strip()[-500:]}"
        )
    return result.output


def write(engine: Engine, keeper: str, line: str) -> None:
    """Replace the setting that the node's libfaketime reads, atomically."""
    run_in_keeper(engine, keeper, ["sh", "-c", _WRITE, "write", line])


def prepare(engine: Engine, keeper: str) -> None:
    """Put into the shared memory of a keeper what its node's libfaketime needs."""
    run_in_keeper(engine, keeper, ["sh", "-c", _PREPARE])
    write(engine, keeper, setting(ClockError()))


def library(engine: Engine, keeper: str) -> bytes:
    """An archive, for `/`, with the library of the image in which this keeper runs."""
    text = run_in_keeper(engine, keeper, _ENCODE)
    try:
        binary = base64.b64decode(text.strip(), validate=True)
    except binascii.Error as error:
        raise InfrastructureError(f"docker: libfaketime came broken: {text[:200]!r}") from error
    return tar_files({_LIBRARY: without_waits(binary)})


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The additions to the environment of a node, which has `given`."""
    return preload(f"/{_LIBRARY}", _NAME, SHARED_MEMORY, given)
