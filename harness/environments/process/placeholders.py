"""The placeholders of foreign commands; see `harness.cluster.NodeSpec`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.cluster import NodeSpec
from harness.deployment import words_of
from harness.environments.process.addresses import LOOPBACK
from harness.environments.real.packages import package_folder
from harness.errors import UsageError

__all__ = ["fill", "shared_ports"]

_KNOWN: Final = (
    "{host} {host:NODE} {data} {files} {name} {port:N} {peer:NODE:N} {address:NODE:N} {package:P}"
)
_PLACEHOLDER: Final = re.compile(r"\{([a-z]+)(?::([^{}]*))?\}")


def shared_ports(specs: Sequence[NodeSpec]) -> set[tuple[str, int]]:
    """The ports, by node, that any node needs one address of, the same for all.

    Raises `UsageError` for one that is not declared.
    """
    declared = {f"{spec.name}:{port}": (spec.name, port) for spec in specs for port in spec.ports}
    hosts = {spec.name: [(spec.name, port) for port in spec.ports] for spec in specs}
    shared: set[tuple[str, int]] = set()
    for spec in specs:
        for match in _placeholders(words_of(spec)):
            kind, rest = match[1], match[2]
            if kind == "address" and rest in declared:
                shared.add(declared[rest])
            elif kind == "host" and rest in hosts:
                shared.update(hosts[rest])
            elif kind == "address" or (kind == "host" and rest is not None):
                raise UsageError(
                    f"node {spec.name!r}: the placeholder {match[0]!r} names no declared port or "
                    f"node; there are {', '.join(declared)}"
                )
    return shared


def _placeholders(words: Iterable[str]) -> Iterable[re.Match[str]]:
    return (match for word in words for match in _PLACEHOLDER.finditer(word))


def fill(
    word: str,
    spec: NodeSpec,
    *,
    data: Path,
    files: Path,
    listen: Mapping[str, tuple[str, int]],
    connect: Mapping[str, tuple[str, int]],
    addresses: Mapping[str, tuple[str, int]],
) -> str:
    """Replace the placeholders of one word; raises `UsageError` for one that cannot be."""
    hosts = {place.rpartition(":")[0]: host for place, (host, _) in addresses.items()}

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
        for known, places in (("peer", connect), ("address", addresses)):
            if kind == known and rest in places:
                host, port = places[rest]
                return f"{host}:{port}"
        if kind == "host" and rest in hosts:
            return hosts[rest]
        raise UsageError(
            f"node {spec.name!r}: the placeholder {match[0]!r} cannot be filled in; known are "
            f"{_KNOWN}, ports of its own are {sorted(listen)}, peers are {sorted(connect)}"
        )

    return _PLACEHOLDER.sub(value, word)
