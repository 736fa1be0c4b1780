"""Writes the nodes that a target declares as a file for `docker compose`.

Image, entry points, ports, addresses and data volumes are the same as with `--env docker`, but
there are no faults, no readiness checks and no warden. Each node gets its declaration in an
environment variable, since old versions of compose support no inline files. The code comes from a
mounted folder: the parent of the file's folder, or `HARNESS_CODE` (the site-packages of an
installed harness).

The file is written without a YAML library. It has only maps, lists, and scalars as in JSON, which
are valid YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.cluster import NodeSpec
from harness.environments.docker.image.image import NEWEST
from harness.environments.docker.image.sources import APP_FOLDER, DATA_FOLDER, code_of
from harness.environments.host.node import NODE_VARIABLE, NodeFile
from harness.errors import UsageError
from harness.plugins import Target, TargetSettings
from harness.plugins.options import with_defaults
from harness.registry import load_plugin

PORT_STEP: Final = 100
_LOOPBACK: Final = "127.0.0.1"
_MEMORY_MIB: Final = 1024
_HEAD: Final = """\
# Made by `harness up --print-compose`; a test checks that this file equals its output.
#
#     harness image build
#     docker compose --file docker/compose.yaml up --detach
#     docker compose --file docker/compose.yaml down --volumes
#
# Each port is published on 127.0.0.1. See docs/up.md.
"""


def compose_file(case: Case) -> str:
    """Return the text of the compose file for the target's nodes.

    Raises `UsageError` if a node is a foreign program, which needs a running harness.
    """
    target: Target = load_plugin("targets", case.target)
    options = with_defaults("target", case.target, target.options, case.target_options)
    settings = TargetSettings(profile=case.profile, bugs=case.bugs, options=options)
    nodes = list(target.nodes(settings))
    foreign = [node.name for node in nodes if node.entry is None]
    if foreign:
        raise UsageError(
            f"--print-compose: {', '.join(foreign)} of {case.target!r} are foreign programs, which "
            "the harness sets up; use `harness up --env docker`"
        )
    ports = published_ports(nodes)
    pages = {
        f"{node.name}:{node.pages}": (_LOOPBACK, ports[node.name, node.pages])
        for node in nodes
        if node.pages is not None
    }
    connect = {f"{n.name}:{port}": (n.name, port) for n in nodes for port in n.ports}
    packages = sorted({name.partition("/")[0] for name in code_of(nodes)})
    code = [f"${{HARNESS_CODE:-..}}/{p}:{APP_FOLDER}/{p}:ro" for p in packages]

    def service(spec: NodeSpec) -> dict[str, Any]:
        node = NodeFile(
            name=spec.name,
            boot=0,
            entry=spec.entry or "",
            config=spec.config,
            seed=case.seed,
            data=DATA_FOLDER,
            listen={str(port): ("0.0.0.0", port) for port in spec.bound_ports},  # noqa: S104 - in a container
            connect=connect,
            pages=pages,
        )
        declaration = msgspec.json.encode(node, order="sorted").decode().replace("$", "$$")
        return {
            "image": f"${{HARNESS_NODE_IMAGE:-{NEWEST}}}",
            "command": ["python3", "-m", "harness.environments.host.node"],
            "hostname": spec.name,
            "environment": {NODE_VARIABLE: declaration},
            "ports": [f"{_LOOPBACK}:{ports[spec.name, port]}:{port}" for port in spec.bound_ports],
            "volumes": [f"{spec.name}-data:{DATA_FOLDER}", *code],
            "mem_limit": f"{spec.memory_mib or _MEMORY_MIB}m",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            **({"depends_on": list(spec.after)} if spec.after else {}),
        }

    whole = {
        "services": {node.name: service(node) for node in nodes},
        "volumes": {f"{node.name}-data": {} for node in nodes},
    }
    return _HEAD + "\n".join(_lines(whole)) + "\n"


def published_ports(nodes: Sequence[NodeSpec]) -> dict[tuple[str, int], int]:
    """Map each (node, declared port) to a port of this machine.

    The port is the declared port, plus 100 for the second node of a role, 200 for the third, as in
    Kudu's own examples. If another node already has this port, it is the next free one.
    """
    published: dict[tuple[str, int], int] = {}
    counts: dict[str, int] = {}
    for node in nodes:
        number = counts[node.role] = counts.get(node.role, -1) + 1
        for port in node.bound_ports:
            wanted = port + PORT_STEP * number
            while wanted in published.values():
                wanted += 1
            published[node.name, port] = wanted
    return published


def _lines(value: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    margin = "  " * depth
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield f"{margin}{name}:"
            yield from _lines(inner, depth + 1)
        elif isinstance(inner, list):
            yield f"{margin}{name}:"
            yield from (f"{margin}  - {_scalar(each)}" for each in inner)
        else:
            yield f"{margin}{name}: {_scalar(inner)}"


def _scalar(value: Any) -> str:
    """Return `value` as a YAML scalar.

    JSON is valid YAML, so this is its JSON form, except that a string containing `"` is
    single-quoted to avoid escapes.
    """
    if isinstance(value, str) and '"' in value:
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value)
