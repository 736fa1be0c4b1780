"""The listening ports of nodes, and the proxies between each pair of ends (nodes or clients).

Every declared port gets a real port on loopback, below the kernel's range of ephemeral ports. So no
outgoing connection can take the port while its node is down, and a connection attempt cannot
connect to itself (which TCP allows for a socket's own ephemeral port). The driver reserves each
port with a socket that is bound but does not listen. SO_REUSEADDR lets a node bind the port anyway
(socket(7)). A foreign program may not set that option, so the driver releases its ports before its
start and reserves them again after its end.

Each ordered pair of ends has its own proxy for each port, so that a fault can affect exactly one
direction between two nodes. A node reaches itself without a proxy, except at a shared address. All
clients are one end, unless a nemesis of the run treats clients separately.

Some nodes need a *shared address*: an address that is the same for all callers. It is the declared
port on a loopback address that belongs to the node in this run. (All of 127.0.0.0/8 is this
machine, without any set-up.) The link proxy also listens on shared addresses. It identifies each
caller by the caller's socket, and forwards the connection through the proxy for this caller and
node. So faults only need to change the proxies of pairs.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from harness.cluster import CLIENT, NodeSpec
from harness.environments.callers import CallerBook
from harness.environments.host.placeholders import fill_in, package_folder, placeholders
from harness.environments.toxiproxy.client import ProxyInfo, ToxiproxyClient, ToxiproxyError
from harness.environments.toxiproxy.proxy import split_address
from harness.errors import InfrastructureError, UsageError
from harness.nodes.deployment import words_of

LOOPBACK: Final = "127.0.0.1"
_LOWEST_PORT: Final = 10_000
_ATTEMPTS_MAX: Final = 2000
_NETWORKS: Final = range(64, 255)
"""The second octets of shared addresses. Lower ones are left to users."""
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """The real ports for a run's declared ports, and the sockets that reserve them."""

    def __init__(self, specs: Iterable[NodeSpec]) -> None:
        self._held: dict[tuple[str, int], socket.socket] = {}
        self._real: dict[tuple[str, int], int] = {}
        try:
            for spec in specs:
                for port in spec.bound_ports:
                    holder = _hold_port()
                    self._held[spec.name, port] = holder
                    self._real[spec.name, port] = holder.getsockname()[1]
        except BaseException:
            self.close()
            raise

    def real(self, node: str, port: int) -> int:
        try:
            return self._real[node, port]
        except KeyError:
            declared = sorted(p for n, p in self._real if n == node)
            raise UsageError(
                f"node {node!r} declares no port {port}; it declares {declared}"
            ) from None

    def let_go(self, node: str) -> None:
        """Release the ports of a node, for a foreign program that may not set SO_REUSEADDR."""
        for key in [key for key in self._held if key[0] == node]:
            self._held.pop(key).close()

    def hold_again(self, node: str) -> list[int]:
        """Reserve released ports again; returns the real ports that another program has."""
        taken = []
        for (name, port), real in self._real.items():
            if name == node and (name, port) not in self._held:
                holder = socket.socket()
                # Without SO_REUSEADDR, old connections would prevent this bind. A listener still
                # does.
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    holder.bind((LOOPBACK, real))
                except OSError:
                    holder.close()
                    taken.append(real)
                else:
                    self._held[name, port] = holder
        return taken

    def close(self) -> None:
        for holder in self._held.values():
            holder.close()
        self._held.clear()


def _hold_port() -> socket.socket:
    ephemeral_start = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    if ephemeral_start <= _LOWEST_PORT + _ATTEMPTS_MAX:
        raise InfrastructureError(
            f"ephemeral ports start at {ephemeral_start}, which leaves no lower ports for nodes; "
            f"raise the start in {_EPHEMERAL_RANGE} (the default is 32768)"
        )
    # Not drawn from the run's seed: two runs with the same seed must not use the same ports.
    draw = random.SystemRandom()
    for _ in range(_ATTEMPTS_MAX):
        holder = socket.socket()
        # This bind fails if any program uses the port. SO_REUSEADDR, which is set afterwards, lets
        # the node bind the port as well.
        try:
            holder.bind((LOOPBACK, draw.randrange(_LOWEST_PORT, ephemeral_start)))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return holder
    raise InfrastructureError(
        f"no free port between {_LOWEST_PORT} and {ephemeral_start} in {_ATTEMPTS_MAX} attempts"
    )


