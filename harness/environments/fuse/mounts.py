"""Lists and removes the mounts of FUSE disks.

The warden runs `python -m harness.environments.fuse.mounts PATH...`. This detaches the mounts at
these paths, even if processes still use them. A missing mount is not an error.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harness.environments.warden import Run
from harness.errors import InfrastructureError

SOURCE: Final = "harness-disk/"
"""The mount source of every FUSE disk begins with this; the node's name follows."""
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_UMOUNT_S: Final = 10.0


def _plain(word: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), word)


def mounts(process: int | str = "self") -> list[tuple[Path, str]]:
    """Return the (mount point, source) of all mounts that `process` sees, in order; see proc(5)."""
    sources = []
    table = Path(f"/proc/{process}/mountinfo").read_text(encoding="utf-8", errors="replace")
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        sources.append((Path(_plain(before.split()[4])), _plain(after.split()[1])))
    return sources


def mounted_at(path: Path | str, process: int | str = "self") -> str | None:
    """Return the source of the topmost mount at `path`, or `None` if nothing is mounted there."""
    sources = [source for where, source in mounts(process) if where == Path(path)]
    return sources[-1] if sources else None


def detach(path: Path) -> bool:
    """Unmount the FUSE disk at `path`; returns false if there is none.

    Raises `InfrastructureError` if the disk stays mounted.
    """
    # `resolve` of the whole path fails at a mount without a server
    path = path.parent.resolve() / path.name
    complaints: list[str] = []
    for command in (["umount", "--lazy", "--"], ["fusermount3", "-u", "-z", "--"]):
        if not (mounted_at(path) or "").startswith(SOURCE):
            return bool(complaints)
        try:
            done = subprocess.run(
                [*command, str(path)],
                capture_output=True,
                text=True,
                timeout=_UMOUNT_S,
                check=False,
            )
            complaints.append(done.stderr.strip())
        except (OSError, subprocess.TimeoutExpired) as error:
            complaints.append(str(error))
    if (mounted_at(path) or "").startswith(SOURCE):
        raise InfrastructureError(f"cannot unmount {path}: {'; '.join(complaints)}")
    return True


def detach_below(folder: Path) -> list[Path]:
    """Unmount all FUSE disks below a folder; returns their mount points."""
    folder = folder.resolve()
    ours = [
        where
        for where, source in mounts()
        if source.startswith(SOURCE) and where.is_relative_to(folder)
    ]
    return [where for where in reversed(ours) if detach(where)]


def detach_undo(path: Path) -> Run:
    """Return the action by which the warden unmounts the FUSE disk at `path`."""
    return Run([sys.executable, "-P", "-m", "harness.environments.fuse.mounts", str(path)])


def main(paths: Iterable[str]) -> int:
    """Unmount the FUSE disks at these paths; returns the exit code 0."""
    for path in paths:
        detach(Path(path))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
