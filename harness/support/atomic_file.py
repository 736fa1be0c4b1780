"""Output files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from harness.errors import InfrastructureError, UsageError

_OF_THIS_PROCESS = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,6})")
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def descriptor_of(path: Path) -> int | None:
    """Return the descriptor that a path such as `/dev/stdout` refers to, else `None`.

    Such a path must not be opened or replaced. If the shell redirects the descriptor to a plain
    file, opening the path again would overwrite earlier output, and a rename would remove
    `/dev/stdout` itself.
    """
    match = _OF_THIS_PROCESS.fullmatch(str(path))
    return int(match[1]) if match else _STREAMS.get(str(path))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 text file that replaces `path` when the block ends (see `replacing_bytes`)."""
    with (
        replacing_bytes(path) as file,
        io.TextIOWrapper(file, encoding="utf-8") as text,
    ):
        yield text


@contextlib.contextmanager
def replacing_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends without an error.

    If `path` is not a plain file but, for example, `/dev/null` or a pipe, the block writes to it
    directly, since a rename would remove it for all processes. A link stays a link, and its
    destination is replaced. Raises `OSError`.
    """
    number = descriptor_of(path)
    if number is not None:
        with os.fdopen(os.dup(number), "wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = _end_of_links(path)
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` by a file with this content; raises `InfrastructureError`."""
    try:
        with replacing_bytes(path) as file:
            file.write(data)
    except OSError as error:
        raise InfrastructureError(f"cannot write {path}: {error.strerror}") from error


def _end_of_links(path: Path) -> Path:
    """Return `path` with all links resolved; raises `OSError` for links that form a cycle."""
    try:
        return path.resolve()
    except RuntimeError as error:  # Python 3.11 raises this for ELOOP
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def refuse_folder(flag: str, path: Path | None) -> None:
    """Raise `UsageError` if the output file that the user named with `flag` is a folder."""
    if path is not None and path.is_dir():
        raise UsageError(f"{flag} is the folder {str(path)!r}; name a file")
