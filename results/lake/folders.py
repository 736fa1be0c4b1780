"""Folders of runs that a lake keeps beside its tables: `folders/NAME/ID@DIGITS/`.

Of a run that is not valid people want the page, the logs and the results; its history is in the
tables. Files go first and the row that names them last, so a row never names what is not there;
files of a run whose row never came are written again with it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.errors import HistoryError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["FOLDERS", "fetch_folder", "folder_of", "keep_folder"]

FOLDERS: Final = "folders"
FILES_MAX: Final = 10_000
BYTES_MAX: Final = 1 << 30
_IN_TABLES: Final = frozenset({"history.parquet", "history", "ops.log"})


def folder_of(key: str) -> str:
    """Where the run `key` is kept, from the lake's root."""
    return f"{FOLDERS}/{key}"


def keep_folder(files: FileSystem, key: str, folder: Path) -> None:
    """Copy the plain files of a run's folder, but for its history.

    Raises `HistoryError` for a folder beyond all measure, and what the file system raises.
    """
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.relative_to(folder).parts[0] not in _IN_TABLES
        and path.is_file()
        and not path.is_symlink()
    ]
    size = sum(path.stat().st_size for path in found)
    if len(found) > FILES_MAX or size > BYTES_MAX:
        raise HistoryError(
            f"{str(folder)!r} has {len(found)} files of {size} bytes; a lake keeps at most "
            f"{FILES_MAX} and {BYTES_MAX} of a run: move what is not its own out of it"
        )
    for path in found:
        to = f"{folder_of(key)}/{path.relative_to(folder).as_posix()}"
        files.create_dir(to.rpartition("/")[0], recursive=True)
        with path.open("rb") as source, files.open_output_stream(to) as sink:
            shutil.copyfileobj(source, sink)


def fetch_folder(files: FileSystem, kept: str, folder: Path) -> None:
    """Copy what `runs.folder` names into a run's folder; what lies there already stays."""
    from pyarrow import fs

    for info in files.get_file_info(fs.FileSelector(kept, recursive=True)):
        to = folder / info.path.removeprefix(f"{kept}/")
        if (
            info.type != fs.FileType.File
            or to.exists()
            or not to.resolve().is_relative_to(folder.resolve())
        ):
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        with files.open_input_stream(info.path) as source, to.open("wb") as sink:
            shutil.copyfileobj(source, sink)
