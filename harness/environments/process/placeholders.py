"""The placeholders of foreign commands; see `harness.cluster.NodeSpec`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.cluster import NodeSpec
from harness.environments.process.addresses import LOOPBACK
from harness.environments.real.packages import package_folder
from harness.errors import UsageError

__all__ = ["STABLE_ADDRESS", "fill"]

_KNOWN: Final = "{host} {data} {files} {name} {port:N} {peer:NODE:N} {package:P}"
STABLE_ADDRESS: Final = re.compile(r"\{address:[^{}]*\}")
"""What this environment cannot fill in: see `NodeSpec`."""
_PLACEHOLDER: Final = re.compile(r"\{([a-z]+)(?::([^{}]*))?\}")


def fill(
    word: str,
    spec: NodeSpec,
    *,
    data: Path,
    files: Path,
    listen: Mapping[str, tuple[str, int]],
    connect: Mapping[str, tuple[str, int]],
) -> str:
    """Replace the placeholders of one word; raises `UsageError` for one that cannot be."""

    def value(match: re.Match[str]) -> str:
        kind, rest = match[1], match[2]
        if kind == "host" and rest is None:
            return LOOPBACK
        if kind == "data" and rest is None:
            return str(data)
        if kind == "files" and rest is None:
            return str(files)
        if kind == "name" and rest is None:
            return spec.name
        if kind == "package" and rest:
            return str(package_folder(rest))
        if kind == "port" and rest in listen:
            return str(listen[rest][1])
        if kind == "peer" and rest in connect:
            host, port = connect[rest]
            return f"{host}:{port}"
        raise UsageError(
            f"node {spec.name!r}: the placeholder {match[0]!r} cannot be filled in; known are "
            f"{_KNOWN}, ports of its own are {sorted(listen)}, peers are {sorted(connect)}"
        )

    return _PLACEHOLDER.sub(value, word)
