"""The process that controls a run, and whether it lives.

A controller is named by its pid, the start time of that process, the kernel's boot id and its PID
namespace, so that a recycled pid, a rebooted machine and a controller inside another container are
told apart. What cannot be proven dead is left alone: a container or a folder left behind is better
than a run that is destroyed.
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
    """The state of a controller, as far as it is visible from here."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


class Controller(NamedTuple):
    """The process that controls a run, wherever it runs."""

    process: ProcessId
    boot_id: str
    pid_namespace: int

    def __str__(self) -> str:
        return f"{self.process}@{self.boot_id}/{self.pid_namespace}"

    @staticmethod
    def parse(text: str) -> Controller:
        """The inverse of `str`; raises `ValueError`."""
        match = _CONTROLLER.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a controller; write PID:TICKS@BOOT-ID/NAMESPACE")
        return Controller(ProcessId.parse(match[1]), match[2], int(match[3]))


def this_controller() -> Controller:
    """The calling process."""
    return _controller(os.getpid())


@functools.cache  # it is in the environment of every process of a run
def _controller(pid: int) -> Controller:
    process = procfs.identify(pid)
    if process is None:
        raise InternalError("/proc does not show this process; real environments need Linux")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return Controller(process, boot_id, namespace)


def life(controller: Controller, here: Controller, *, same_machine: bool) -> Life:
    """The state of `controller`, as far as `here` can know.

    Another boot id means that the machine was restarted, where it is the same machine; else it may
    as well be another one. Another PID namespace cannot be looked into.
    """
    if controller.boot_id != here.boot_id:
        return Life.DEAD if same_machine else Life.UNKNOWN
    if controller.pid_namespace != here.pid_namespace:
        return Life.UNKNOWN
    return Life.ALIVE if procfs.is_alive(controller.process) else Life.DEAD
