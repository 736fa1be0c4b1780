"""Inspects and signals processes through /proc, without confusing processes that reuse a pid.

A pid together with the start time of its process (field 22 of `/proc/PID/stat`, in clock ticks
since boot) is unique until the next boot. Before it sends a signal, this module opens a pidfd and
then checks the start time, so the signal cannot reach another process. See proc(5), pidfd_open(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

STOPPED = frozenset("Tt")
"""The states of a process that a signal or a debugger has stopped."""
_AWAKE = frozenset("RS")
_STATE, _GROUP, _START_TICKS = 0, 2, 19  # positions in /proc/PID/stat, after the command
_CHILDREN_USER_TICKS, _CHILDREN_SYSTEM_TICKS = 13, 14
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CLOCK_OF_PROCESS = 2
_SEGMENTS: Final = Path("/proc/sysvipc/shm")
_REMOVE: Final = 0  # the IPC_RMID of shmctl(2)
_ROUNDED_S: Final = 1.0  # times of shared memory are in whole seconds


class ProcessId(NamedTuple):
    """Identifies a process uniquely, by its pid and its start time."""

    pid: int
    start_ticks: int

    def __str__(self) -> str:
        return f"{self.pid}:{self.start_ticks}"

    @staticmethod
    def parse(text: str) -> ProcessId:
        """Parse what `str` makes of an identity. Raises `ValueError` for any other string."""
        pid, _, ticks = text.partition(":")
        return ProcessId(int(pid), int(ticks))


class ThreadId(NamedTuple):
    """Identifies a thread uniquely, by its process, its number and its start time."""

    process: int
    number: int
    start_ticks: int


class Scheduled(NamedTuple):
    """The scheduler's statistics of a thread since its start."""

    state: str  # "R": running or ready to run
    ran_ns: int
    waited_ns: int  # how long the thread was ready to run and waited for a CPU


