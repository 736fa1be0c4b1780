"""The interface to libfaketime: a node's environment, the file it reads, and the library itself.

A program that preloads https://github.com/wolfcw/libfaketime reads a wrong wall clock: the library
replaces functions of the C library. It reads the clock error from a file, in our configuration on
every call. Only the wall clock should be wrong; monotonic clocks and waits should stay correct. For
that, version 0.9.10 (Debian 12) needs some help:

* `FAKETIME_DONT_FAKE_MONOTONIC` keeps the monotonic clocks correct, but not waits: libfaketime
  stretches waits by the rate, and confuses the two clocks in `clock_nanosleep` with an absolute
  time, which Python's `time.sleep` uses. So the harness loads a copy of the library without wait
  functions, and the program uses the C library's. Waits for a wall clock time still use the wrong
  clock.
* A rate counts from the start of the program, which libfaketime keeps in a shared page. The harness
  creates that page with zeros, so the rate counts from 1970 and is the same in every process.
* A killed program leaves its page and its semaphore behind. The harness chooses their names, so it
  can delete them.

One error remains: libfaketime mistakes timed waits on a condition variable with the monotonic clock
(`pthread_cond_timedwait`, used by Java) for waits by the wall clock. While the clock is wrong, such
a wait ends too early or too late, by the clock's offset.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from harness.environments.faulty import ClockError
from harness.errors import InfrastructureError
from harness.ops import NS_PER_S

LIBRARY: Final = "libfaketimeMT.so.1"  # for programs with and without threads
_FOLDERS: Final = "/usr/lib/*/faketime"
_MILLION: Final = 1_000_000
_WAITS: Final = frozenset(
    (
        *(b"sleep", b"usleep", b"nanosleep", b"clock_nanosleep", b"alarm"),
        *(b"poll", b"ppoll", b"select", b"pselect", b"epoll_wait", b"epoll_pwait"),
    )
)

PAGE: Final = bytes(4096)
"""The initial content of libfaketime's shared memory, which is smaller than a page."""
SEMAPHORE: Final = struct.pack("=QiIQQ", 1, 128, 0, 0, 0)
"""An unlocked POSIX semaphore in glibc's file format (`struct new_sem`, with `LLL_SHARED` 128)."""

_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SHT_DYNSYM: Final = 11
_UNDEFINED: Final = struct.pack("<HQ", 0, 0)  # st_shndx and st_value


class Names(NamedTuple):
    """The names of a node's files in shared memory. The node's libfaketime uses these files."""

    setting: str
    semaphore: str
    page: str

    @staticmethod
    def of(node: str) -> Names:
        """Return the names for `node`. The node's name must be unique and without spaces."""
        return Names(f"{node}.setting", f"sem.{node}.sem", f"{node}.page")


def find_library() -> Path | None:
    """Return the path of the installed libfaketime, or `None`."""
    return next(iter(sorted(Path("/").glob(f"{_FOLDERS[1:]}/{LIBRARY}"))), None)


def preload(library: str, node: str, folder: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that load libfaketime, to add to the node's variables `given`.

    `folder` is the node's shared memory.
    """
    names = Names.of(node)
    loaded = given.get("LD_PRELOAD", "")
    return {
        "LD_PRELOAD": f"{library}:{loaded}" if loaded else library,
        "FAKETIME_TIMESTAMP_FILE": f"{folder}/{names.setting}",
        # Both names begin with a slash in sem_open(3) and shm_open(3). sem_open(3) adds `sem.`
        # itself.
        "FAKETIME_SHARED": f"/{names.semaphore.removeprefix('sem.')} /{names.page}",
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",  # the times of files stay correct
    }


def setting(error: ClockError) -> str:
    """Return the line of the setting file for this clock error.

    libfaketime counts the rate from 1970, so the offset is corrected for the drift from 1970 to
    `since_ns`.
    """
    before_ns = error.since_ns * error.drift_ppm // _MILLION
    offset_ns = error.offset_ns - before_ns
    sign = "-" if offset_ns < 0 else "+"
    whole, rest = divmod(abs(offset_ns), NS_PER_S)
    # Without a rate, libfaketime would keep the previous one.
    return f"{sign}{whole}.{rest:09} x{1 + error.drift_ppm / _MILLION:.6f}"


def shift_ns(error: ClockError, now_ns: int) -> int:
    """Return by how many ns the wall clock is wrong at the correct time `now_ns`."""
    return error.offset_ns + (now_ns - error.since_ns) * error.drift_ppm // _MILLION


def without_waits(library: bytes) -> bytes:
    """Return a copy of libfaketime without its wait functions.

    Raises `InfrastructureError` if one of these functions is missing.
    """
    symbols = dict(_symbols(library))
    missing = [name.decode() for name in sorted(_WAITS - symbols.keys())]
    if missing:
        raise InfrastructureError(
            f"the installed libfaketime lacks {', '.join(missing)}, which Debian's libfaketime "
            "has; install Debian's package libfaketime"
        )
    copy = bytearray(library)
    for name in _WAITS:
        at = symbols[name] + 6  # skip st_name, st_info and st_other
        copy[at : at + len(_UNDEFINED)] = _UNDEFINED
    return bytes(copy)


def _symbols(library: bytes) -> list[tuple[bytes, int]]:
    if not library.startswith(_ELF_64_LITTLE):
        raise InfrastructureError(
            "the installed libfaketime is not a little-endian 64-bit ELF file"
        )
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
        raise InfrastructureError(f"the installed libfaketime is damaged: {error!r}") from error
    return symbols
