"""Access to processes through /proc, with identities that survive the recycling of pids.

A pid alone identifies only its current process. A pid together with the start time of its process
(field 22 of `/proc/PID/stat`, in clock ticks since boot) is unique for ever. Before sending a
signal, a pidfd is opened and then the start time checked, so the signal cannot hit another process.
See proc(5), pidfd_open(2).
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
_STATE, _GROUP, _START_TICKS = 0, 2, 19  # positions after the command's closing parenthesis
_CHILDREN_USER_TICKS, _CHILDREN_SYSTEM_TICKS = 13, 14
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CLOCK_OF_PROCESS = 2
_SEGMENTS: Final = Path("/proc/sysvipc/shm")
_REMOVE: Final = 0  # IPC_RMID
_ROUNDED_S: Final = 1.0  # segment times are in whole seconds


class ProcessId(NamedTuple):
    """The unique identity of a process."""

    pid: int
    start_ticks: int

    def __str__(self) -> str:
        return f"{self.pid}:{self.start_ticks}"

    @staticmethod
    def parse(text: str) -> ProcessId:
        """The inverse of `str`; raises `ValueError`."""
        pid, _, ticks = text.partition(":")
        return ProcessId(int(pid), int(ticks))


class ThreadId(NamedTuple):
    """The unique identity of a thread; `start_ticks` as in `ProcessId`."""

    process: int
    number: int
    start_ticks: int


class Scheduled(NamedTuple):
    """The scheduler's statistics of a thread since its start."""

    state: str  # one letter: "R" is running or ready to run
    ran_ns: int
    waited_ns: int  # time ready but not running; counted once a wait is over


def _stat(pid: int) -> list[str] | None:
    try:
        return _fields(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None


def _fields(stat: str) -> list[str]:
    # The command is in parentheses and may itself contain spaces and parentheses.
    return _read(stat).rpartition(")")[2].split()


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - read by the hundred
        return file.read()


def identify(pid: int) -> ProcessId | None:
    """The identity of the process that currently has `pid`; `None` if there is none."""
    fields = _stat(pid)
    return None if fields is None else ProcessId(pid, int(fields[_START_TICKS]))


def this_process() -> ProcessId:
    """The calling process."""
    caller = identify(os.getpid())
    assert caller is not None, "/proc shows every process itself"
    return caller


def state(process: ProcessId) -> str | None:
    """The one-letter state (R, S, D, T, Z, ...); `None` once the process is gone."""
    fields = _stat(process.pid)
    if fields is None or int(fields[_START_TICKS]) != process.start_ticks:
        return None
    return fields[_STATE]


def is_alive(process: ProcessId) -> bool:
    """Whether the process still runs (or is stopped); a zombie does not."""
    return state(process) not in {None, "Z", "X"}


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process; false if it is gone. Raises `PermissionError`."""
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
    """The initial environment of a process; empty if it is gone or unreadable for us."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def all_processes() -> Iterator[ProcessId]:
    """All processes, ordered by pid."""
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):  # noqa: PTH208
        process = identify(pid)
        if process is not None:
            yield process


