"""For `harness doctor`: whether foreign programs can have a disk of ours here."""

from __future__ import annotations

from harness.environments.fuse.available import find_binary, why_missing
from harness.plugins import Diagnosis


class FaultyDisks(Diagnosis):
    """Looks for what a FUSE file system takes, without mounting one."""

    api_version = 1
    name = "faulty-disks"
    doc = "disks on which foreign programs lose what they did not sync (FUSE)"

    def look(self) -> tuple[bool, str]:
        """Which program serves them, or what is missing."""
        why = why_missing()
        return why is None, why or f"served by {find_binary()}"
