"""Opens files below a store folder by folder, so that no symbolic link can lead outside.

If the server checked a path first and opened it later, a folder could be replaced by a link in
between. So every part of a path is opened relative to its parent, with `O_NOFOLLOW`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

FILES_MAX: Final = 2_000
DEPTH_MAX: Final = 6
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotThere(Exception):  # noqa: N818 - not a failure of the server: the answer is 404
    """The file does not exist, or must not be shown."""


class FileEntry(msgspec.Struct, frozen=True):
    """A plain file of a run."""

    path: str  # relative to the run's folder, with slashes
    size: int
    modified_s: float


def is_plain_name(name: str) -> bool:
    """Whether a name may be part of a path below the store: no dot file, no separator, UTF-8."""
    if not name or name.startswith(".") or len(name) > 255:
        return False
    if any(character in name for character in "/\\\0"):
        return False
    return name.isprintable()


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """Read a plain file of at most `bytes_max` bytes. Any other file is an error.

    Raises `ValueError` or `OSError`.
    """
    number = os.open(path, _FILE)
    with os.fdopen(number, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a plain file")
        if status.st_size > bytes_max:
            raise ValueError(f"has {status.st_size} bytes; at most {bytes_max} are read")
        return file.read(bytes_max)


def open_below(store: Path, parts: Sequence[str]) -> int:
    """Open a plain file below `store`; return its descriptor, or raise `NotThere`."""
    if not parts or len(parts) > DEPTH_MAX + 2 or not all(is_plain_name(part) for part in parts):
        raise NotThere
    try:
        folder = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotThere from error
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        number = os.open(parts[-1], _FILE, dir_fd=folder)
    except (OSError, ValueError) as error:
        raise NotThere from error
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise NotThere
    return number


def files_below(folder: Path) -> tuple[list[FileEntry], bool]:
    """List the plain files of a run's folder by name; also return whether some were left out."""
    entries: list[FileEntry] = []
    for entry in _walk(folder, "", 1):
        if len(entries) >= FILES_MAX:
            return sorted(entries, key=lambda item: item.path), True
        entries.append(entry)
    return sorted(entries, key=lambda item: item.path), False


def first_link(folder: Path) -> str | None:
    """Return the name of a symbolic link in a run's folder, or of an entry that is not searched."""
    seen = 0
    waiting = [(folder, 1)]
    while waiting:
        place, depth = waiting.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                seen += 1
                if entry.is_symlink() or seen > FILES_MAX or depth > DEPTH_MAX:
                    return entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((Path(entry.path), depth + 1))
    return None


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[FileEntry]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not is_plain_name(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth < DEPTH_MAX:
                yield from _walk(folder / entry.name, f"{prefix}{entry.name}/", depth + 1)
        elif entry.is_file(follow_symlinks=False):
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield FileEntry(f"{prefix}{entry.name}", about.st_size, about.st_mtime)
