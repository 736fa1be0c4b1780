"""A run's folders in the temporary folder, each with a signature that names its controller.

A folder's signature is the file `owner.json`, which names the run and the run's controller. It is
removed last, so `harness clean` still recognizes a folder whose removal was interrupted. Every user
can write to the temporary folder. So folders of other users are ignored. Symbolic links and folders
with damaged signatures stay, and are reported.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.environments.controller import Controller, Life, life, this_controller

SCRATCH_PREFIX: Final = "harness-process-"
DISKS_PREFIX: Final = "harness-disks-"
"""The prefix of folders with FUSE disks for containers. `harness clean` removes them, too."""
OWNER_FILE: Final = "owner.json"
_SIGNATURE_BYTES_MAX: Final = 64 * 1024


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a signature: the run and the controller to which the folder belongs."""

    run_id: str
    controller: str
    link_proxy: str | None = None


def sign(folder: Path, run_id: str, link_proxy: str | None = None) -> None:
    """Write a folder's signature; `link_proxy` is the URL of a user's Toxiproxy, if used."""
    owner = Owner(run_id=run_id, controller=str(this_controller()), link_proxy=link_proxy)
    (folder / OWNER_FILE).write_bytes(msgspec.json.encode(owner))


def left_folders() -> Iterator[tuple[Path, Owner | str]]:
    """Yield dead runs' folders with their owners, and unclear folders with the reason to keep them.

    Folders of live runs are left out.
    """
    below = Path(tempfile.gettempdir())
    here = this_controller()
    for folder in sorted([*below.glob(f"{SCRATCH_PREFIX}*"), *below.glob(f"{DISKS_PREFIX}*")]):
        try:
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode):
                yield folder, "it is not a folder"
                continue
            if about.st_uid != os.geteuid() != 0:
                continue
            owner = msgspec.json.decode(_signature(folder), type=Owner)
            controller = Controller.parse(owner.controller)
        except FileNotFoundError:
            continue  # a run is creating or removing this folder
        except (OSError, ValueError) as error:  # msgspec raises subclasses of `ValueError`
            yield folder, f"its {OWNER_FILE} cannot be read: {error}"
            continue
        match life(controller, here, same_machine=True):
            case Life.DEAD:
                yield folder, owner
            case Life.UNKNOWN:
                why = f"its run {owner.run_id} is in another PID namespace"
                yield folder, f"{why} and may be alive, which cannot be seen from here"


def _signature(folder: Path) -> bytes:
    """Read a folder's signature; raises `OSError`, or `ValueError` unless it is a small file.

    The flags avoid a FIFO that blocks when opened, and a symbolic link to an endless device.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder / OWNER_FILE, flags)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is not a file")
        if about.st_size > _SIGNATURE_BYTES_MAX:
            raise ValueError(f"it has {about.st_size} bytes; the limit is {_SIGNATURE_BYTES_MAX}")
        return os.read(descriptor, _SIGNATURE_BYTES_MAX)
    finally:
        os.close(descriptor)


def remove_signed(folder: Path) -> None:
    """Remove a folder, its signature last; missing parts are no error. May raise `OSError`."""
    if folder.is_symlink():
        raise OSError(f"{folder} is a symbolic link")
    try:
        with os.scandir(folder) as entries:
            parts = [entry for entry in entries if entry.name != OWNER_FILE]
    except FileNotFoundError:
        return
    for part in parts:
        if part.is_dir(follow_symlinks=False):
            shutil.rmtree(part.path, onerror=_ignore_missing)
        else:
            Path(part.path).unlink(missing_ok=True)
    (folder / OWNER_FILE).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except FileNotFoundError:
        return


def _ignore_missing(_call: object, _path: object, exc_info: tuple[Any, Any, Any]) -> None:
    if not isinstance(exc_info[1], FileNotFoundError):
        raise exc_info[1]
