"""Sets the clocks of foreign programs (not written for the harness) in containers.

libfaketime (`host.faketime`) shifts the time that a program reads. A node with a foreign program
has its shared memory (`/dev/shm`) in an in-memory volume. The node's keeper, the container that
owns the network namespace, mounts this volume as well. Commands in the keeper write the file that
libfaketime reads, even while the node is paused or down. The library is copied from the harness's
node image into the node's container; it works with every image whose C library is glibc.
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
"""Turns libfaketime off for set-up commands and for commands in a node's container."""
_NAME: Final = "harness"
_NAMES: Final = Names.of(_NAME)
_LIBRARY: Final = "harness/libfaketime-harness.so"

_ENCODE: Final = ("sh", "-c", f"base64 -w 0 /usr/lib/*/faketime/{LIBRARY}")
_SEMAPHORE: Final = "".join(rf"\{byte:03o}" for byte in SEMAPHORE)
# Create libfaketime's files, once per node.
_PREPARE: Final = f"""
cd {SHARED_MEMORY} || exit 1
printf '{_SEMAPHORE}' >{_NAMES.semaphore}
head -c {len(PAGE)} /dev/zero >{_NAMES.page}
chmod 666 {_NAMES.semaphore} {_NAMES.page}
"""
# The old access time makes the kernel record the next read despite the mount option `relatime`.
_WRITE: Final = f"""
cd {SHARED_MEMORY} || exit 1
printf '%s\\n' "$1" >new.setting && chmod 644 new.setting && touch -a -d @0 new.setting &&
mv new.setting {_NAMES.setting}
"""
WHEN_READ: Final = ("stat", "-c", "%X", f"{SHARED_MEMORY}/{_NAMES.setting}")


def run_in_keeper(engine: Engine, keeper: str, command: Sequence[str]) -> str:
    """Run a command in a keeper container; returns its output, or raises `InfrastructureError`."""
    result = engine.exec(keeper, command)
    if result.code != 0:
        raise InfrastructureError(
            f"docker: a command for libfaketime failed in {keeper}: {result.output.strip()[-500:]}"
        )
    return result.output


def write(engine: Engine, keeper: str, line: str) -> None:
    """Replace atomically the setting that the node's libfaketime reads."""
    run_in_keeper(engine, keeper, ["sh", "-c", _WRITE, "write", line])


def prepare(engine: Engine, keeper: str) -> None:
    """Create the files that the node's libfaketime needs, in the keeper's shared memory."""
    run_in_keeper(engine, keeper, ["sh", "-c", _PREPARE])
    write(engine, keeper, setting(ClockError()))


def library(engine: Engine, keeper: str) -> bytes:
    """Return a tar archive with the keeper's libfaketime, to be unpacked at `/`."""
    text = run_in_keeper(engine, keeper, _ENCODE)
    try:
        binary = base64.b64decode(text.strip(), validate=True)
    except binascii.Error as error:
        raise InfrastructureError(f"docker: libfaketime is not base64: {text[:200]!r}") from error
    return tar_files({_LIBRARY: without_waits(binary)})


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for libfaketime, given the variables of the node."""
    return preload(f"/{_LIBRARY}", _NAME, SHARED_MEMORY, given)
