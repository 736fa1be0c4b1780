"""Simulates power cuts of real disks: a restarted node lacks the data that it never synced.

A killed process leaves all its writes in the kernel's page cache, while a power cut leaves only
synced data. So next to each file that a node appends to, its disk keeps a small *length file* with
the durable length. The length file is written after the fsync, before the caller learns that it
succeeded. After a power cut, the node first truncates every file to its durable length. Since a
real disk may keep some unsynced data, the file may stay a bit longer.

The model follows LazyFS (Ramos et al., VLDB 2024) but needs no file system of its own. It covers
only writes through `RealDisk`, and drops only appended data. Replacing and removing files is
durable, as `harness.env.Disk` says, and a truncation is never undone.

After a truncation during a sync, a recorded length may be too large, so a power cut may lose less
than a real one could. A recorded length is never too small.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from harness.cluster import NodeSpec, env_nodes_only

SUFFIX: Final = ".harness-synced"
_NEVER: Final = -1
_BYTES: Final = 8


def beside(path: Path) -> Path:
    """Return the path of the length file of `path`. If it is missing, all of `path` is durable."""
    return path.with_name(path.name + SUFFIX)


def _read(word: Path) -> int | None:
    try:
        data = word.read_bytes()
    except FileNotFoundError:
        return None
    return int.from_bytes(data, "big", signed=True) if len(data) == _BYTES else None


def _write(word: Path, length: int) -> None:
    descriptor = os.open(word, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(descriptor, length.to_bytes(_BYTES, "big", signed=True), 0)
    finally:
        os.close(descriptor)


class PowerCut(msgspec.Struct, frozen=True):
    """A power cut. The node applies it to its disk at its next start (see `cut_power`)."""

    torn: bool


def power_cut(
    spec: NodeSpec, *, lose_unsynced: bool, torn: bool, faulty_disk: bool = False
) -> PowerCut | None:
    """Return the power cut for a kill; `None` unless `lose_unsynced` is true.

    Raises `UsageError` for a foreign program, unless it runs on a FUSE disk of the harness
    (`faulty_disk`, see `harness.environments.fuse`).
    """
    if not lose_unsynced:
        return None
    if spec.entry is None and not faulty_disk:
        raise env_nodes_only("a power cut", [spec.name])
    return PowerCut(torn)


class SyncedLength:
    """The recorded durable length of one file. Sync threads and the event loop may both use it."""

    def __init__(self, path: Path, *, new: bool) -> None:
        """Start recording. An existing file without a recorded length counts as durable."""
        self._beside = beside(path)
        self._lock = threading.Lock()
        self._over = False
        length = _NEVER if new else _read(self._beside)
        if length is None:
            length = path.stat().st_size
        self._length = length
        _write(self._beside, length)

    def synced(self, length: int) -> None:
        """Record that `length` bytes, the file's size before a successful fsync, are durable."""
        self._say(max, length)

    def truncated(self, length: int) -> None:
        self._say(min, length)

    def _say(self, which: Callable[[int, int], int], length: int) -> None:
        with self._lock:
            new_length = which(length, self._length)
            if new_length != self._length and not self._over:
                self._length = new_length
                _write(self._beside, new_length)

    def end(self) -> None:
        with self._lock:
            self._over = True


def cut_power(root: Path, rng: random.Random, *, torn: bool) -> int:
    """Drop the unsynced data of all files below `root`; returns the number of lost bytes.

    With `torn`, a random part of each file's unsynced data survives, from its beginning. A file
    that was never synced may be removed. The data that are left are durable.
    """
    lost = 0
    for word in sorted(root.rglob(f"*{SUFFIX}")):
        path = word.with_name(word.name.removesuffix(SUFFIX))
        length = _read(word)
        if length is None or not path.exists():
            word.unlink()
            continue
        size = path.stat().st_size
        durable = min(max(length, 0), size)
        kept = durable + (rng.randrange(size - durable + 1) if torn else 0)
        lost += size - kept
        if length == _NEVER and kept == 0:
            path.unlink()
            word.unlink()
            continue
        os.truncate(path, kept)
        _write(word, kept)
    return lost
