"""The disk of a simulated program's machine: a file system, and a journal of changes to it.

Every change that is not yet durable is an entry of the journal, with the virtual time at which the
change completes. A program's calls block its node, so the changes of one callback complete one
after another. A crash may come between them, and discards the entries that would complete later.

The model is that of a journaling file system (ext4 with `data=ordered`, without its heuristics for
`rename`). An fsync makes durable the data of one file and all earlier changes of names (creation,
rename, removal). Of the other changes of names, a power cut keeps only the first ones, up to a
random point. The same holds for the unsynced data of each file. So a file that was renamed before a
sync may be empty. A SIGKILL loses no written data.
"""

from __future__ import annotations

import errno
import posixpath
from random import Random
from typing import Any, Final, NamedTuple

from harness.environments.sim.clock import Scheduler
from harness.environments.sim.disk import DiskStore, FileState

UNSYNCED_ENTRIES_MAX: Final = 4096
"""The maximum of entries in the journal. Above it, the older half becomes durable."""
_FOLDERS: Final = ("/", "/data", "/files", "/tmp")  # noqa: S108 - of a simulated disk


class Entry(NamedTuple):
    """One change of the file system. It completes at `at_ns`."""

    at_ns: int
    kind: str  # write, truncate, create, touch, rename, unlink, mkdir, rmdir or sync
    inode: int = -1
    path: str = ""
    to: str = ""
    offset: int = 0
    data: bytes = b""
    wall_ns: int = 0  # the node's own time, for `st_mtime`


_OF_DATA: Final = ("write", "truncate")
_MODIFYING: Final = (*_OF_DATA, "create", "touch")


