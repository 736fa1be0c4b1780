"""The functions of `os` that touch the disk, for simulated programs."""

from __future__ import annotations

import errno
import os
import posix
import stat
from typing import Any, Final, Self
from zlib import crc32

from harness.environments.sim.programs.files import Files, SimRaw, is_simulated
from harness.environments.sim.programs.folder import os_error

_BLOCK_BYTES: Final = 4096
_FREE_BLOCKS: Final = 1 << 20
_FOLDERS_FROM: Final = 1 << 32  # greater than the number of any file
_OWNER: Final = 1000
_NS: Final = 1_000_000_000


class OsCalls:
    """The functions that `os` takes from the module `posix`, for one life of a program."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def functions(self) -> dict[str, Any]:
        """Map the names of functions in the module `posix` to their substitutes."""
        names = (
            *("close", "read", "write", "pread", "pwrite", "lseek", "fsync", "fdatasync", "sync"),
            *("ftruncate", "truncate", "fstat", "lstat", "access", "listdir", "scandir"),
            *("mkdir", "rmdir", "remove", "unlink", "rename", "replace", "getcwd", "getcwdb"),
            *("chdir", "chmod", "utime", "fchmod", "isatty", "statvfs", "readlink", "listxattr"),
        )
        functions = {name: getattr(self, f"_os_{name}") for name in names}
        return functions | {"open": self._os_open, "stat": self.stat, "fspath": os.fspath}

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        _check_folder(dir_fd)
        del mode
        return self._files.raw_open(path, flags).fileno()

    def _os_close(self, fd: int) -> None:
        self._files.file(fd).close()

    def _os_read(self, fd: int, n: int) -> bytes:
        return self._opened(fd, reads=True).read(n) or b""

    def _os_write(self, fd: int, data: Any) -> int:
        return self._opened(fd, reads=False).write(data)

    def _os_pread(self, fd: int, n: int, offset: int) -> bytes:
        return self._opened(fd, reads=True).pread(n, offset)

    def _os_pwrite(self, fd: int, data: Any, offset: int) -> int:
        return self._opened(fd, reads=False).pwrite(bytes(data), offset)

    def _os_lseek(self, fd: int, position: int, whence: int) -> int:
        return self._files.file(fd).seek(position, whence)

    def _os_fsync(self, fd: Any) -> None:
        file = self._files.file(fd)
        takes_ns = self._files.store.sync_ns()
        self._files.change("sync", file.path, takes_ns=takes_ns, inode=file.inode)

    _os_fdatasync = _os_fsync

    def _os_sync(self) -> None:
        for inode in [-1, *self._files.store.image.names.values()]:
            self._files.change("sync", "/", inode=inode)

    def _os_ftruncate(self, fd: int, length: int) -> None:
        self._opened(fd, reads=False, otherwise=errno.EINVAL).truncate(length)

    def _opened(self, fd: int, *, reads: bool, otherwise: int = errno.EBADF) -> SimRaw:
        """Return the file with this descriptor.

        Raises `OSError` unless it was opened for reading or, if `reads` is false, for writing.
        """
        file = self._files.file(fd)
        if not (file.readable() if reads else file.writable()):
            raise os_error(otherwise, file.path)
        return file

    def _os_truncate(self, path: Any, length: int) -> None:
        if isinstance(path, int):
            self._files.file(path).truncate(length)
            return
        with self._files.raw_open(path, os.O_RDWR) as file:
            file.truncate(length)

    def _os_fstat(self, fd: Any) -> os.stat_result:
        file = self._files.file(fd)
        return self._stat_of(file.inode, file.path)

    def stat(
        self, path: Any, *, dir_fd: Any = None, follow_symlinks: bool = True
    ) -> os.stat_result:
        """The program's version of `os.stat`."""
        _check_folder(dir_fd)
        if isinstance(path, int):
            return self._os_fstat(path)
        where = self._files.locate(path)
        if self._files.is_code(where):
            return posix.stat(where, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        self._files.check(where, writes=False)
        image = self._files.store.image
        if where in image.folders:
            return self._stat_of(-1, where)
        if where not in image.names:
            raise image.missing(where)
        return self._stat_of(image.names[where], where)

    def _os_lstat(self, path: Any, *, dir_fd: Any = None) -> os.stat_result:
        return self.stat(path, dir_fd=dir_fd)

    def _stat_of(self, inode: int, path: str) -> os.stat_result:
        folder = inode < 0
        mode = stat.S_IFDIR | 0o755 if folder else stat.S_IFREG | 0o644
        size = _BLOCK_BYTES if folder else self._files.size_of(inode)
        number = _FOLDERS_FROM + crc32(path.encode()) if folder else inode
        ns = self._files.store.image.modified_ns.get(inode, 0)
        times = {f"st_{kind}time": ns / _NS for kind in "amc"}
        times |= {f"st_{kind}time_ns": ns for kind in "amc"}
        places = (mode, number, 1, 1, _OWNER, _OWNER, size, *[ns // _NS] * 3)
        return os.stat_result(places, times)

    def _os_access(self, path: Any, mode: int, **_: Any) -> bool:
        where = self._files.locate(path)
        if self._files.is_code(where):
            return not mode & os.W_OK and posix.access(where, mode)
        image = self._files.store.image
        exists = where in image.folders or where in image.names
        return exists and (not mode & os.W_OK or is_simulated(where))

    def _os_listdir(self, path: Any = ".") -> list[Any]:
        where = self._files.locate(path)
        if self._files.is_code(where):
            return sorted(posix.listdir(where))
        self._files.check(where, writes=False)
        if where not in self._files.store.image.folders:
            raise self._not_a_folder(where)
        names = self._files.store.image.children(where)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else list(names)

    def _not_a_folder(self, path: str) -> OSError:
        image = self._files.store.image
        return os_error(errno.ENOTDIR, path) if path in image.names else image.missing(path)

    def _os_scandir(self, path: Any = ".") -> Entries:
        folder = os.fspath(path) if not isinstance(path, int) else self._files.locate(path)
        return Entries([SimEntry(self, folder, name) for name in self._os_listdir(path)])

    def _os_mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: Any = None) -> None:
        _check_folder(dir_fd)
        del mode
        where = self._files.locate(path)
        image = self._files.store.image
        if where in image.folders or where in image.names:
            raise os_error(errno.EEXIST, where)
        self._files.writable(where)
        self._files.parent_exists(where)
        self._files.change("mkdir", where, path=where)

    def _os_rmdir(self, path: Any, *, dir_fd: Any = None) -> None:
        _check_folder(dir_fd)
        where = self._files.writable(self._files.locate(path))
        if where not in self._files.store.image.folders:
            raise self._not_a_folder(where)
        if self._files.store.image.children(where):
            raise os_error(errno.ENOTEMPTY, where)
        self._files.change("rmdir", where, path=where)

    def _os_unlink(self, path: Any, *, dir_fd: Any = None) -> None:
        _check_folder(dir_fd)
        where = self._files.locate(path)
        if where in self._files.store.image.folders:
            raise os_error(errno.EISDIR, where)
        if where not in self._files.store.image.names:
            raise self._files.store.image.missing(where)
        self._files.change("unlink", self._files.writable(where), path=where)

    _os_remove = _os_unlink

    def _os_rename(self, src: Any, dst: Any, **_: Any) -> None:
        path, to = (
            self._files.writable(self._files.locate(src)),
            self._files.writable(self._files.locate(dst)),
        )
        image = self._files.store.image
        for each in (path, to):
            self._files.parent_exists(each)
        if path not in image.names and path not in image.folders:
            raise image.missing(path)
        if to.startswith(f"{path}/"):
            raise os_error(errno.EINVAL, to)
        if path.startswith(f"{to}/"):
            raise os_error(errno.ENOTEMPTY, to)
        if path == to:
            return
        if path in image.names and to in image.folders:
            raise os_error(errno.EISDIR, to)
        if path in image.folders and to in image.folders and image.children(to):
            raise os_error(errno.ENOTEMPTY, to)
        if path in image.folders and to in image.names:
            raise os_error(errno.ENOTDIR, to)
        self._files.change("rename", path, path=path, to=to)

    _os_replace = _os_rename

    def _os_getcwd(self) -> str:
        return self._files.folder

    def _os_getcwdb(self) -> bytes:
        return os.fsencode(self._files.folder)

    def _os_chdir(self, path: Any) -> None:
        where = self._files.locate(path)
        if where not in self._files.store.image.folders:
            raise self._not_a_folder(where)
        self._files.folder = where

    def _os_chmod(self, *_: Any, **__: Any) -> None:
        """Do nothing: simulated files have no permission bits."""

    _os_fchmod = _os_chmod

    def _os_listxattr(self, *_: Any, **__: Any) -> list[str]:
        return []

    def _os_utime(self, path: Any, times: Any = None, *, ns: Any = None, **_: Any) -> None:
        """Set a file's modification time to the node's own time; no other times are stored."""
        del times, ns
        where = self._files.locate(path)
        inode = self._files.store.image.names.get(where)
        if inode is not None:
            self._files.change("touch", where, inode=inode)
        elif where not in self._files.store.image.folders:
            raise self._files.store.image.missing(where)

    def _os_isatty(self, fd: int) -> bool:
        del fd
        return False

    def _os_statvfs(self, path: Any) -> Any:
        del path
        free = _FREE_BLOCKS
        return os.statvfs_result(
            (_BLOCK_BYTES, _BLOCK_BYTES, free, free, free, free, free, free, 0, 255)
        )

    def _os_readlink(self, path: Any, *, dir_fd: Any = None) -> str:
        _check_folder(dir_fd)
        raise os_error(errno.EINVAL, self._files.locate(path))


def _check_folder(descriptor: object) -> None:
    """Refuse a path relative to a folder's descriptor, because folders have none here."""
    if descriptor is not None:
        raise os_error(errno.ENOTSUP, "dir_fd")


class SimEntry:
    """An entry of a folder, like `os.DirEntry` for real files."""

    def __init__(self, calls: OsCalls, folder: Any, name: Any) -> None:
        self.name = name
        self.path = os.path.join(folder, name)  # noqa: PTH118 - may be bytes
        self._calls = calls

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        del follow_symlinks
        return self._calls.stat(self.path)

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
    """The result of `os.scandir`: an iterator and context manager."""

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