def shared_ports(specs: Sequence[NodeSpec]) -> set[tuple[str, int]]:
    """Return each (node, port) pair that needs a shared address because a placeholder refers to it.

    Raises `UsageError` if a placeholder names an undeclared node or port.
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
                    f"node; declared are {', '.join(declared)}"
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
    """Fill the placeholders of a word for a process; raises `UsageError` for an unknown one."""
    values = {"host": LOOPBACK, "data": str(data), "files": str(files)}
    values |= {f"port:{port}": str(real) for port, (_, real) in listen.items()}
    values |= {f"peer:{place}": f"{host}:{port}" for place, (host, port) in connect.items()}
    for place, (host, port) in addresses.items():
        values |= {f"address:{place}": f"{host}:{port}", f"host:{place.rpartition(':')[0]}": host}
    return fill_in(word, spec, values, lambda package: str(package_folder(package)))


class Passage(NamedTuple):
    """The proxy through which `source` connects to a port of `destination`."""

    source: str
    destination: str
    port: int
    proxy: str
    address: tuple[str, int]


class Topology:
    """All proxies between the nodes and clients of a run, and the shared addresses."""

    def __init__(
        self,
        specs: Sequence[NodeSpec],
        ports: Ports,
        *,
        clients: Sequence[str] = (CLIENT,),
        shared: Collection[tuple[str, int]] = (),
    ) -> None:
        """`clients` are link ends; `shared` has each (node, port) with a shared address."""
        self._specs = specs
        self._clients = clients
        self._ports = ports
        self._shared = shared
        self.passages: list[Passage] = []
        self.proxies: Mapping[str, ProxyInfo] = {}
        """All proxies that the link proxy has created, by name."""
        self.addresses: dict[str, tuple[str, int]] = {}
        """Map each `node:port` with a shared address to this address."""
        self.hosts: dict[str, str] = {}
        """Map each node to its own loopback address. Empty if no address is shared."""

    async def build(self, run_id: str, client: ToxiproxyClient, book: CallerBook) -> None:
        """Create all proxies, and then all shared addresses."""
        wanted = _pairs(run_id, self._specs, self._clients, self._shared)
        made = self.proxies = {
            proxy.name: proxy
            for proxy in await client.populate(
                [
                    (name, f"{LOOPBACK}:0", f"{LOOPBACK}:{self._ports.real(destination, port)}")
                    for name, _, destination, port in wanted
                ]
            )
        }
        self.passages = [
            Passage(source, destination, port, name, split_address(made[name].listen))
            for name, source, destination, port in wanted
            if source != destination
        ]
        if self._shared:
            # Not drawn from the run's seed: two runs with the same seed must not use the same
            # network.
            draw = random.SystemRandom()
            network = f"127.{draw.choice(_NETWORKS)}.{draw.randrange(1, 255)}"
            names = [spec.name for spec in self._specs]
            self.hosts = {name: f"{network}.{n}" for n, name in enumerate(names, start=1)}
        for node, port in sorted(self._shared):
            host = self.hosts[node]
            proxies = {
                source: name
                for name, source, destination, number in wanted
                if (destination, number) == (node, port)
            }
            try:
                await client.share_address(
                    f"{host}:{port}",
                    callers=str(book.folder),
                    proxies=proxies,
                    hosts={host: caller for caller, host in self.hosts.items()},
                    otherwise=CLIENT,
                    neutral=node,  # no fault affects the node's link to itself
                )
            except ToxiproxyError as error:
                raise UsageError(
                    f"node {node!r} needs one address for its port {port}, and the link proxy "
                    f"cannot listen on {host}:{port} ({error.body.strip()}); stop the program that "
                    "listens on this port on all addresses of the machine, or declare another port "
                    "(above 1023 unless the harness is root)"
                ) from error
            self.addresses[f"{node}:{port}"] = (host, port)

    @staticmethod
    def proxy_names(run_id: str, specs: Sequence[NodeSpec], clients: Sequence[str]) -> list[str]:
        """Return the names of the proxies that `build` creates if no address is shared."""
        return [name for name, _, _, _ in _pairs(run_id, specs, clients)]

    def destinations(self) -> dict[tuple[str, int], str]:
        """Map each address at which the link proxy listens to the node that it leads to."""
        shared = {address: place.rpartition(":")[0] for place, address in self.addresses.items()}
        return {passage.address: passage.destination for passage in self.passages} | shared

    def connect_map(self, source: str) -> dict[str, tuple[str, int]]:
        """Map each declared `node:port` to the address at which `source` reaches it."""
        addresses = {
            f"{passage.destination}:{passage.port}": passage.address
            for passage in self.passages
            if passage.source == source
        }
        for spec in self._specs:
            if spec.name == source:
                for port in spec.ports:
                    direct = (LOOPBACK, self._ports.real(spec.name, port))
                    addresses[f"{source}:{port}"] = direct
        return addresses | (self.pages if source in self._clients else {})

    def detours(self, source: str) -> dict[int, tuple[str, int]]:
        """Map other nodes' real ports to the address at which `source` reaches them by proxy."""
        return {
            self._ports.real(passage.destination, passage.port): passage.address
            for passage in self.passages
            if passage.source == source
        }

    @property
    def pages(self) -> dict[str, tuple[str, int]]:
        """Map `node:port` to the real address of the node's web pages. No proxy leads there."""
        return {
            f"{spec.name}:{spec.pages}": (LOOPBACK, self._ports.real(spec.name, spec.pages))
            for spec in self._specs
            if spec.pages is not None
        }

    def listen_map(self, node: NodeSpec) -> dict[str, tuple[str, int]]:
        """Map each declared port to the address (host, real port) that the node binds."""
        return {
            str(port): (LOOPBACK, self._ports.real(node.name, port)) for port in node.bound_ports
        }


def _pairs(
    run_id: str,
    specs: Sequence[NodeSpec],
    clients: Sequence[str],
    shared: Collection[tuple[str, int]] = (),
) -> list[tuple[str, str, str, int]]:
    """Return (name, source, destination, declared port) for each proxy that a run needs.

    A node's calls to its own shared address also need a proxy, which no fault affects.
    """
    return [
        (f"{run_id}-{source}->{spec.name}:{port}", source, spec.name, port)
        for source in [*(spec.name for spec in specs), *clients]
        for spec in specs
        for port in spec.ports
        if source != spec.name or (spec.name, port) in shared
    ]
