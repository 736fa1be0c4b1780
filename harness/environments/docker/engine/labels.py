"""Names and labels of everything the harness creates in an engine, to find it again.

Containers, volumes and networks are labelled with the run and the process that controls it
(`harness.environments.controller`).
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
    """The suffixes in the names of a node's parts. No node name may end with one of them."""

    NODE = ""
    KEEPER = ".net"  # the container that owns the node's network namespace
    SETUP = ".setup"  # the container that runs a set-up command
    PROXY = ".proxy"  # the container with the node's Toxiproxy
    DATA = ".data"  # the volume with its data folder
    CLOCK = ".shm"  # the volume with its shared memory, if its clock may be made wrong


def _slug(run_id: str) -> str:
    """`run_id` reduced to the characters that engines allow; a hash keeps altered ids distinct."""
    slug = re.sub(r"[^a-zA-Z0-9_.-]", "-", run_id)
    if slug == run_id and len(slug) <= _SLUG_CHARACTERS_MAX:
        return slug
    digest = hashlib.blake2b(run_id.encode(), digest_size=5).hexdigest()
    return f"{slug[: _SLUG_CHARACTERS_MAX - 11]}-{digest}"


def network_name(run_id: str) -> str:
    """The name of the run's private network."""
    return f"harness-{_slug(run_id)}"


def container_name(run_id: str, node: str, part: Part = Part.NODE) -> str:
    """The name of the container that runs the node's program, or of another part of the node."""
    return f"{network_name(run_id)}-{node}{part.value}"
