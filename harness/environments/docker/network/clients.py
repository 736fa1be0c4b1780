"""Gives each client an address of its own on the run's network, if faults treat clients separately.

One relay container (`relay`) opens connections from all of these addresses. It publishes one port
for each pair of a client and a node's port. Otherwise there is no relay.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from harness.cluster import CLIENT
from harness.environments.docker.deploy import Blueprint
from harness.environments.docker.engine.engine import ContainerSpec, Engine
from harness.environments.docker.network import relay
from harness.errors import InfrastructureError

_FIRST_PORT: Final = 10_000
_MEMORY_BYTES_MAX: Final = 256 << 20
_PROGRAM: Final = Path(relay.__file__).read_text(encoding="utf-8")
# The script waits only for the relay's last port, because the relay binds its ports in order.
_PREPARE: Final = """
last=$1; shift
for address in "$@"; do ip address replace "$address/32" dev eth0 || exit; done
looks=300
until ss -H -l -t -n "sport = :$last" | grep -q .; do
  [ $((looks -= 1)) -gt 0 ] || { echo "nothing listens on $last"; exit 5; }
  sleep 0.1
done
"""

Endpoints = Mapping[str, tuple[str, int]]


def relay_of(blueprint: Blueprint) -> ContainerSpec | None:
    """Return the specification of the relay container, or `None` if the run needs no relay."""
    routes = [route for each in _routes(blueprint).values() for route in each.values()]
    if not routes:
        return None
    place = blueprint.relay
    return msgspec.structs.replace(
        blueprint.keeper(next(iter(blueprint.places))),
        name=place.container,
        command=("python3", "-I", "-S", "-c", _PROGRAM, *map(str, routes)),
        labels=blueprint.labels(place.node),
        address=place.address,
        hostname=place.node,
        published=tuple(route.listen for route in routes),
        volumes={},
        memory_bytes_max=_MEMORY_BYTES_MAX,
    )


def _routes(blueprint: Blueprint) -> dict[str, dict[str, relay.Route]]:
    ports = [(name, port) for name, spec in blueprint.specs.items() for port in spec.ports]
    routes: dict[str, dict[str, relay.Route]] = {}
    for number, end in enumerate(end for end in blueprint.clients if end != CLIENT):
        first, source = _FIRST_PORT + number * len(ports), blueprint.addresses[end]
        routes[end] = {
            f"{name}:{port}": relay.Route(first + at, source, blueprint.addresses[name], port)
            for at, (name, port) in enumerate(ports)
        }
    return routes


def start_relay(engine: Engine, blueprint: Blueprint) -> dict[str, Endpoints]:
    """Start the relay and wait until it listens.

    Returns, for each client, the address at which it reaches each `node:port`.
    """
    spec = relay_of(blueprint)
    if spec is None:
        return {}
    engine.create(spec)
    engine.start(spec.name)
    routes = _routes(blueprint)
    addresses = [blueprint.addresses[end] for end in routes]
    command = ["sh", "-c", _PREPARE, "prepare", str(spec.published[-1]), *addresses]
    result = engine.exec(spec.name, command)
    state = engine.state(spec.name)
    published = {} if state is None else state.ports
    missing = sorted(set(spec.published) - published.keys())
    if result.code != 0 or missing:
        raise InfrastructureError(
            f"docker: the relay {spec.name} did not start: code {result.code}, "
            f"{result.output.strip()[-500:]!r}; ports not published: {missing[:5]}"
        )
    return {
        end: {name: ("127.0.0.1", published[route.listen]) for name, route in mine.items()}
        for end, mine in routes.items()
    }
