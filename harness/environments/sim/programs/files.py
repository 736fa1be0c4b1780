"""The files of a simulated program, which it uses through `open` and `os`.

A call takes effect at once, and then blocks the node for as long as the disk needs. Meanwhile the
node runs nothing, and data that the program sends after the call leaves the node later. Outside of
`/data`, `/files` and `/tmp`, a program can only read files of the Python packages that it imports.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import posixpath
import sys
import sysconfig
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from harness.environments.sim.programs.folder import FolderStore, os_error

if TYPE_CHECKING:
    from harness.environments.faulty import DiskTrouble
    from harness.environments.sim.programs.program_loop import ProgramLoop

DATA: Final = "/data"
FILES: Final = "/files"
_SIMULATED: Final = (DATA, FILES, "/tmp")  # noqa: S108 - of a simulated disk
_FDS_FROM: Final = 1_000_000  # not real descriptors, so a real system call on one fails
_BLOCK_BYTES: Final = 4096
_OPEN_FILES_MAX: Final = 1024


def is_simulated(path: str) -> bool:
    """Whether the path is on the simulated disk, where a program may write."""
    return path.startswith(_SIMULATED)


class SimRaw(io.RawIOBase):
    """An open file, like `io.FileIO` for real files."""

    def __init__(self, files: Files, path: str, inode: int, flags: int, name: Any) -> None:
        self._files, self.path, self.inode = files, path, inode
        access = flags & os.O_ACCMODE
        self._reads, self._writes = access != os.O_WRONLY, access != os.O_RDONLY
        self._appends = bool(flags & os.O_APPEND)
        self._position = 0
        self.name = name
        self.mode = "rb+" if self._reads and self._writes else ("rb" if self._reads else "wb")
        self._fd = files.adopt(self)

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._fd

    def isatty(self) -> bool:
        return False

    def size(self) -> int:
        return self._files.size_of(self.inode)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.pread(len(view), self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def pread(self, size: int, offset: int) -> bytes:
        if not self._reads:
            raise io.UnsupportedOperation("not readable")
        return self._files.read_at(self, size, offset)

    def write(self, data: Any) -> int:
        if self._appends:
            self._position = self.size()
        content = bytes(data)
        self.pwrite(content, self._position)
        self._position += len(content)
        return len(content)

    def pwrite(self, content: bytes, offset: int) -> int:
        if not self._writes:
            raise io.UnsupportedOperation("not writable")
        # as on Linux, a file opened for appending is always written at its end
        self._files.write_at(self, content, self.size() if self._appends else offset)
        return len(content)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size()}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "Invalid argument")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def truncate(self, size: int | None = None) -> int:
        if not self._writes:
            raise io.UnsupportedOperation("not writable")
        size = self._position if size is None else size
        self._files.truncate_to(self, size)
        return size

    def close(self) -> None:
        if not self.closed:
            self._files.forget(self._fd)
            super().close()


class Files:
    """The file system of a program, from one start of its node to the node's end."""

    def __init__(
        self, store: FolderStore, loop: ProgramLoop, trouble: DiskTrouble, code: Iterable[str] = ()
    ) -> None:
        """Create the file system. `code` lists the folders of the program's own modules."""
        self.store, self._loop, self._trouble = store, loop, trouble
        self._open: dict[int, SimRaw] = {}
        self._fds = 0
        self._buffers: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.folder = DATA
        installed = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
        self._code = (*code, *installed)

    # --- paths ------------------------------------------------------------------------------

    def locate(self, path: Any) -> str:
        """Return the absolute path to which `path` refers."""
        if isinstance(path, int):
            return self.file(path).path
        text = os.fsdecode(path)
        return posixpath.normpath(posixpath.join(self.folder, text))

    def is_code(self, path: str) -> bool:
        """Whether the path belongs to a Python package that the program may read."""
        image = self.store.image
        if path in image.names or path in image.folders:
            return False
        return any(
            root and root not in _SIMULATED and path.startswith(posixpath.join(root, ""))
            for root in (*self._code, *sys.path)
        )

    def writable(self, path: str) -> str:
        if not path.startswith(tuple(f"{root}/" for root in _SIMULATED)):
            raise PermissionError(
                errno.EACCES,
                f"Permission denied: a simulated program writes only below its data folder {DATA}",
                path,
            )
        return path

    def parent_exists(self, path: str) -> None:
        """Raise `OSError` if the parent folder does not exist."""
        if posixpath.dirname(path) not in self.store.image.folders:
            raise self.store.image.missing(path)

    # --- the disk's time and faults -----------------------------------------------------------

    def check(self, path: str, *, writes: bool) -> None:
        """Raise an error if the node is dead or the disk fails; a slow disk blocks the node."""
        if not self._loop.alive:
            raise asyncio.CancelledError(f"{self._loop.name} is dead and cannot use its disk")
        if self._trouble.is_set:
            if self._trouble.quality.delay_ms:
                self._loop.block(int(self._trouble.quality.delay_ms * 1e6))
            self._trouble.fail(path, writes=writes)

    def change(self, kind: str, at: str, *, takes_ns: int | None = None, **what: Any) -> None:
        """Apply a change. It completes after all earlier blocking calls."""
        self.check(at, writes=kind not in ("sync", "unlink", "rmdir"))
        self._loop.block(self.store.append_ns() if takes_ns is None else takes_ns)
        note = f"{kind} {at} {what.get('to', '')} {what.get('offset', '')}".rstrip()
        self._loop.world.note(self._loop.name, note, what.get("data", b""))
        self.store.change(kind, self._loop.free_at_ns, wall_ns=self._loop.wall_ns(), **what)

    # --- open files -------------------------------------------------------------------------

    def adopt(self, file: SimRaw) -> int:
        """Give an open file a descriptor."""
        if len(self._open) >= _OPEN_FILES_MAX:
            raise OSError(errno.EMFILE, "Too many open files", file.path)
        self._fds += 1
        fd = _FDS_FROM + self._fds
        self._open[fd] = file
        return fd

    def forget(self, fd: int) -> None:
        self._open.pop(fd, None)

    def file(self, fd: Any) -> SimRaw:
        """Return the open file with this descriptor; raises `OSError` if there is none."""
        number = fd if isinstance(fd, int) else fd.fileno()
        if number not in self._open:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return self._open[number]

    def size_of(self, inode: int) -> int:
        return len(self.store.image.data.get(inode, b""))

    def read_at(self, file: SimRaw, size: int, offset: int) -> bytes:
        """Read from a file, with the faults of the disk."""
        self.check(file.path, writes=False)
        if file.inode < 0:
            raise os_error(errno.EISDIR, file.path)
        content = self.store.image.data[file.inode]
        data = bytes(content[offset : offset + size])
        return self._trouble.rot(file.path, data, offset, len(content))

    def write_at(self, file: SimRaw, content: bytes, offset: int) -> None:
        """Write to a file. A dead program writes nothing, so a late flush is harmless."""
        if content and self._loop.alive:
            self.change("write", file.path, inode=file.inode, data=content, offset=offset)

    def truncate_to(self, file: SimRaw, size: int) -> None:
        self.change("truncate", file.path, inode=file.inode, offset=size)

    def raw_open(self, path: Any, flags: int) -> SimRaw:
        """Open a file as `os.open` does."""
        where = self.locate(path)
        self.check(where, writes=False)
        image = self.store.image
        writes = bool(flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC))
        inode = image.names.get(where)
        new = bool(flags & os.O_CREAT and flags & os.O_EXCL)
        if new and (inode is not None or where in image.folders):
            raise os_error(errno.EEXIST, where)
        if where in image.folders:
            if writes:
                raise os_error(errno.EISDIR, where)
            return SimRaw(self, where, -1, flags, path)
        if writes:
            self.writable(where)
        if inode is None:
            if not flags & os.O_CREAT:
                raise image.missing(where)
            self.parent_exists(where)
            inode = self.store.new_inode()
            self.change("create", where, inode=inode, path=where)
        file = SimRaw(self, where, inode, flags, path)
        if flags & os.O_TRUNC and file.size():
            self.truncate_to(file, 0)
        return file

    def open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """The program's version of `open`."""
        del closefd
        kinds = set(mode)
        if len(kinds & set("rwxa")) != 1 or kinds - set("rwxabt+") or len(kinds) != len(mode):
            raise ValueError(f"invalid mode: {mode!r}")
        flags = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL}.get(
            mode.strip("bt+")[:1], os.O_CREAT | os.O_APPEND
        )
        flags |= os.O_RDWR if "+" in mode else (os.O_RDONLY if "r" in mode else os.O_WRONLY)
        if isinstance(file, int):
            raw = self.file(file)
        elif opener is not None:
            raw = self.file(opener(file, flags))
        else:
            where = self.locate(file)
            if flags == os.O_RDONLY and self.is_code(where):
                return open(where, mode, buffering, encoding, errors, newline)  # noqa: PTH123
            raw = self.raw_open(file, flags)
        if raw.inode < 0:
            raw.close()
            raise os_error(errno.EISDIR, raw.path)
        if "a" in mode:
            raw.seek(0, os.SEEK_END)
        if buffering == 0:
            if "b" not in mode:
                raise ValueError("can't have unbuffered text I/O")
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        buffered: Any
        if "+" in mode:
            buffered = io.BufferedRandom(raw, size)
        elif "r" in mode:
            buffered = io.BufferedReader(raw, size)
        else:
            buffered = io.BufferedWriter(raw, size)
        self._buffers[raw.fileno()] = buffered
        if "b" in mode:
            return buffered
        encoding = "utf-8" if encoding in (None, "locale") else encoding
        text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        self._buffers[raw.fileno()] = text
        return text

    def flush(self) -> None:
        """Write the buffers of all open files, as an interpreter does at exit."""
        for file in list(self._buffers.values()):
            with contextlib.suppress(OSError, ValueError):
                file.flush()
