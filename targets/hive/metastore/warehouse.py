"""The directories of tables, in the file system that all metastores share.

Here the file system is a database table. In the profile `strict`, the transaction that creates or
drops a table also makes or removes its directory. Hive makes the directory before that transaction,
and removes it afterwards (defect HIVE-21640). A table that is created between a drop and the
removal of the directory then loses its directory. So does a table whose name another create tries
to use: that create fails, and its roll-back removes the directory.
"""

from __future__ import annotations

from targets.hive.sql.protocol import Session, equal
from targets.hive.sql.schema import DIRECTORIES


async def has_directory(session: Session, path: str) -> bool:
    """Whether the directory exists."""
    return bool(await session.select(DIRECTORIES, equal(PATH=path)))


async def make_directory(session: Session, path: str) -> bool:
    """Make the directory. Return whether it did not exist."""
    if await has_directory(session, path):
        return False
    await session.insert(DIRECTORIES, {"PATH": path})
    return True


async def remove_directory(session: Session, path: str) -> None:
    """Remove the directory, if it exists."""
    await session.delete(DIRECTORIES, equal(PATH=path))


async def move_directory(session: Session, path: str, to: str) -> None:
    """Move a directory to the path `to`. A directory at `to` is removed first."""
    await remove_directory(session, to)
    await session.update(DIRECTORIES, {"PATH": to}, equal(PATH=path))


async def read_directories(session: Session) -> list[str]:
    """Return the paths of all directories, sorted."""
    return sorted(str(row["PATH"]) for row in await session.select(DIRECTORIES))
