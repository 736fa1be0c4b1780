"""Copies of run folders that a lake keeps next to its tables, as `folders/NAME/ID@DIGITS/`.

A lake keeps the page, the logs and the results of runs that are not valid. Their histories are in
the tables. Files are written before the row that names them, so a row never names an absent file.

On a disk, the files are plain copies. In an object store, every file costs a request. So there, all
files that a browser does not open are in one archive, `kept.zip`.
"""

from __future__ import annotations

import functools
import io
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyarrow import fs
from pyarrow.fs import FileSystem

from harness.errors import HistoryError
from results.lake.log.lake import Lake
from results.lake.log.storage_errors import troubles

FOLDERS: Final = "folders"
ARCHIVE: Final = "kept.zip"
LOOSE: Final = frozenset({"report.html", "trace.json"})
"""Files that stay outside the archive, since links point to them."""
FILES_MAX: Final = 10_000
BYTES_MAX: Final = 256 << 20
_TORN: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, RuntimeError,
    FileExistsError, NotADirectoryError,
)  # fmt: skip
_IN_TABLES: Final = frozenset({"history.parquet", "history", "ops.log"})


def folder_of(key: str) -> str:
    """Return the folder of the run `key`, relative to the lake's root."""
    return f"{FOLDERS}/{key}"


def files_of(folder: Path) -> dict[str, bytes]:
    """Read the files of a run's folder that a lake keeps: all plain files except the history.

    Raises `HistoryError` for a folder with too many or too large files, and `OSError`.
    """
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.relative_to(folder).parts[0] not in _IN_TABLES
        and path.is_file()
        and not path.is_symlink()
    ]
    _refuse_beyond_measure(str(folder), [path.stat().st_size for path in paths])
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _refuse_beyond_measure(folder: str, sizes: Sequence[int]) -> None:
    if len(sizes) > FILES_MAX or sum(sizes) > BYTES_MAX:
        raise HistoryError(
            f"{folder!r} has {len(sizes)} files of {sum(sizes)} bytes; a lake keeps at most "
            f"{FILES_MAX} files and {BYTES_MAX} bytes per run: move foreign files elsewhere"
        )


def writer_to(lake: Lake) -> Callable[[str, Mapping[str, bytes]], None]:
    """Return a function that writes a folder's files into a lake's storage, with retries."""
    place = lake.place
    made = ""

    def put(name: str, content: bytes) -> None:
        nonlocal made
        with troubles(place.uri):
            above = name.rpartition("/")[0]
            if place.local and above != made:
                place.files.create_dir(above, recursive=True)
            made = ""
            with place.files.open_output_stream(name) as sink:
                sink.write(content)
            made = above

    def write(folder: str, files: Mapping[str, bytes]) -> None:
        for name, content in (files if place.local else _packed(files)).items():
            what = functools.partial(put, f"{folder}/{name}", content)
            lake.patience.call(f"write to {place.uri}", what)

    return write


def _packed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Pack all files except `LOOSE` into one archive. Equal files give equal bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            if name not in LOOSE:
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 1)
    loose = {name: content for name, content in files.items() if name in LOOSE}
    return {**loose, ARCHIVE: packed.getvalue()} if len(loose) < len(files) else loose


def unpack(folder: Path) -> None:
    """Unpack the archive in a run's folder. Existing files stay.

    Raises `HistoryError` for an archive that no lake wrote.
    """
    path = folder / ARCHIVE
    if not path.is_file():
        return
    try:
        with zipfile.ZipFile(path) as archive:
            inside = archive.infolist()
            _refuse_beyond_measure(str(path), [info.file_size for info in inside])
            for info in inside:
                to = folder / info.filename
                if info.is_dir() or to.exists() or not _is_below(to, folder):
                    continue
                to.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as source, to.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
    except _TORN as error:
        raise HistoryError(f"{str(path)!r} is not an archive of a lake: {error}") from error
    path.unlink()


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def fetch_folder(files: FileSystem, kept: str, folder: Path) -> None:
    """Copy the files that a lake keeps in `kept` (from `runs.folder`) to `folder`.

    Existing files stay.
    """
    for info in files.get_file_info(fs.FileSelector(kept, recursive=True)):
        to = folder / info.path.removeprefix(f"{kept}/")
        if info.type != fs.FileType.File or to.exists() or not _is_below(to, folder):
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        with files.open_input_stream(info.path) as source, to.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    unpack(folder)
