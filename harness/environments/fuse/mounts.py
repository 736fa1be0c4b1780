"""Mounts of disks as the kernel shows them, and how they are taken away, whoever is left to do it.

`python -m harness.environments.fuse.mounts PATH...` is what the warden runs: it detaches what is
mounted at these paths, even while somebody uses it. Nothing there is no error.
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
"""What the source of every mount of ours begins with; the node's name follows."""
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_UMOUNT_S: Final = 10.0


def _plain(word: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), word)


def mounts(process: int | str = "self") -> list[tuple[Path, str]]:
    """Where something is mounted, as that process sees it, and what; in order, see proc(5)."""
    found = []
    table = Path(f"/proc/{process}/mountinfo").read_text(encoding="utf-8", errors="replace")
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        found.append((Path(_plain(before.split()[4])), _plain(after.split()[1])))
    return found


def mounted_at(path: Path | str, process: int | str = "self") -> str | None:
    """What is mounted there, and seen last."""
    found = [source for where, source in mounts(process) if where == Path(path)]
    return found[-1] if found else None


def detach(path: Path) -> bool:
    """Take the mount of a disk away; false where there is none (any more).

    Raises `InfrastructureError` when it stays.
    """
    path = path.parent.resolve() / path.name  # the mount itself may not answer any more
    said: list[str] = []
    for command in (["umount", "--lazy", "--"], ["fusermount3", "-u", "-z", "--"]):
        if not (mounted_at(path) or "").startswith(SOURCE):
            return bool(said)
        try:
            done = subprocess.run(
                [*command, str(path)],
                capture_output=True,
                text=True,
                timeout=_UMOUNT_S,
                check=False,
            )
            said.append(done.stderr.strip())
        except (OSError, subprocess.TimeoutExpired) as error:
            said.append(str(error))
    if (mounted_at(path) or "").startswith(SOURCE):
        raise InfrastructureError(f"cannot unmount {path}: {'; '.join(said)}")
    return True


def detach_below(folder: Path) -> list[Path]:
    """Take all mounts of disks below a folder away; returns which."""
    folder = folder.resolve()
    found = [
        where
        for where, source in mounts()
        if source.startswith(SOURCE) and where.is_relative_to(folder)
    ]
    return [where for where in reversed(found) if detach(where)]


def detach_undo(path: Path) -> Run:
    """What the warden does with a mount."""
    return Run([sys.executable, "-P", "-m", "harness.environments.fuse.mounts", str(path)])


def main(paths: Iterable[str]) -> int:
    """Detach what is mounted there."""
    for path in paths:
        detach(Path(path))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