class Image:
    """The names and contents of all files and folders at one moment."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.folders: dict[str, None] = dict.fromkeys(_FOLDERS)
        self.data: dict[int, bytearray] = {}
        self.modified_ns: dict[int, int] = {}

    def copy(self) -> Image:
        """Return a copy. Files that no longer have a name are left out."""
        other = Image()
        other.names = dict(self.names)
        other.folders = dict(self.folders)
        other.data = {inode: bytearray(self.data[inode]) for inode in self.names.values()}
        other.modified_ns = {inode: self.modified_ns.get(inode, 0) for inode in other.data}
        return other

    def apply(self, entry: Entry) -> None:
        """Apply a change. It has no effect if its file or folder did not survive."""
        if entry.kind in _MODIFYING:
            self.modified_ns[entry.inode] = entry.wall_ns
        match entry.kind:
            case "write":
                content = self.data.get(entry.inode)
                if content is not None:
                    if len(content) < entry.offset:
                        content.extend(bytes(entry.offset - len(content)))
                    content[entry.offset : entry.offset + len(entry.data)] = entry.data
            case "truncate":
                content = self.data.get(entry.inode)
                if content is not None:
                    content.extend(bytes(max(0, entry.offset - len(content))))
                    del content[entry.offset :]
            case "create":
                self.names[entry.path] = entry.inode
                self.data.setdefault(entry.inode, bytearray())
            case "rename":
                self._rename(entry.path, entry.to)
            case "unlink":
                self.names.pop(entry.path, None)
            case "mkdir":
                self.folders[entry.path] = None
            case "rmdir":
                self.folders.pop(entry.path, None)

    def _rename(self, path: str, to: str) -> None:
        if path in self.names:
            self.names[to] = self.names.pop(path)
        elif path in self.folders:
            inside = f"{path}/"
            for folder in [f for f in self.folders if f == path or f.startswith(inside)]:
                del self.folders[folder]
                self.folders[to + folder[len(path) :]] = None
            for name in [n for n in self.names if n.startswith(inside)]:
                self.names[to + name[len(path) :]] = self.names.pop(name)

    def missing(self, path: str) -> OSError:
        """Return the error for a path that does not exist."""
        above = path
        while above != "/":
            above = posixpath.dirname(above)
            if above in self.names:
                return os_error(errno.ENOTDIR, path)
        return os_error(errno.ENOENT, path)

    def children(self, folder: str) -> list[str]:
        prefix = folder.rstrip("/") + "/"
        inside = {p[len(prefix) :] for p in (*self.names, *self.folders) if p.startswith(prefix)}
        return sorted(name for name in inside if name and "/" not in name)


class FolderStore(DiskStore):
    """The disk of a machine whose node is a program."""

    def __init__(
        self,
        world: Scheduler,
        random: Random,
        *,
        latency_ns: tuple[int, int],
        append_ns_max: int,
    ) -> None:
        super().__init__(world, random, latency_ns=latency_ns, append_ns_max=append_ns_max)
        self.image = Image()
        self._durable = Image()
        self._journal: list[Entry] = []
        self._inodes = 0

    # --- changes ----------------------------------------------------------------------------

    def change(self, kind: str, at_ns: int, **what: Any) -> None:
        """Apply a change that completes at `at_ns`, and add it to the journal."""
        entry = Entry(at_ns, kind, **what)
        self.image.apply(entry)
        self._journal.append(entry)
        self.written_bytes += len(entry.data)
        if kind == "sync" or len(self._journal) > UNSYNCED_ENTRIES_MAX:
            self._settle(self.world.now_ns)

    def new_inode(self) -> int:
        self._inodes += 1
        return self._inodes

    def append_ns(self) -> int:
        """Choose at random how long a request to the page cache takes."""
        return int(self._random.random() * self._append_ns_max)

    def sync_ns(self) -> int:
        low, high = self._latency_ns
        return low + int(self._random.random() * (high - low))

    def _settle(self, now_ns: int) -> None:
        left: list[Entry] = []
        done = self._journal
        last_sync: dict[int, int] = {}
        for place, entry in enumerate(done):
            if entry.kind == "sync" and entry.at_ns <= now_ns:
                last_sync[entry.inode] = place
        names_until = max(last_sync.values(), default=-1)
        for place, entry in enumerate(done):
            if entry.kind == "sync":
                durable = entry.at_ns <= now_ns
            elif entry.kind in _OF_DATA:
                durable = place < last_sync.get(entry.inode, -1)
            else:
                durable = place < names_until
            if durable:
                self._persist(entry)
            else:
                left.append(entry)
        if len(left) > UNSYNCED_ENTRIES_MAX:
            for entry in left[: UNSYNCED_ENTRIES_MAX // 2]:
                self._persist(entry)
            del left[: UNSYNCED_ENTRIES_MAX // 2]
        self._journal = left

    def _persist(self, entry: Entry) -> None:
        if entry.kind in _OF_DATA:
            # the data may become durable before the file's name
            self._durable.data.setdefault(entry.inode, bytearray())
        self._durable.apply(entry)

    # --- faults -----------------------------------------------------------------------------

    def crash(self, *, lose_unsynced: bool, torn: bool) -> None:
        """Drop unfinished changes, because the node died; in a power cut, also unsynced ones."""
        now_ns = self.world.now_ns
        self._settle(now_ns)
        journal = [entry for entry in self._journal if entry.at_ns <= now_ns]
        if lose_unsynced:
            journal = self._survivors(journal)
        if torn and journal and journal[-1].kind == "write":
            last = journal.pop()
            kept = last.data[: self._random.randrange(len(last.data) + 1)]
            journal.append(last._replace(data=kept))
        image = self._durable.copy()
        # keep data without a durable name: an entry of the journal may name it
        for inode, content in self._durable.data.items():
            image.data.setdefault(inode, bytearray(content))
        for entry in journal:
            if entry.kind in _OF_DATA:
                image.data.setdefault(entry.inode, bytearray())
            image.apply(entry)
        self.image = image.copy()
        if lose_unsynced:
            self._durable, self._journal = image.copy(), []
        else:
            self._journal = journal

    def _survivors(self, journal: list[Entry]) -> list[Entry]:
        """Return the entries that survive a power cut.

        Of the changes of names, the first ones survive, up to a random point. The same holds for
        the data of each file.
        """
        of_files: dict[int, int] = {}
        names = 0
        for entry in journal:
            if entry.kind in _OF_DATA:
                of_files[entry.inode] = of_files.get(entry.inode, 0) + 1
            else:
                names += 1
        names = self._random.randrange(names + 1)
        left = {inode: self._random.randrange(n + 1) for inode, n in sorted(of_files.items())}
        survivors = []
        for entry in journal:
            if entry.kind in _OF_DATA:
                left[entry.inode] -= 1
                survives = left[entry.inode] >= 0
            else:
                names -= 1
                survives = names >= 0
            if survives:
                survivors.append(entry)
        return survivors

    def wipe(self) -> bool:
        had = bool(self.image.names)
        self.image, self._durable, self._journal = Image(), Image(), []
        return had

    # --- views ------------------------------------------------------------------------------

    def held_bytes(self) -> int:
        return sum(len(self.image.data[inode]) for inode in self.image.names.values())

    def states(self) -> list[FileState]:
        unsynced: dict[int, int] = {}
        for entry in self._journal:
            if entry.kind in _OF_DATA:
                unsynced[entry.inode] = unsynced.get(entry.inode, 0) + 1
        return [
            FileState(
                path,
                len(self.image.data[inode]),
                len(self._durable.data.get(inode, b"")),
                unsynced.get(inode, 0),
            )
            for path, inode in sorted(self.image.names.items())
        ]


def os_error(number: int, path: str) -> OSError:
    """Return the `OSError` of a failed call on `path`."""
    return OSError(number, _TEXTS.get(number, "error"), path)


_TEXTS: Final = {
    errno.ENOENT: "No such file or directory",
    errno.EEXIST: "File exists",
    errno.ENOTDIR: "Not a directory",
    errno.EISDIR: "Is a directory",
    errno.ENOTEMPTY: "Directory not empty",
    errno.EACCES: "Permission denied",
    errno.EBADF: "Bad file descriptor",
    errno.EINVAL: "Invalid argument",
}
