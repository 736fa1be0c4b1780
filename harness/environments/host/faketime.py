"""The interface to libfaketime: a node's environment, the file it reads, and the library itself.

https://github.com/wolfcw/libfaketime is loaded into a program before the C library and answers in
its place when the program asks for the wall clock. It reads how wrong to be from a file, here at
every question. Only the wall clock is meant: monotonic clocks and waits stay true. Version 0.9.10,
which Debian 12 has, needs help with that:

* `FAKETIME_DONT_FAKE_MONOTONIC` spares the monotonic clocks, but not waits: it stretches them by
  the rate, and confuses the two clocks in `clock_nanosleep` until a given moment, which Python's
  `time.sleep` uses. So the harness loads a copy in which these functions are not to be found, and
  the program gets the C library's own. Waits for a moment of the wall clock stay faked.
* A rate counts from when the program began, which it keeps in a shared page; we make that page and
  leave it zero, so that the rate counts from the epoch and means the same in every process.
* One that is killed leaves its page and its semaphore behind; ours have names that we know.

Only libfaketime can tell waits on a condition variable of the monotonic clock
(`pthread_cond_timedwait`; Java's) from waits by the wall clock, and it gets them wrong: while the
clock is off they end early or late by as much.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from harness.environments.faulty import ClockError
from harness.errors import InfrastructureError
from harness.ops import NS_PER_S

LIBRARY: Final = "libfaketimeMT.so.1"  # the one for programs with threads serves those without
_FOLDERS: Final = "/usr/lib/*/faketime"
_MILLION: Final = 1_000_000
_WAITS: Final = frozenset(
    (
        *(b"sleep", b"usleep", b"nanosleep", b"clock_nanosleep", b"alarm"),
        *(b"poll", b"ppoll", b"select", b"pselect", b"epoll_wait", b"epoll_pwait"),
    )
)

PAGE: Final = bytes(4096)
"""Of the shared memory: more than it needs, and a page is the least there is."""
SEMAPHORE: Final = struct.pack("=QiIQQ", 1, 128, 0, 0, 0)
"""A free POSIX semaphore as glibc keeps it in a file (`struct new_sem`; 128 is `LLL_SHARED`)."""

_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SHT_DYNSYM: Final = 11
_UNDEFINED: Final = struct.pack("<HQ", 0, 0)  # st_shndx and st_value


class Names(NamedTuple):
    """The names of a node's files for libfaketime in the folder of shared memory."""

    setting: str
    semaphore: str
    page: str

    @staticmethod
    def of(node: str) -> Names:
        """`node` is unique in the folder and holds no space."""
        return Names(f"{node}.setting", f"sem.{node}.sem", f"{node}.page")


def find_library() -> Path | None:
    """Libfaketime as it is installed on this machine."""
    return next(iter(sorted(Path("/").glob(f"{_FOLDERS[1:]}/{LIBRARY}"))), None)


def preload(library: str, node: str, folder: str, given: Mapping[str, str]) -> dict[str, str]:
    """The additions to the environment of a node, which has `given` already.

    `folder` is where its system has shared memory.
    """
    names = Names.of(node)
    loaded = given.get("LD_PRELOAD", "")
    return {
        "LD_PRELOAD": f"{library}:{loaded}" if loaded else library,
        "FAKETIME_TIMESTAMP_FILE": f"{folder}/{names.setting}",
        # The names as sem_open(3) and shm_open(3) take them.
        "FAKETIME_SHARED": f"/{names.semaphore.removeprefix('sem.')} /{names.page}",
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",  # when a file was written is a matter of the disk
    }


def setting(error: ClockError) -> str:
    """The line of the file that makes a clock as wrong as this.

    The rate counts from the epoch: what it adds up to `since_ns` is taken off the offset.
    """
    before_ns = error.since_ns * error.drift_ppm // _MILLION
    offset_ns = error.offset_ns - before_ns
    sign = "-" if offset_ns < 0 else "+"
    whole, rest = divmod(abs(offset_ns), NS_PER_S)
    # The rate is always given, since libfaketime keeps the last one.
    return f"{sign}{whole}.{rest:09} x{1 + error.drift_ppm / _MILLION:.6f}"


def shift_ns(error: ClockError, now_ns: int) -> int:
    """The wanted shift of the wall clock at `now_ns` of a right one."""
    return error.offset_ns + (now_ns - error.since_ns) * error.drift_ppm // _MILLION


def without_waits(library: bytes) -> bytes:
    """A copy of the library without its waits: they are undefined symbols in it.

    Raises `InfrastructureError` for another file than such a library.
    """
    symbols = dict(_symbols(library))
    missing = [name.decode() for name in sorted(_WAITS - symbols.keys())]
    if missing:
        raise InfrastructureError(
            f"this libfaketime does not have {', '.join(missing)}, as Debian's has; install "
            "Debian's package libfaketime"
        )
    copy = bytearray(library)
    for name in _WAITS:
        at = symbols[name] + 6  # behind st_name, st_info and st_other
        copy[at : at + len(_UNDEFINED)] = _UNDEFINED
    return bytes(copy)


def _symbols(library: bytes) -> list[tuple[bytes, int]]:
    """The dynamic symbols of a shared object and their places; see elf(5)."""
    if not library.startswith(_ELF_64_LITTLE):
        raise InfrastructureError("this libfaketime is no 64-bit library of this kind of machine")
    try:
        (headers,) = struct.unpack_from("<Q", library, 0x28)
        size, count, _ = struct.unpack_from("<HHH", library, 0x3A)
        sections = [_SECTION.unpack_from(library, headers + i * size) for i in range(count)]
        table = next(section for section in sections if section[1] == _SHT_DYNSYM)
        strings = sections[table[6]][4]
        symbols = []
        for at in range(table[4], table[4] + table[5], table[9]):
            (name,) = struct.unpack_from("<I", library, at)
            begin = strings + name
            symbols.append((library[begin : library.index(b"\0", begin)], at))
    except (struct.error, StopIteration, IndexError, ValueError) as error:
        raise InfrastructureError(f"this libfaketime cannot be read: {error!r}") from error
    return symbols
