"""Packs and unpacks tar archives, for copies to and from containers and for image builds."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO


def tar_files(files: Mapping[str, bytes], *, executable: frozenset[str] = frozenset()) -> bytes:
    """Return a reproducible tar archive of `files`, owned by root, for `Engine.put_archive`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755 if name in executable else 0o644
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def tar_folder(name: str, mode: int) -> bytes:
    """Return a tar archive with one empty folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, mode
        tar.addfile(info)
    return buffer.getvalue()


def pack(folder: Path, top: str, owner: int, archive: IO[bytes]) -> None:
    """Write a tar archive of a folder's content, below `top`, owned by the user id `owner`."""

    def owned(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = owner
        info.uname = info.gname = ""
        return info

    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, f"{top}/{path.name}", filter=owned)


def unpack(archive: IO[bytes], to: Path) -> None:
    """Unpack the content of an archive's single top-level folder into the new folder `to`.

    The calling user owns the files. No file can land outside `to` (PEP 706's filter `data`).
    """
    to.mkdir()
    with tarfile.open(fileobj=archive) as tar:
        for member in tar:
            _, _, inside = member.name.partition("/")
            if inside:
                tar.extract(member.replace(name=inside, deep=False), to, filter="data")
