"""The memo of a store's lake remembers which run folders were read, so that none is read twice.

For each folder, the memo has the key of its run, the times and sizes of its files when they were
read, and a hash of their contents. If only times changed (as in a copied store), the hash shows
that the contents are the same. Without the memo, an update reads all folders.

The memo names runs before they are removed from the lake, so that the next update completes a
removal that was interrupted.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from results.lake.log.storage_errors import troubles
from results.lake.upkeep.removal import Pair

MEMO: Final = "folders.json"
FORM: Final = 1
FILES: Final = ("case.json", "run.json", "results.json", "history.parquet")
LOG: Final = "ops.log"
"""The file with the history of a run that has no history.parquet."""
_HEX_BYTES: Final = 8


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The key of a folder's run, and the results of `stamp_of` and `content_of` for the folder."""

    key: str
    stamp: str
    content: str


class Memo(msgspec.Struct, kw_only=True):
    """The entries of run folders by `NAME/ID`, and the runs of an unfinished removal."""

    form: int = FORM
    runs: dict[str, Entry] = {}
    removing: list[Pair] = []


def read_memo(lake: Path) -> Memo:
    """Read the memo of a lake; return an empty memo if it cannot be read."""
    try:
        memo = msgspec.json.decode((lake / MEMO).read_bytes(), type=Memo)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Memo()
    return memo if memo.form == FORM else Memo()


def write_memo(lake: Path, memo: Memo) -> None:
    """Replace the memo of a lake; raises errors of the disk."""
    part = lake / f".{MEMO}.{os.getpid()}"
    with troubles(str(lake)):
        try:
            part.write_bytes(msgspec.json.encode(memo))
            part.replace(lake / MEMO)
        finally:
            part.unlink(missing_ok=True)


def stamp_of(folder: Path) -> str:
    """Hash the times and sizes of the files with a run's case, record, results and history."""
    place = str(folder)
    stamps = [_stamp(f"{place}/{name}") for name in FILES]
    if stamps[-1] is None:
        stamps.append(_stamp(f"{place}/{LOG}"))
    return _hash(repr(stamps).encode())


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        stat = os.lstat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def content_of(folder: Path) -> str:
    """Hash the contents of a run's case, record, results and history; raises `OSError`."""
    parts = []
    for path in (folder / name for name in (*FILES, LOG)):
        if path.is_file():
            with path.open("rb") as file:
                parts.append((path.name, hashlib.file_digest(file, "blake2b").hexdigest()))
    return _hash(repr(parts).encode())


def _hash(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=_HEX_BYTES).hexdigest()