def memory_bytes(process: ProcessId) -> int | None:
    """The anonymous resident memory of a process (`RssAnon`); `None` if it is gone."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    held = re.search(r"^RssAnon:\s+(\d+) kB$", text, re.MULTILINE)  # a zombie has none
    return int(held[1]) * 1024 if held is not None and is_alive(process) else None


def written_bytes(process: ProcessId) -> int | None:
    """The bytes that a process made the kernel write to disks, in whole pages; see proc(5).

    Returns `None` if the process is gone or unreadable, and also for zero, which is ambiguous:
    writes to a file system in memory are not counted.
    """
    try:
        text = _read(f"/proc/{process.pid}/io")
    except OSError:
        return None
    written = re.search(r"^write_bytes: (\d+)$", text, re.MULTILINE)
    return int(written[1]) or None if written is not None and is_alive(process) else None


def is_of_container(pid: int, container_id: str) -> bool:
    """Whether a local process belongs to this container, by the path of its control group.

    The answer is false if the pid comes from an engine in a VM or on another machine.
    """
    try:
        return container_id in _read(f"/proc/{pid}/cgroup")
    except OSError:
        return False


def threads(pid: int, *, descendants: bool) -> dict[ThreadId, Scheduled]:
    """The threads of a process (and of its descendants) with their scheduler statistics.

    Empty if the process is gone, or if the kernel lacks the statistics (CONFIG_SCHED_INFO). A child
    may be missing if a sibling ends at the same moment. See proc(5), and /proc/PID/schedstat in
    Documentation/scheduler/sched-stats.rst.
    """
    scheduled: dict[ThreadId, Scheduled] = {}
    for process in family(pid) if descendants else [pid]:
        with contextlib.suppress(OSError):  # it has ended
            for number in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
                folder = f"/proc/{process}/task/{number}"
                with contextlib.suppress(OSError, ValueError, IndexError):
                    fields = _fields(f"{folder}/stat")
                    ran_ns, waited_ns, _ = map(int, _read(f"{folder}/schedstat").split())
                    thread = ThreadId(process, int(number), int(fields[_START_TICKS]))
                    scheduled[thread] = Scheduled(fields[_STATE], ran_ns, waited_ns)
    return scheduled


def family(pid: int) -> list[int]:
    """The pids of a process and its descendants (none without CONFIG_PROC_CHILDREN)."""
    members = []
    left = [pid]
    while left:
        process = left.pop()
        members.append(process)
        with contextlib.suppress(OSError):  # it has ended
            for task in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
                left.extend(map(int, _read(f"/proc/{process}/task/{task}/children").split()))
    return members


def computed_s(pids: Iterable[int]) -> float:
    """The total CPU time of these processes and of the children that they have waited for.

    Running processes are measured by their CPU clocks, in nanoseconds, and ended children in ticks.
    The total falls when a process ends before its parent has waited for it.
    """
    total_s = 0.0
    for process in pids:
        with contextlib.suppress(OSError):  # it has ended
            # The clock id, computed like clock_getcpuclockid(3).
            total_s += time.clock_gettime(~process << 3 | _CLOCK_OF_PROCESS)
        fields = _stat(process)
        if fields is not None:
            ended = int(fields[_CHILDREN_USER_TICKS]) + int(fields[_CHILDREN_SYSTEM_TICKS])
            total_s += ended / _TICKS_PER_S
    return total_s


def any_stopped(pid: int) -> bool:
    """Whether a process or a descendant is stopped, except by a tracer among them."""
    members = family(pid)
    return any(
        state == "T" or (state == "t" and _tracer(each) not in members)
        for each, state in _states(members)
    )


def all_stopped(pid: int) -> bool:
    """Whether neither a process nor any descendant is running, ready or sleeping."""
    return all(state not in _AWAKE for _, state in _states(family(pid)))


def _states(pids: Iterable[int]) -> Iterator[tuple[int, str]]:
    for pid in pids:
        fields = _stat(pid)
        if fields is not None:
            yield pid, fields[_STATE]


def _tracer(pid: int) -> int:
    """The pid of a process's tracer, such as strace(1); 0 without a tracer."""
    with contextlib.suppress(OSError):
        match = re.search(r"^TracerPid:\s+(\d+)$", _read(f"/proc/{pid}/status"), re.MULTILINE)
        return 0 if match is None else int(match[1])
    return 0


def outside_group(leader: int) -> list[ProcessId]:
    """The descendants of a group leader that are not in its process group."""
    outside = []
    for pid in family(leader):
        fields = _stat(pid)
        if fields is not None and int(fields[_GROUP]) != leader:
            outside.append(ProcessId(pid, int(fields[_START_TICKS])))
    return outside


def holds_socket(pid: int, inode: int) -> bool:
    """Whether a process holds this socket; false if it is gone or unreadable for us."""
    wanted = f"socket:[{inode}]"
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except OSError:
        return False
    for number in numbers:
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(f"/proc/{pid}/fd/{number}") == wanted:  # noqa: PTH115 - by the hundred
                return True
    return False


def oom_kills() -> int | None:
    """The number of processes that the OOM killer has ended in our control group.

    If the group does not count them (cgroup v1), the number for the whole machine; `None` if
    nothing counts them.
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
    """Remove the System V segments of a dead or dying process; returns their number.

    A killed PostgreSQL leaves a segment behind, and removes the segment only when it starts again
    on the same data, which does not happen after the last kill of a run. A machine has room for
    some thousand segments (`kernel.shmmni`). See shmctl(2), proc_sysvipc_shm(5).

    The kernel keeps a removed segment until its last user has detached. Segments older than the
    process belong to an earlier process with the same pid and are kept.
    """
    since_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    since_s += process.start_ticks / _TICKS_PER_S - _ROUNDED_S
    try:
        names, *rows = (line.split() for line in _SEGMENTS.read_text().splitlines())
    except (OSError, ValueError):
        return 0  # the kernel has no segments
    removed = 0
    for row in rows:
        segment = {name: int(value) for name, value in zip(names, row, strict=True)}
        if segment["cpid"] == process.pid and segment["ctime"] >= since_s:
            removed += ctypes.CDLL(None).shmctl(segment["shmid"], _REMOVE, None) == 0
    return removed


def _count_of(name: str, file: Path) -> int:
    """The number after `name` in a file with one counter per line; raises `StopIteration`."""
    lines = file.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))
