"""Computes a value in a fork of this process, so that the computation has no side effect here."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable

from harness.errors import InfrastructureError

_READ_BYTES = 1 << 20


def in_copy(compute: Callable[[], bytes], *, timeout_s: float) -> bytes:
    """Return the result of `compute`, called in a fork of this process.

    `compute` may read and change any object, without any effect on this process. Raises
    `InfrastructureError` if it fails or takes more than `timeout_s` of real time.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns if there are threads. The fork takes no lock that a thread may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _compute(compute, reader, writer)
    os.close(writer)
    try:
        data = _received(reader, time.monotonic() + timeout_s)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)  # has no effect if the child has already exited
        os.waitpid(child, 0)
    if data is None:
        raise InfrastructureError(f"looking at the stopped world took more than {timeout_s:g} s")
    if data[:1] != b"+":
        raise InfrastructureError(f"cannot look at the stopped world: {data[1:].decode()}")
    return data[1:]


def _compute(compute: Callable[[], bytes], reader: int, writer: int) -> None:
    """Send the result of `compute`, and end this process, which is the fork."""
    try:
        os.close(reader)
        try:
            data = b"+" + compute()
        except BaseException:  # noqa: BLE001 - the parent raises it
            data = b"-" + traceback.format_exc(limit=-6).encode()
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def _received(reader: int, deadline_s: float) -> bytes | None:
    """Return all bytes up to the end of the pipe; `None` after the deadline."""
    parts: list[bytes] = []
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([reader], [], [], left_s)[0]:
            return None
        part = os.read(reader, _READ_BYTES)
        if not part:
            return b"".join(parts)
        parts.append(part)
