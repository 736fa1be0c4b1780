"""The identity of the process that controls a run, and whether this process is still alive.

A controller is identified by its pid, its start time, its PID namespace and the kernel's boot id.
So it differs from a later process with the same pid, from processes before a reboot, and from
processes in other containers. A controller counts as dead only if this is certain: leaving a
container or a folder behind is better than destroying a running run.
"""

from __future__ import annotations

import enum
import functools
import os
import re
from pathlib import Path
from typing import NamedTuple

from harness.environments import procfs
from harness.environments.procfs import ProcessId
from harness.errors import InternalError

_CONTROLLER = re.compile(r"(\d+:\d+)@([0-9a-f-]+)/(\d+)")


class Life(enum.Enum):
    """Whether a controller is alive, as far as the calling process can see."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


class Controller(NamedTuple):
    """Identifies the process that controls a run; unique across machines."""

    process: ProcessId
    boot_id: str
    pid_namespace: int

    def __str__(self) -> str:
        return f"{self.process}@{self.boot_id}/{self.pid_namespace}"

    @staticmethod
    def parse(text: str) -> Controller:
        """Parse a controller from its `str`; raises `ValueError` for any other text."""
        match = _CONTROLLER.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a controller PID:TICKS@BOOT-ID/NAMESPACE")
        return Controller(ProcessId.parse(match[1]), match[2], int(match[3]))


def this_controller() -> Controller:
    """Return the identity of the calling process as a controller."""
    return _controller(os.getpid())


@functools.cache  # cached: the driver calls this for each process that it starts
def _controller(pid: int) -> Controller:
    process = procfs.identify(pid)
    if process is None:
        raise InternalError("/proc has no entry for the harness; real environments need Linux")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return Controller(process, boot_id, namespace)


def life(controller: Controller, here: Controller, *, same_machine: bool) -> Life:
    """Return whether `controller` is alive, as far as the controller `here` can know.

    A different boot id proves a reboot only if both are on the `same_machine`; otherwise
    `controller` may run on another machine. `here` cannot see processes in another PID namespace.
    """
    if controller.boot_id != here.boot_id:
        return Life.DEAD if same_machine else Life.UNKNOWN
    if controller.pid_namespace != here.pid_namespace:
        return Life.UNKNOWN
    return Life.ALIVE if procfs.is_alive(controller.process) else Life.DEAD
