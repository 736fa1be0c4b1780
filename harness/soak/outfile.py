"""Output files that are whole or not there, whatever happens while they are written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A file that takes the place of `path` once the block has ended well.

    What is no plain file, such as `/dev/null` or a pipe, is written to as it is: to rename
    something over it would take it away from everybody. Raises `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            yield file
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
