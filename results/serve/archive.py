"""Sends a run's folder as a zip file that is made on the fly, with only one piece in memory."""

from __future__ import annotations

import datetime as dt
import io
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from results.serve.paths import FileEntry, NotThere

ARCHIVE_BYTES_MAX: Final = 4 << 30
PIECE_BYTES: Final = 256 << 10
_PACKED: Final = (".parquet", ".gz", ".zst", ".zip")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


class _Pipe(io.RawIOBase):
    """The output of `zipfile`. It cannot seek, so the archive has sizes after the data."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(memoryview(data))  # type: ignore[arg-type]
        self._pieces.append(piece)
        return len(piece)

    def drain(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def archive(
    run: str, files: Sequence[FileEntry], open_file: Callable[[Sequence[str]], int]
) -> Iterator[bytes]:
    """Yield the pieces of a run's zip file, in which `MISSING.txt` lists files that vanished.

    `open_file` returns the descriptor of a file from the parts of its path, or raises `NotThere`.
    Raises `OSError` if a file cannot be read to its end, so that the archive does not look
    complete.
    """
    pipe = _Pipe()
    gone: list[str] = []
    with zipfile.ZipFile(pipe, "w", allowZip64=True) as target:
        for entry in files:
            try:
                number = open_file(entry.path.split("/"))
            except NotThere:
                gone.append(entry.path)
                continue
            info = zipfile.ZipInfo(f"{run}/{entry.path}", _moment(entry.modified_s))
            stored = entry.path.endswith(_PACKED)
            info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            with (
                os.fdopen(number, "rb") as source,
                target.open(info, "w", force_zip64=True) as part,
            ):
                while piece := source.read(PIECE_BYTES):
                    part.write(piece)
                    yield pipe.drain()
        if gone:
            target.writestr(f"{run}/MISSING.txt", "\n".join(gone) + "\n")
    yield pipe.drain()


def _moment(modified_s: float) -> tuple[int, int, int, int, int, int]:
    try:
        time = dt.datetime.fromtimestamp(modified_s, tz=dt.UTC)
    except (OverflowError, ValueError, OSError):
        return _EPOCH
    if not 1980 <= time.year <= 2107:
        return _EPOCH
    return time.year, time.month, time.day, time.hour, time.minute, time.second
