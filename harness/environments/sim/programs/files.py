"""Files of a simulated program: `open`, and the functions of `posix` that touch the disk.

A call takes effect at once for the program itself, and blocks its node for as long as the disk
takes: the node runs nothing meanwhile, and what it sends later in the same callback leaves later.
Outside of `/data`, `/files` and `/tmp` a program sees only files of the Python packages that it
imports, to read them.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import posix
import posixpath
import stat
import sys
import sysconfig
from typing import TYPE_CHECKING, Any, Final, Self

from harness.environments.sim.programs.folder import FolderStore, os_error

if TYPE_CHECKING:
    from harness.environments.faulty import DiskTrouble
    from harness.environments.sim.programs.program_loop import ProgramLoop

DATA: Final = "/data"
FILES: Final = "/files"
_SIMULATED: Final = (DATA, FILES, "/tmp")  # noqa: S108 - of a simulated disk
_FDS_FROM: Final = 1_000_000  # no real descriptor, so that a real system call fails
_BLOCK_BYTES: Final = 4096
_OPEN_FILES_MAX: Final = 1024


class SimRaw(io.RawIOBase):
    """An open file: what `io.FileIO` is to a real file."""

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
        self._files.write_at(self, content, offset)
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
        size = self._position if size is None else size
        self._files.truncate_to(self, size)
        return size

    def close(self) -> None:
        if not self.closed:
            self._files.forget(self._fd)
            super().close()


class Files:
    """The file system as one life of a program sees it."""

    def __init__(self, store: FolderStore, loop: ProgramLoop, trouble: DiskTrouble) -> None:
        self._store, self._loop, self._trouble = store, loop, trouble
        self._open: dict[int, SimRaw] = {}
        self._fds = 0
        self.folder = DATA
        self._real = tuple({os.path.realpath(p) for p in sysconfig.get_paths().values()})

    # --- paths ------------------------------------------------------------------------------

    def locate(self, path: Any) -> str:
        """The absolute path that a program means."""
        if isinstance(path, int):
            return self._file(path).path
        text = os.fsdecode(path)
        return posixpath.normpath(posixpath.join(self.folder, text))

    def is_code(self, path: str) -> bool:
        """Whether the path belongs to the Python packages that a program may read."""
        if path.startswith(_SIMULATED) or path == "/":
            return False
        return any(
            root and path.startswith(posixpath.join(root, "")) for root in (*self._real, *sys.path)
        )

    def _writable(self, path: str) -> str:
        if not path.startswith(tuple(f"{root}/" for root in _SIMULATED)):
            raise PermissionError(
                errno.EACCES,
                f"Permission denied: a simulated program writes only below its data folder {DATA}",
                path,
            )
        return path

    def _parent_exists(self, path: str) -> None:
        parent = posixpath.dirname(path)
        if parent in self._store.image.names:
            raise os_error(errno.ENOTDIR, path)
        if parent not in self._store.image.folders:
            raise os_error(errno.ENOENT, path)

    # --- the disk's time and faults -----------------------------------------------------------

    def _check(self, path: str, *, writes: bool) -> None:
        if not self._loop.alive:
            raise asyncio.CancelledError(f"{self._loop.name} is dead and cannot use its disk")
        if self._trouble.is_set:
            if self._trouble.quality.delay_ms:
                self._loop.block(int(self._trouble.quality.delay_ms * 1e6))
            self._trouble.fail(path, writes=writes)

    def _change(self, kind: str, at: str, *, takes_ns: int | None = None, **what: Any) -> None:
        """Apply a change, which completes after all blocking calls before it."""
        self._check(at, writes=kind not in ("sync", "unlink", "rmdir"))
        self._loop.block(self._store.append_ns() if takes_ns is None else takes_ns)
        note = f"{kind} {at} {what.get('to', '')} {what.get('offset', '')}".rstrip()
        self._loop.world.note(self._loop.name, note, what.get("data", b""))
        self._store.change(kind, self._loop.free_at_ns, **what)

    # --- open files -------------------------------------------------------------------------

    def adopt(self, file: SimRaw) -> int:
        if len(self._open) >= _OPEN_FILES_MAX:
            raise OSError(errno.EMFILE, "Too many open files", file.path)
        self._fds += 1
        fd = _FDS_FROM + self._fds
        self._open[fd] = file
        return fd

    def forget(self, fd: int) -> None:
        self._open.pop(fd, None)

    def _file(self, fd: Any) -> SimRaw:
        number = fd if isinstance(fd, int) else fd.fileno()
        if number not in self._open:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return self._open[number]

    def size_of(self, inode: int) -> int:
        return len(self._store.image.data[inode])

    def read_at(self, file: SimRaw, size: int, offset: int) -> bytes:
        self._check(file.path, writes=False)
        content = self._store.image.data[file.inode]
        data = bytes(content[offset : offset + size])
        return self._trouble.rot(file.path, data, offset, len(content))

    def write_at(self, file: SimRaw, content: bytes, offset: int) -> None:
        if content and self._loop.alive:  # a buffer of a dead program changes nothing
            self._change("write", file.path, inode=file.inode, data=content, offset=offset)

    def truncate_to(self, file: SimRaw, size: int) -> None:
        self._change("truncate", file.path, inode=file.inode, offset=size)

    def raw_open(self, path: Any, flags: int) -> SimRaw:
        """Open a file as `os.open` does."""
        where = self.locate(path)
        self._check(where, writes=False)
        image = self._store.image
        writes = bool(flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC))
        if where in image.folders:
            if writes:
                raise os_error(errno.EISDIR, where)
            return SimRaw(self, where, -1, flags, path)
        if writes:
            self._writable(where)
        inode = image.names.get(where)
        if inode is not None and flags & os.O_CREAT and flags & os.O_EXCL:
            raise os_error(errno.EEXIST, where)
        if inode is None:
            if not flags & os.O_CREAT:
                raise os_error(errno.ENOENT, where)
            self._parent_exists(where)
            inode = self._store.new_inode()
            self._change("create", where, inode=inode, path=where)
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
        """The program's `open`."""
        del closefd
        kinds = set(mode)
        if len(kinds & set("rwxa")) != 1 or kinds - set("rwxabt+") or len(kinds) != len(mode):
            raise ValueError(f"invalid mode: {mode!r}")
        flags = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL}.get(
            mode.strip("bt+")[:1], os.O_CREAT | os.O_APPEND
        )
        flags |= os.O_RDWR if "+" in mode else (os.O_RDONLY if "r" in mode else os.O_WRONLY)
        if isinstance(file, int):
            raw = self._file(file)
        elif opener is not None:
            raw = self._file(opener(file, flags))
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
        if "b" in mode:
            return buffered
        encoding = "utf-8" if encoding in (None, "locale") else encoding
        text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text

    # --- functions of `posix` -----------------------------------------------------------------

    def functions(self) -> dict[str, Any]:
        """The functions that replace those of the module `posix`."""
        names = (
            *("close", "read", "write", "pread", "pwrite", "lseek", "fsync", "fdatasync", "sync"),
            *("ftruncate", "truncate", "fstat", "stat", "lstat", "access", "listdir", "scandir"),
            *("mkdir", "rmdir", "remove", "unlink", "rename", "replace", "getcwd", "getcwdb"),
            *("chdir", "chmod", "utime", "fchmod", "isatty", "statvfs", "readlink"),
        )
        functions = {name: getattr(self, f"_os_{name}") for name in names}
        return functions | {"open": self._os_open, "fspath": os.fspath}

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        del mode, dir_fd
        return self.raw_open(path, flags).fileno()

    def _os_close(self, fd: int) -> None:
        self._file(fd).close()

    def _os_read(self, fd: int, n: int) -> bytes:
        return self._file(fd).read(n) or b""

    def _os_write(self, fd: int, data: Any) -> int:
        return self._file(fd).write(data)

    def _os_pread(self, fd: int, n: int, offset: int) -> bytes:
        return self._file(fd).pread(n, offset)

    def _os_pwrite(self, fd: int, data: Any, offset: int) -> int:
        return self._file(fd).pwrite(bytes(data), offset)

    def _os_lseek(self, fd: int, position: int, whence: int) -> int:
        return self._file(fd).seek(position, whence)

    def _os_fsync(self, fd: Any) -> None:
        file = self._file(fd)
        takes_ns = self._store.sync_ns()
        self._change("sync", file.path, takes_ns=takes_ns, inode=file.inode)

    _os_fdatasync = _os_fsync

    def _os_sync(self) -> None:
        for inode in [-1, *self._store.image.names.values()]:
            self._change("sync", "/", inode=inode)

    def _os_ftruncate(self, fd: int, length: int) -> None:
        self._file(fd).truncate(length)

    def _os_truncate(self, path: Any, length: int) -> None:
        if isinstance(path, int):
            self._file(path).truncate(length)
            return
        with self.raw_open(path, os.O_RDWR) as file:
            file.truncate(length)

    def _os_fstat(self, fd: Any) -> os.stat_result:
        file = self._file(fd)
        return self._stat_of(file.inode)

    def _os_stat(
        self, path: Any, *, dir_fd: Any = None, follow_symlinks: bool = True
    ) -> os.stat_result:
        if isinstance(path, int):
            return self._os_fstat(path)
        where = self.locate(path)
        if self.is_code(where):
            return posix.stat(where, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        self._check(where, writes=False)
        image = self._store.image
        if where in image.folders:
            return self._stat_of(-1)
        if where not in image.names:
            above = posixpath.dirname(where)
            number = errno.ENOTDIR if above in image.names else errno.ENOENT
            raise os_error(number, os.fsdecode(path))
        return self._stat_of(image.names[where])

    def _os_lstat(self, path: Any, *, dir_fd: Any = None) -> os.stat_result:
        return self._os_stat(path, dir_fd=dir_fd)

    def _stat_of(self, inode: int) -> os.stat_result:
        folder = inode < 0
        mode = stat.S_IFDIR | 0o755 if folder else stat.S_IFREG | 0o644
        size = _BLOCK_BYTES if folder else self.size_of(inode)
        return os.stat_result((mode, inode + 2, 1, 1, 1000, 1000, size, 0, 0, 0))

    def _os_access(self, path: Any, mode: int, **_: Any) -> bool:
        where = self.locate(path)
        if self.is_code(where):
            return not mode & os.W_OK and posix.access(where, mode)
        image = self._store.image
        exists = where in image.folders or where in image.names
        return exists and (not mode & os.W_OK or where.startswith(_SIMULATED))

    def _os_listdir(self, path: Any = ".") -> list[Any]:
        where = self.locate(path)
        if self.is_code(where):
            return sorted(posix.listdir(where))
        self._check(where, writes=False)
        if where not in self._store.image.folders:
            number = errno.ENOTDIR if where in self._store.image.names else errno.ENOENT
            raise os_error(number, where)
        names = self._store.image.children(where)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else list(names)

    def _os_scandir(self, path: Any = ".") -> Entries:
        folder = os.fspath(path) if not isinstance(path, int) else self.locate(path)
        return Entries([SimEntry(self, folder, name) for name in self._os_listdir(path)])

    def _os_mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: Any = None) -> None:
        del mode, dir_fd
        where = self.locate(path)
        image = self._store.image
        if where in image.folders or where in image.names:
            raise os_error(errno.EEXIST, where)
        self._writable(where)
        self._parent_exists(where)
        self._change("mkdir", where, path=where)

    def _os_rmdir(self, path: Any, *, dir_fd: Any = None) -> None:
        del dir_fd
        where = self._writable(self.locate(path))
        if where not in self._store.image.folders:
            raise os_error(errno.ENOENT, where)
        if self._store.image.children(where):
            raise os_error(errno.ENOTEMPTY, where)
        self._change("rmdir", where, path=where)

    def _os_unlink(self, path: Any, *, dir_fd: Any = None) -> None:
        del dir_fd
        where = self.locate(path)
        if where in self._store.image.folders:
            raise os_error(errno.EISDIR, where)
        if where not in self._store.image.names:
            raise os_error(errno.ENOENT, where)
        self._change("unlink", self._writable(where), path=where)

    _os_remove = _os_unlink

    def _os_rename(self, src: Any, dst: Any, **_: Any) -> None:
        path, to = self._writable(self.locate(src)), self._writable(self.locate(dst))
        image = self._store.image
        if path not in image.names and path not in image.folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path, None, to)
        if path in image.names and to in image.folders:
            raise os_error(errno.EISDIR, to)
        if path in image.folders and to in image.folders and image.children(to):
            raise os_error(errno.ENOTEMPTY, to)
        if path in image.folders and to in image.names:
            raise os_error(errno.ENOTDIR, to)
        self._parent_exists(to)
        if path != to:
            self._change("rename", path, path=path, to=to)

    _os_replace = _os_rename

    def _os_getcwd(self) -> str:
        return self.folder

    def _os_getcwdb(self) -> bytes:
        return os.fsencode(self.folder)

    def _os_chdir(self, path: Any) -> None:
        where = self.locate(path)
        if where not in self._store.image.folders:
            raise os_error(errno.ENOENT, where)
        self.folder = where

    def _os_chmod(self, *_: Any, **__: Any) -> None:
        """Do nothing: simulated files have no owners."""

    _os_utime = _os_fchmod = _os_chmod

    def _os_isatty(self, fd: int) -> bool:
        del fd
        return False

    def _os_statvfs(self, path: Any) -> Any:
        del path
        free = 1 << 20
        return os.statvfs_result(
            (_BLOCK_BYTES, _BLOCK_BYTES, free, free, free, free, free, free, 0, 255)
        )

    def _os_readlink(self, path: Any, *, dir_fd: Any = None) -> str:
        del dir_fd
        raise os_error(errno.EINVAL, self.locate(path))


class SimEntry:
    """An entry of a folder: what `os.DirEntry` is to a real file."""

    def __init__(self, files: Files, folder: Any, name: Any) -> None:
        self.name = name
        self.path = os.path.join(folder, name)  # noqa: PTH118 - may be bytes
        self._files = files

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        del follow_symlinks
        return self._files._os_stat(self.path)  # noqa: SLF001 - a part of this module

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self.stat(follow_symlinks=follow_symlinks).st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self.stat(follow_symlinks=follow_symlinks).st_mode)

    def is_symlink(self) -> bool:
        return False

    def inode(self) -> int:
        return self.stat().st_ino

    def __fspath__(self) -> Any:
        return self.path


class Entries(list[SimEntry]):
    """What `os.scandir` returns: an iterator that is also a context."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to close."""

    def __next__(self) -> SimEntry:
        if not self:
            raise StopIteration
        return self.pop(0)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
