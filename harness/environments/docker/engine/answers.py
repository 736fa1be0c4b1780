"""Parsers that turn the engine's answers into typed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from harness.cluster import Usage

_STYLE: Final = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
"""A control sequence of a terminal, such as a colour or a movement (ECMA-48, section 5.4)."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Found(NamedTuple):
    """A container, volume or network that carries the harness's labels."""

    id: str
    name: str
    labels: dict[str, str]
    # Only containers have these fields.
    state: str = ""  # "running", "paused", "exited", ...
    addresses: Mapping[str, str] = MappingProxyType({})  # network -> address in this network
    ports: Mapping[int, int] = MappingProxyType({})


def container_of(row: Mapping[str, Any]) -> Found:
    """Return the container that one entry of the engine's list describes."""
    networks: dict[str, dict[str, Any]] = (row.get("NetworkSettings") or {}).get("Networks") or {}
    bound = (port for port in row.get("Ports") or () if port.get("PublicPort"))
    return Found(
        row["Id"],
        (row.get("Names") or ["?"])[0].lstrip("/"),
        row.get("Labels") or {},
        row.get("State") or "",
        {name: str(each.get("IPAddress") or "") for name, each in networks.items()},
        {int(port["PrivatePort"]): int(port["PublicPort"]) for port in bound},
    )


def usage_of(stats: Mapping[str, Any]) -> Usage:
    """Return a container's memory and disk use, from the engine's statistics for cgroup v1 or v2.

    If the engine counted no written bytes, their number is `None` (unknown), since the kernel does
    not count writes to tmpfs.
    """
    held = (stats.get("memory_stats") or {}).get("stats") or {}
    anonymous = held.get("anon", held.get("rss"))
    requests = (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive") or ()
    written = sum(each["value"] for each in requests if each["op"].lower() == "write")
    return Usage(
        memory_bytes=None if anonymous is None else int(anonymous), written_bytes=written or None
    )


def plain(text: str) -> str:
    """Remove colours from the output of a build step, and escape its control characters."""
    text = _STYLE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
