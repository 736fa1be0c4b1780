"""The values of placeholders in commands that run as processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.cluster import NodeSpec
from harness.environments.host.placeholders import fill_in, package_folder, placeholders
from harness.environments.process.addresses import LOOPBACK
from harness.errors import UsageError
from harness.nodes.deployment import words_of


def shared_ports(specs: Sequence[NodeSpec]) -> set[tuple[str, int]]:
    """The ports, by node, that any node needs one address of, the same for all.

    Raises `UsageError` for one that is not declared.
    """
    declared = {f"{spec.name}:{port}": (spec.name, port) for spec in specs for port in spec.ports}
    hosts = {spec.name: [(spec.name, port) for port in spec.ports] for spec in specs}
    shared: set[tuple[str, int]] = set()
    for spec in specs:
        for match in placeholders(words_of(spec)):
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
    values = {"host": LOOPBACK, "data": str(data), "files": str(files)}
    values |= {f"port:{port}": str(real) for port, (_, real) in listen.items()}
    values |= {f"peer:{place}": f"{host}:{port}" for place, (host, port) in connect.items()}
    for place, (host, port) in addresses.items():
        values |= {f"address:{place}": f"{host}:{port}", f"host:{place.rpartition(':')[0]}": host}
    return fill_in(word, spec, values, lambda package: str(package_folder(package)))
