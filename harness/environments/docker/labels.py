"""Names and labels of everything we create in an engine, so that it can be found again.

Containers, volumes and networks carry the run and the process that controls it. A controller is
named by its pid, the start time of that process, the kernel's boot id and its pid namespace: a
recycled pid, a rebooted machine and a controller inside some other container are all told apart.
What we cannot prove dead is left alone; it is better to leave a container behind than to end
somebody's run.
"""

from __future__ import annotations

import enum
import hashlib
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from harness.environments import procfs
from harness.environments.procfs import ProcessId
from harness.errors import InternalError

__all__ = [
    "CONTROLLER_LABEL",
    "IMAGE_LABEL",
    "NODE_LABEL",
    "RUN_LABEL",
    "Controller",
    "Life",
    "Part",
    "container_name",
    "life",
    "network_name",
    "this_controller",
]

RUN_LABEL: Final = "harness.run"
CONTROLLER_LABEL: Final = "harness.controller"
NODE_LABEL: Final = "harness.node"
IMAGE_LABEL: Final = "harness.image"

_SLUG_CHARACTERS_MAX: Final = 60
_CONTROLLER = re.compile(r"(\d+:\d+)@([0-9a-f-]+)/(\d+)")


class Life(enum.Enum):
    """What can be said of a controller from here."""

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
    """The process that calls."""
    process = procfs.identify(os.getpid())
    if process is None:
        raise InternalError("/proc does not show this process; the docker environment needs Linux")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return Controller(process, boot_id, namespace)


def life(controller: Controller, here: Controller, *, engine_is_local: bool) -> Life:
    """Whether `controller` lives, as far as `here` can know.

    Another boot id means that this machine was restarted, if the engine is this machine's; with a
    remote engine it may as well be another machine. Another pid namespace cannot be looked into.
    """
    if controller.boot_id != here.boot_id:
        return Life.DEAD if engine_is_local else Life.UNKNOWN
    if controller.pid_namespace != here.pid_namespace:
        return Life.UNKNOWN
    return Life.ALIVE if procfs.is_alive(controller.process) else Life.DEAD


class Part(enum.Enum):
    """What is made for a node, by how its name ends; no node's name ends as a container's."""

    NODE = ""
    KEEPER = ".net"  # the container that keeps its network namespace
    SETUP = ".setup"  # the container that runs a command of its set-up
    PROXY = ".proxy"  # the container with the Toxiproxy of its namespace
    DATA = ".data"  # the volume with its data folder
    CLOCK = ".shm"  # the volume with its shared memory, where its clock may be made wrong


def _slug(run_id: str) -> str:
    """`run_id` in the characters that engines allow; a hash keeps changed ones distinct."""
    slug = re.sub(r"[^a-zA-Z0-9_.-]", "-", run_id)
    if slug == run_id and len(slug) <= _SLUG_CHARACTERS_MAX:
        return slug
    digest = hashlib.blake2b(run_id.encode(), digest_size=5).hexdigest()
    return f"{slug[: _SLUG_CHARACTERS_MAX - 11]}-{digest}"


def network_name(run_id: str) -> str:
    """The run's private network."""
    return f"harness-{_slug(run_id)}"


def container_name(run_id: str, node: str, part: Part = Part.NODE) -> str:
    """The container that runs the node's program, or what is made beside it."""
    return f"{network_name(run_id)}-{node}{part.value}"
