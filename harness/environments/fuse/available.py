"""Checks whether FUSE disks work on this machine, and how to make them work."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from pathlib import Path
from typing import Final

from harness.plugins import Diagnosis

BINARY: Final = "harness-fusedisk"
_OVERRIDE: Final = "HARNESS_FUSEDISK"
_DEVICE: Final = Path("/dev/fuse")
_CONFIGURATION: Final = Path("/etc/fuse.conf")
_ALLOWED: Final = re.compile(r"^\s*user_allow_other\s*$", re.MULTILINE)
_SYS_ADMIN: Final = 1 << 21  # CAP_SYS_ADMIN of capability.h, which allows mounting
_CAPABILITIES: Final = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)


def find_binary() -> str | None:
    """Return the path of the program: as `HARNESS_FUSEDISK` says, where `make native` puts it, or
    on PATH.

    Returns `None` if it is in none of these places.
    """
    override = os.environ.get(_OVERRIDE)
    if override is not None:
        return shutil.which(override)
    beside = Path(sysconfig.get_path("scripts")) / BINARY
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(BINARY)


def why_missing() -> str | None:
    """Return the first missing requirement, and how to fix it; `None` if nothing is missing."""
    if find_binary() is None:
        return f"the program {BINARY} is not built; `make native` builds it if cargo is installed"
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return f"this user cannot open {_DEVICE}; load the kernel's module fuse (modprobe fuse)"
    if _may_mount():
        return None
    if shutil.which("fusermount3") is None:
        return "this user may not mount without fusermount3; run apt-get install fuse3"
    if not _ALLOWED.search(_read(_CONFIGURATION)):
        return f"other users may not use FUSE mounts; add user_allow_other to {_CONFIGURATION}"
    return None


def _may_mount() -> bool:
    match = _CAPABILITIES.search(_read(Path("/proc/self/status")))
    return match is not None and bool(int(match[1], 16) & _SYS_ADMIN)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


class FaultyDisks(Diagnosis):
    """A line of `harness doctor`: whether FUSE disks can be mounted on this machine."""

    api_version = 1
    name = "faulty-disks"
    doc = "disks on which foreign programs lose what they did not sync (FUSE)"

    def look(self) -> tuple[bool, str]:
        why = why_missing()
        return why is None, why or f"served by {find_binary()}"
