"""The names and labels by which the harness finds what it has created in an engine.

Containers, volumes and networks are labelled with the run, and with the process that controls the
run (`harness.environments.controller`).
"""

from __future__ import annotations

import enum
import hashlib
import re
from typing import Final

RUN_LABEL: Final = "harness.run"
CONTROLLER_LABEL: Final = "harness.controller"
NODE_LABEL: Final = "harness.node"
IMAGE_LABEL: Final = "harness.image"

_SLUG_CHARACTERS_MAX: Final = 60


class Part(enum.Enum):
    """The purpose of a node's container or volume. Its name ends with the member's value."""

    NODE = ""
    KEEPER = ".net"  # the container that owns the node's network namespace
    SETUP = ".setup"  # the container that runs a set-up command
    PROXY = ".proxy"  # the container with the node's Toxiproxy
    DATA = ".data"  # the volume with the node's data folder
    CLOCK = ".shm"  # the volume with the shared memory through which faults change a node's clock


def _slug(run_id: str) -> str:
    """Return the run's id with only allowed characters; a hash keeps a changed id unique."""
    slug = re.sub(r"[^a-zA-Z0-9_.-]", "-", run_id)
    if slug == run_id and len(slug) <= _SLUG_CHARACTERS_MAX:
        return slug
    digest = hashlib.blake2b(run_id.encode(), digest_size=5).hexdigest()
    return f"{slug[: _SLUG_CHARACTERS_MAX - 11]}-{digest}"


def network_name(run_id: str) -> str:
    """Return the name of the run's private network."""
    return f"harness-{_slug(run_id)}"


def container_name(run_id: str, node: str, part: Part = Part.NODE) -> str:
    """Return the name of the container or volume that is this `part` of a node."""
    return f"{network_name(run_id)}-{node}{part.value}"