def _stat(pid: int) -> list[str] | None:
    try:
        return _fields(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None


def _fields(stat: str) -> list[str]:
    # The command is in parentheses, and may contain spaces and parentheses.
    return _read(stat).rpartition(")")[2].split()


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - read by the hundred
        return file.read()


def identify(pid: int) -> ProcessId | None:
    """Return the identity of the process that has `pid` now, or `None`."""
    fields = _stat(pid)
    return None if fields is None else ProcessId(pid, int(fields[_START_TICKS]))


def this_process() -> ProcessId:
    """Return the identity of the calling process."""
    caller = identify(os.getpid())
    assert caller is not None, "/proc shows every process itself"
    return caller


def state(process: ProcessId) -> str | None:
    """Return the state of a process as a letter (R, S, D, T, Z, ...), or `None` once it is gone."""
    fields = _stat(process.pid)
    if fields is None or int(fields[_START_TICKS]) != process.start_ticks:
        return None
    return fields[_STATE]


def is_alive(process: ProcessId) -> bool:
    """Whether the process is alive. A stopped process is, a zombie is not."""
    return state(process) not in {None, "Z", "X"}


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process; false if it is gone. May raise `PermissionError`."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if state(process) is None:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def environment_of(pid: int) -> dict[str, str]:
    """Return a process's initial environment; empty if it is gone or cannot be read."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def all_processes() -> Iterator[ProcessId]:
    """Yield all processes of this PID namespace, ordered by pid."""
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):  # noqa: PTH208
        process = identify(pid)
        if process is not None:
            yield process


def memory_bytes(process: ProcessId) -> int | None:
    """Return a process's anonymous resident memory (`RssAnon`) in bytes; `None` if it is gone."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    held = re.search(r"^RssAnon:\s+(\d+) kB$", text, re.MULTILINE)  # a zombie has no such line
    return int(held[1]) * 1024 if held is not None and is_alive(process) else None


def written_bytes(process: ProcessId) -> int | None:
    """Return the bytes that a process made the kernel write to disks, in whole pages; see proc(5).

    `None` means that the process is gone or unreadable. Zero bytes are `None` as well, since the
    kernel does not count writes to a file system in memory.
    """
    try:
        text = _read(f"/proc/{process.pid}/io")
    except OSError:
        return None
    written = re.search(r"^write_bytes: (\d+)$", text, re.MULTILINE)
    return int(written[1]) or None if written is not None and is_alive(process) else None


def is_of_container(pid: int, container_id: str) -> bool:
    """Whether the local process `pid` is in this container, by the path of its control group.

    False if the pid comes from an engine in a VM or on another machine.
    """
    try:
        return container_id in _read(f"/proc/{pid}/cgroup")
    except OSError:
        return False


def threads(pid: int, *, descendants: bool) -> dict[ThreadId, Scheduled]:
    """Return the scheduler's statistics of a process's threads.

    With `descendants`, the threads of its descendants are included. The result is empty if the
    process is gone, or if the kernel lacks the statistics (CONFIG_SCHED_INFO). It may lack a child
    if a sibling ends at the same moment. See proc(5), and /proc/PID/schedstat in
    Documentation/scheduler/sched-stats.rst.
    """
    scheduled: dict[ThreadId, Scheduled] = {}
    for process in family(pid) if descendants else [pid]:
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
                folder = f"/proc/{process}/task/{number}"
                with contextlib.suppress(OSError, ValueError, IndexError):
                    fields = _fields(f"{folder}/stat")
                    ran_ns, waited_ns, _ = map(int, _read(f"{folder}/schedstat").split())
                    thread = ThreadId(process, int(number), int(fields[_START_TICKS]))
                    scheduled[thread] = Scheduled(fields[_STATE], ran_ns, waited_ns)
    return scheduled


def family(pid: int) -> list[int]:
    """Return the pids of a process and its descendants.

    Without CONFIG_PROC_CHILDREN, this is only `pid`.
    """
    members = []
    left = [pid]
    while left:
        process = left.pop()
        members.append(process)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
                left.extend(map(int, _read(f"/proc/{process}/task/{task}/children").split()))
    return members


def computed_s(pids: Iterable[int]) -> float:
    """Return the CPU time in s of these processes and of the children that they have waited for.

    The CPU clocks of running processes count nanoseconds, and the times of ended children count
    ticks. The total falls when a process ends before its parent has waited for it.
    """
    total_s = 0.0
    for process in pids:
        with contextlib.suppress(OSError):
            # the id of the process's CPU clock, as in clock_getcpuclockid(3)
            total_s += time.clock_gettime(~process << 3 | _CLOCK_OF_PROCESS)
        fields = _stat(process)
        if fields is not None:
            ended = int(fields[_CHILDREN_USER_TICKS]) + int(fields[_CHILDREN_SYSTEM_TICKS])
            total_s += ended / _TICKS_PER_S
    return total_s


def any_stopped(pid: int) -> bool:
    """Whether `pid` or a descendant is stopped. A stop by a tracer among them does not count."""
    members = family(pid)
    return any(
        state == "T" or (state == "t" and _tracer(each) not in members)
        for each, state in _states(members)
    )


def all_stopped(pid: int) -> bool:
    """Whether `pid` and all descendants are stopped: none is ready to run or asleep (R, S)."""
    return all(state not in _AWAKE for _, state in _states(family(pid)))


def _states(pids: Iterable[int]) -> Iterator[tuple[int, str]]:
    for pid in pids:
        fields = _stat(pid)
        if fields is not None:
            yield pid, fields[_STATE]


def _tracer(pid: int) -> int:
    """Return the pid of the process's tracer, such as strace(1), or 0."""
    with contextlib.suppress(OSError):
        match = re.search(r"^TracerPid:\s+(\d+)$", _read(f"/proc/{pid}/status"), re.MULTILINE)
        return 0 if match is None else int(match[1])
    return 0


def outside_group(leader: int) -> list[ProcessId]:
    """Return the descendants of `leader` outside of the process group of `leader`."""
    outside = []
    for pid in family(leader):
        fields = _stat(pid)
        if fields is not None and int(fields[_GROUP]) != leader:
            outside.append(ProcessId(pid, int(fields[_START_TICKS])))
    return outside


def holds_socket(pid: int, inode: int) -> bool:
    """Whether a process has the socket `inode`; false if it is gone or unreadable."""
    wanted = f"socket:[{inode}]"
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except OSError:
        return False
    for number in numbers:
        with contextlib.suppress(OSError):  # the process has just closed this descriptor
            if os.readlink(f"/proc/{pid}/fd/{number}") == wanted:  # noqa: PTH115 - by the hundred
                return True
    return False


def oom_kills() -> int | None:
    """Return how many processes the OOM killer has ended in the harness's control group.

    Cgroup v1 does not count OOM kills, so there the number is for the whole machine. Returns `None`
    if the kernel counts no OOM kills.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        group = next(line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
        return _count_of("oom_kill", Path("/sys/fs/cgroup", group, "memory.events"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return _count_of("oom_kill", Path("/proc/vmstat"))
    except (OSError, StopIteration, ValueError):
        return None


def remove_shared_memory(process: ProcessId) -> int:
    """Remove the System V shared memory of a dead or dying process; returns the number of segments.

    A killed PostgreSQL leaves a segment behind. It removes the segment only when it starts again on
    the same data, which it never does after the last kill of a run. A machine has room for some
    thousand segments (`kernel.shmmni`). See shmctl(2), proc_sysvipc_shm(5).

    The kernel keeps a removed segment until its last user has detached. Segments that are older
    than the process belong to an earlier process with the same pid, so they stay.
    """
    since_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    since_s += process.start_ticks / _TICKS_PER_S - _ROUNDED_S
    try:
        names, *rows = (line.split() for line in _SEGMENTS.read_text().splitlines())
    except (OSError, ValueError):
        return 0  # this kernel has no System V shared memory
    removed = 0
    for row in rows:
        segment = {name: int(value) for name, value in zip(names, row, strict=True)}
        if segment["cpid"] == process.pid and segment["ctime"] >= since_s:
            removed += ctypes.CDLL(None).shmctl(segment["shmid"], _REMOVE, None) == 0
    return removed


def _count_of(name: str, file: Path) -> int:
    """Return the number after `name` in a file of counters; `StopIteration` if it is missing."""
    lines = file.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))
