"""Folders of runs that a lake keeps beside its tables: `folders/NAME/ID@DIGITS/`.

Of a run that is not valid people want the page, the logs and the results; its history is in the
tables. Files go first and the row that names them last, so a row never names what is not there;
files of a run whose row never came are written again with it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.errors import HistoryError
from results.lake.made import MADE
from results.lake.trouble import troubles

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from results.lake.lake import Lake

__all__ = ["FOLDERS", "fetch_folder", "files_of", "folder_of", "writer_to"]

FOLDERS: Final = "folders"
FILES_MAX: Final = 10_000
BYTES_MAX: Final = 256 << 20
_IN_TABLES: Final = frozenset({"history.parquet", "history", "ops.log", MADE})


def folder_of(key: str) -> str:
    """Where the run `key` is kept, from the lake's root."""
    return f"{FOLDERS}/{key}"


def files_of(key: str, folder: Path) -> dict[str, bytes]:
    """What a lake keeps of a run's folder, by name in the lake: its plain files but the history.

    Raises `HistoryError` for a folder beyond all measure, and `OSError`.
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
    return {
        f"{folder_of(key)}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in found
    }


def writer_to(lake: Lake) -> Callable[[str, bytes], None]:
    """Writes a file of a lake's own storage, as patiently as the lake writes its tables."""
    place = lake.place
    made = ""

    def put(name: str, content: bytes) -> None:
        nonlocal made
        with troubles(place.uri):
            above = name.rpartition("/")[0]
            if place.local and above != made:
                place.files.create_dir(above, recursive=True)
            made = ""  # where a write fails, the folder may be gone
            with place.files.open_output_stream(name) as sink:
                sink.write(content)
            made = above

    def write(name: str, content: bytes) -> None:
        lake.patience.call(f"write to {place.uri}", lambda: put(name, content))

    return write


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
