"""The placeholders of foreign commands; see `harness.cluster.NodeSpec`."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.cluster import NodeSpec
from harness.environments.process.addresses import LOOPBACK
from harness.errors import UsageError

__all__ = ["STABLE_ADDRESS", "fill"]

_KNOWN: Final = "{host} {data} {name} {port:N} {peer:NODE:N} {package:P}"
STABLE_ADDRESS: Final = re.compile(r"\{address:[^{}]*\}")
"""What this environment cannot fill in: see `NodeSpec`."""
_PLACEHOLDER: Final = re.compile(r"\{([a-z]+)(?::([^{}]*))?\}")


def _package_folder(package: str) -> str:
    """The folder that holds `package`, found without running any of its code."""
    top, *inner = package.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.submodule_search_locations:
        found = Path(next(iter(spec.submodule_search_locations)))
        return str(found.joinpath(*inner[:-1]) if inner else found.parent)
    if spec is not None and spec.has_location and spec.origin is not None:
        return str(Path(spec.origin).parent)
    raise UsageError(
        f"{{package:{package}}}: no package or module {top!r} is installed here; install the "
        "distribution that brings it into the harness's environment"
    )


def fill(
    word: str,
    spec: NodeSpec,
    *,
    data: Path,
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
        if kind == "name" and rest is None:
            return spec.name
        if kind == "package" and rest:
            return _package_folder(rest)
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
