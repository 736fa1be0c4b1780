"""Directories of tables, in the file system that all metastores share.

Here the file system is a table on the database's node. In `strict` a directory is created and
removed in the transaction of its table, as if it were a row. Hive creates it before that
transaction and removes it afterwards: a table created in between finds the directory and then loses
it (HIVE-21640). So does a table whose name another create failed to take, because the roll-back of
that create removes the directory.
"""

from __future__ import annotations

from targets.hive.sql.protocol import Session, equal
from targets.hive.sql.schema import DIRECTORIES


async def has_directory(session: Session, path: str) -> bool:
    """Whether it is there."""
    return bool(await session.select(DIRECTORIES, equal(PATH=path)))


async def make_directory(session: Session, path: str) -> bool:
    """Make it; whether it was not there."""
    if await has_directory(session, path):
        return False
    await session.insert(DIRECTORIES, {"PATH": path})
    return True


async def remove_directory(session: Session, path: str) -> None:
    """Remove it if it is there."""
    await session.delete(DIRECTORIES, equal(PATH=path))


async def move_directory(session: Session, path: str, to: str) -> None:
    """Move it onto another, which goes."""
    await remove_directory(session, to)
    await session.update(DIRECTORIES, {"PATH": to}, equal(PATH=path))


async def read_directories(session: Session) -> list[str]:
    """Their paths, sorted."""
    return sorted(str(row["PATH"]) for row in await session.select(DIRECTORIES))
