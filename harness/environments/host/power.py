"""Power cuts of real disks: data that a node never synced is gone when it starts again.

A killed process leaves all its writes in the kernel's page cache; a power cut would leave only
synced data. So a node's disk keeps, next to each file that it appends to, a small one that says
how much of it is durable, written after the fsync and before the caller hears of it. After a power
cut the next incarnation first cuts every file to that length, or, as a disk may, a bit beyond it.
The model is LazyFS (Ramos et al., VLDB 2024), without a file system of its own: it holds for what
goes through `RealDisk`, and takes only data that was appended: names that were replaced or removed
are durable, as `harness.env.Disk` says, and a truncation is never undone.

A wrong length could only be too large (a truncation during a sync), which takes less than it might.
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
    """The small file that says how much of `path` is durable; without it all is."""
    return path.with_name(path.name + SUFFIX)


def _read(word: Path) -> int | None:
    """The length in such a file; `None` where it is missing or was never finished."""
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
    """A power cut that the next incarnation of a node finds on its disk (`cut_power`)."""

    torn: bool


def power_cut(
    spec: NodeSpec, *, lose_unsynced: bool, torn: bool, faulty_disk: bool = False
) -> PowerCut | None:
    """The power cut of a kill, if any; raises `UsageError` for a program whose disk is not ours.

    `faulty_disk`: it has one of ours all the same (`harness.environments.fuse`).
    """
    if not lose_unsynced:
        return None
    if spec.entry is None and not faulty_disk:
        raise env_nodes_only("a power cut", [spec.name])
    return PowerCut(torn)


class SyncedLength:
    """The durable length of one file. Used by the threads that sync, and by the loop."""

    def __init__(self, path: Path, *, new: bool) -> None:
        """A file without a recorded length is durable: it was replaced, or is old."""
        self._beside = beside(path)
        self._lock = threading.Lock()
        self._over = False
        length = _NEVER if new else _read(self._beside)
        if length is None:
            length = path.stat().st_size
        self._length = length
        _write(self._beside, length)

    def synced(self, length: int) -> None:
        """Record the length before an fsync that has succeeded."""
        self._say(max, length)

    def truncated(self, length: int) -> None:
        """The file is not longer than this any more."""
        self._say(min, length)

    def _say(self, which: Callable[[int, int], int], length: int) -> None:
        with self._lock:
            new_length = which(length, self._length)
            if new_length != self._length and not self._over:
                self._length = new_length
                _write(self._beside, new_length)

    def end(self) -> None:
        """Stop recording: the name goes to another file, or to none."""
        with self._lock:
            self._over = True


def cut_power(root: Path, rng: random.Random, *, torn: bool) -> int:
    """Take the data that was never synced from all files; returns the number of lost bytes.

    With `torn` an arbitrary beginning of it survives, cut anywhere; without, none does. A file that
    was never synced may be gone altogether. The rest is durable.
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
