"""Specifies the objects that a run creates in the engine: a network, and two containers per node.

The node's container runs only the node's program, not as root and without capabilities. The node's
second container, the *keeper*, runs `sleep` and owns the network namespace that the node joins.
This has four advantages:

* Packet rules, address and published ports survive a kill and restart of the node. A node that
  starts during a partition is cut off from its first packet on.
* The harness can run commands in the namespace while the node is paused, when nothing can be
  executed in the node's own container.
* The program that delays packets (`packets`) and the program that watches the namespace
  (`netwatch`) run in the keeper and die with it. The Toxiproxy for stream faults (`streams`) is a
  third container in the same namespace.
* Only the keeper has a capability, CAP_NET_ADMIN, and only commands that run in it as root can use
  it. (The nf_tables flavour of iptables needs no CAP_NET_RAW.)

Addresses are fixed, so a restarted node never gets the address of another node.
"""

from __future__ import annotations

import hashlib
import ipaddress
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from harness.cluster import BASE, CLIENT, NodeSpec
from harness.environments.controller import this_controller
from harness.environments.docker.engine.archives import tar_files, tar_folder
from harness.environments.docker.engine.engine import ContainerSpec, Engine
from harness.environments.docker.engine.labels import (
    CONTROLLER_LABEL,
    NODE_LABEL,
    RUN_LABEL,
    Part,
    container_name,
    network_name,
)
from harness.environments.docker.image import sources
from harness.environments.docker.image.dockerfiles import image_of
from harness.environments.docker.network import toxics
from harness.environments.docker.network.streams import PROXY_UID
from harness.environments.docker.node import clocks
from harness.environments.host.control import Condition
from harness.environments.host.limits import check_declarations
from harness.environments.host.node import NODE_FILE_VARIABLE, NodeFile
from harness.environments.host.power import PowerCut
from harness.errors import InfrastructureError, UsageError
from harness.nodes.deployment import as_variant, forms_of
from harness.nodes.program import is_program
from harness.plugins import DeploymentPlan

NODES_MAX: Final = 100
CLIENT_PORTS_MAX: Final = 200
"""The maximum number of ports to publish for clients: the engine runs one process per port."""
_RESERVED: Final = tuple(part.value for part in Part if part.value)
_NODE_FILE: Final = "/harness/node.json"
USER_ID: Final = 65532
_USER: Final = f"{USER_ID}:{USER_ID}"
_PROXY_PROGRAM: Final = "/harness/toxiproxy-server"
_PROXY_MEMORY_BYTES_MAX: Final = 256 << 20
_RELAY_HOST: Final = 2  # the network's gateway has host number 1
_FIRST_HOST: Final = 10
_FIRST_CLIENT: Final = _FIRST_HOST + NODES_MAX
_MEMORY_MIB: Final = 1024
_MIB: Final = 1 << 20
_KEEPER_MEMORY_BYTES_MAX: Final = 64 << 20
_PROCESSES_MAX: Final = 512
_KEEPER_PROCESSES_MAX: Final = 32
_SUBNET_TRIES_MAX: Final = 200


class Place(msgspec.Struct, frozen=True):
    """The names of one node's containers and volumes, and the node's address."""

    node: str
    container: str
    keeper: str
    address: str
    volume: str = ""
    clock: str = ""  # the volume with libfaketime's shared memory; empty without clock faults


def check_plan(plan: DeploymentPlan) -> None:
    """Raise `UsageError` if the plan cannot be deployed in containers."""
    if plan.link_proxy is not None and not Path(plan.link_proxy).is_file():
        raise UsageError(
            f"--link-proxy {plan.link_proxy} is not a file; docker runs Toxiproxy next to the "
            "nodes, so name the program (toxiproxy-server), or leave the option out to use ours"
        )
    if not 1 <= len(plan.nodes) <= NODES_MAX:
        raise UsageError(f"the plan has {len(plan.nodes)} nodes; docker deploys 1 to {NODES_MAX}")
    check_declarations(plan.nodes)
    for spec in plan.nodes:
        if spec.name.endswith(_RESERVED):
            raise UsageError(
                f"the node name {spec.name!r} must not end with {', '.join(_RESERVED)}, since "
                "these endings name the other containers and volumes of a node"
            )
        if is_program(spec):
            raise UsageError(
                f"node {spec.name!r} runs {spec.command[0]!r}, a Python program, which runs in the "
                "simulation and as a process: use --env sim or --env process, or declare an image "
                "and its command line"
            )
        runs = spec.command or (spec.entry is None and (spec.image or spec.dockerfile))
        if (spec.entry is None) == (not runs):
            raise UsageError(
                f"node {spec.name!r} must have either an entry or a command, or an image that has "
                f"one; it has entry={spec.entry!r} and command={spec.command!r}"
            )
    ports = sum(len(spec.ports) for spec in plan.nodes) * (len(plan.ends) - 1)
    if ports > CLIENT_PORTS_MAX:
        raise UsageError(
            f"a nemesis distinguishes {len(plan.ends) - 1} clients, which takes {ports} published "
            "ports: one per client and port of a node; docker publishes at most "
            f"{CLIENT_PORTS_MAX}; lower --concurrency, or use --env sim or --env process"
        )
    for spec in plan.nodes:
        for form in forms_of(spec).values():
            image_of(form)  # raises `UsageError` if the Dockerfile is unusable


def _subnets(run_id: str, used: Sequence[ipaddress.IPv4Network]) -> Iterator[str]:
    """Yield unused /24 networks in 10.0.0.0/8, in an order that depends on the run's id."""
    for index in range(_SUBNET_TRIES_MAX):
        digest = hashlib.blake2b(f"{run_id}/{index}".encode(), digest_size=2).digest()
        subnet = ipaddress.IPv4Network(f"10.{digest[0]}.{digest[1]}.0/24")
        if not any(subnet.overlaps(other) for other in used):
            yield str(subnet)


def _routes(table: Path = Path("/proc/net/route")) -> list[ipaddress.IPv4Network]:
    """Return the networks to which this machine has routes, without the default route."""
    if not table.exists():
        return []
    networks = []
    for line in table.read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        # The addresses are little-endian hexadecimal numbers (`fib_route_seq_show` in the kernel).
        address, mask = (int.from_bytes(bytes.fromhex(words[index]), "little") for index in (1, 7))
        if mask:
            prefix = mask.bit_count()
            networks.append(ipaddress.IPv4Network((address & mask, prefix)))
    return networks


def create_network(engine: Engine, run_id: str) -> ipaddress.IPv4Network:
    """Create the run's private network on a subnet that is not in use."""
    labels = {RUN_LABEL: run_id, CONTROLLER_LABEL: str(this_controller())}
    for subnet in _subnets(run_id, _routes()):
        network = ipaddress.IPv4Network(subnet)
        if engine.create_network(
            network_name(run_id), subnet=subnet, gateway=str(network[1]), labels=labels
        ):
            return network
    raise InfrastructureError(
        f"docker: none of {_SUBNET_TRIES_MAX} subnets in 10.0.0.0/8 is free for the run's "
        "network; run `harness clean`, or remove networks with `docker network prune`"
    )


class Blueprint:
    """The specifications of a run's containers, and the archives to copy into them.

    A blueprint reads files of this machine, but changes nothing in the engine.
    """

    def __init__(
        self,
        plan: DeploymentPlan,
        image: str,
        network: ipaddress.IPv4Network,
        disks: Mapping[str, str] | None = None,
    ) -> None:
        """`disks` maps each node with a FUSE disk to its mount point on the engine's host."""
        self.disks = disks or {}
        self._plan = plan
        self._image = image
        self._network_name = network_name(plan.run_id)
        self._controller = str(this_controller())
        self.gateway = str(network[1])
        self.specs: Mapping[str, NodeSpec] = {spec.name: spec for spec in plan.nodes}
        self.places: Mapping[str, Place] = {
            name: Place(
                name,
                container_name(plan.run_id, name),
                container_name(plan.run_id, name, Part.KEEPER),
                str(network[_FIRST_HOST + index]),
                container_name(plan.run_id, name, Part.DATA),
                container_name(plan.run_id, name, Part.CLOCK) if name in plan.clocks else "",
            )
            for index, name in enumerate(self.specs)
        }
        self.clients = plan.ends
        self.relay = Place(
            CLIENT, container_name(plan.run_id, CLIENT), "", str(network[_RELAY_HOST])
        )
        self.addresses = {name: place.address for name, place in self.places.items()}
        """Map each node and client to its address. The address of `CLIENT` is the gateway's."""
        for number, end in enumerate(plan.ends):
            address = str(network[_FIRST_CLIENT + number])
            self.addresses[end] = self.gateway if end == CLIENT else address
        self._ports = {name: spec.ports for name, spec in self.specs.items()}
        self._connect = {
            f"{name}:{port}": (self.places[name].address, port)
            for name, spec in self.specs.items()
            for port in spec.ports
        }
        self._images = {
            (name, variant): image_of(form)
            for name, spec in self.specs.items()
            for variant, form in forms_of(spec).items()
        }
        self.code = sources.archive_of(sources.code_of(plan.nodes))

    @property
    def clocks(self) -> list[str]:
        """The nodes with foreign programs whose clocks can be changed by faults."""
        return [name for name, place in self.places.items() if place.clock]

    def labels(self, node: str) -> dict[str, str]:
        return {
            RUN_LABEL: self._plan.run_id,
            CONTROLLER_LABEL: self._controller,
            NODE_LABEL: node,
        }

    def keeper(self, node: str) -> ContainerSpec:
        """Return the specification of the node's keeper, which owns the network namespace."""
        place = self.places[node]
        return ContainerSpec(
            name=place.keeper,
            image=self._image,
            command=("sleep", "infinity"),
            labels=self.labels(node),
            network=self._network_name,
            address=place.address,
            hostname=node,
            hosts=self._hosts_of(node),
            published=self.specs[node].bound_ports,
            user=_USER,
            capabilities=("NET_ADMIN",),
            # With `no_new_privileges`, root commands in the keeper would lack CAP_NET_ADMIN.
            no_new_privileges=False,
            read_only=True,
            volumes=self._shared_memory(node),
            memory_bytes_max=_KEEPER_MEMORY_BYTES_MAX,
            processes_max=_KEEPER_PROCESSES_MAX,
        )

    def _hosts_of(self, node: str) -> dict[str, str]:
        """Map the names of all other nodes, and the aliases of all nodes, to addresses."""
        hosts = {name: place.address for name, place in self.places.items() if name != node}
        for name, place in self.places.items():
            inside = self.specs[name].container
            for alias in () if inside is None else inside.aliases:
                hosts.setdefault(alias, place.address)
        return hosts

    def proxy(self, node: str) -> ContainerSpec:
        """Return the specification of the container with the node's Toxiproxy.

        It runs the harness's own Toxiproxy server, or the user's binary if the plan has a
        `link_proxy`.
        """
        ours = f"python3 -m harness.environments.toxiproxy --seed {self._plan.seed} --listen"
        program = f"{_PROXY_PROGRAM} -host {toxics.HOST} -port {toxics.PORT}"
        words = f"{ours} {toxics.HOST}:{toxics.PORT}" if self._plan.link_proxy is None else program
        return ContainerSpec(
            name=container_name(self._plan.run_id, node, Part.PROXY),
            image=self._image,
            command=tuple(words.split()),
            labels=self.labels(node),
            network=f"container:{self.places[node].keeper}",
            user=f"{PROXY_UID}:{PROXY_UID}",
            memory_bytes_max=_PROXY_MEMORY_BYTES_MAX,
            processes_max=_PROCESSES_MAX,
        )

    def proxy_code(self) -> bytes:
        """Return a tar archive with the Toxiproxy program, to be unpacked at `/`."""
        if self._plan.link_proxy is None:
            return sources.archive_of(sources.package_files("harness"))
        name = _PROXY_PROGRAM[1:]
        program = Path(self._plan.link_proxy).read_bytes()
        return tar_files({name: program}, executable=frozenset({name}))

    def _shared_memory(self, node: str) -> dict[str, str]:
        volume = self.places[node].clock
        return {volume: clocks.SHARED_MEMORY} if volume else {}

    def filled(self, node: str, words: Sequence[str]) -> tuple[str, ...]:
        """Return the command `words` of a node, with placeholders filled for its container."""
        command = tuple(sources.fill(word, self.specs[node], self._ports) for word in words)
        if command[:1] == (sys.executable,):
            # this path is on the driver's machine, and may not exist in the image
            command = ("python3", *command[1:])
        return command

    def container(self, node: str, variant: str = BASE) -> ContainerSpec:
        spec, place = as_variant(self.specs[node], variant), self.places[node]
        if spec.entry is not None:
            command: tuple[str, ...] = ("python3", "-m", "harness.environments.host.node")
        else:
            command = self.filled(node, spec.command)
        image = self._images[node, variant]
        environment = {
            name: sources.fill(value, spec, self._ports) for name, value in spec.environment.items()
        }
        if spec.entry is not None:
            environment[NODE_FILE_VARIABLE] = _NODE_FILE
        if place.clock:
            environment |= clocks.environment(environment)
        inside = spec.container
        return ContainerSpec(
            listens=spec.entry is not None,
            name=place.container,
            image=image or self._image,
            command=command,
            entrypoint=(inside.entrypoint or ()) if inside is not None else (),
            keeps_entrypoint=inside is not None and inside.entrypoint is None,
            working_folder=None if inside is None else inside.working_folder,
            labels=self.labels(node),
            network=f"container:{place.keeper}",
            environment=environment,
            user=spec.user or (None if image else _USER),
            stop_signal=spec.stop_signal,
            memory_bytes_max=(spec.memory_mib or _MEMORY_MIB) * _MIB,
            processes_max=_PROCESSES_MAX,
            cpus=spec.cpus,
            volumes={
                self.disks.get(node, place.volume): sources.data_folder_of(spec),
                **self._shared_memory(node),
            },
        )

    def setup(self, node: str, variant: str, words: Sequence[str]) -> ContainerSpec:
        """Return the specification of a container that runs one set-up command of the node."""
        container = self.container(node, variant)
        return msgspec.structs.replace(
            container,
            environment=container.environment
            | (clocks.NO_PRELOAD if self.places[node].clock else {}),
            name=container_name(self._plan.run_id, node, Part.SETUP),
            command=self.filled(node, words),
        )

    def files(self, node: str) -> bytes | None:
        """Return a tar archive of the node's declared files, to be unpacked at `/`, or `None`."""
        spec, folder = self.specs[node], sources.FILES_FOLDER[1:]
        filled = {
            f"{folder}/{name}": sources.fill(template, spec, self._ports).encode()
            for name, template in spec.files.items()
        }
        if spec.container is not None:
            filled |= {path[1:]: text.encode() for path, text in spec.container.files.items()}
        scripts = frozenset(path for path, data in filled.items() if data.startswith(b"#!"))
        return tar_files(filled, executable=scripts) if filled else None

    def kept_data(self, node: str) -> Path | None:
        """Return the folder with the node's initial data, or `None` for an empty disk."""
        return None if self._plan.data is None else self._plan.data / node

    def node_file(
        self,
        node: str,
        boot: int,
        power_cut: PowerCut | None = None,
        condition: Condition | None = None,
        variant: str = BASE,
        pages: Mapping[str, tuple[str, int]] = MappingProxyType({}),
    ) -> bytes:
        """Return a tar archive with the `NodeFile` for one start of the node. Unpack it at `/`.

        `pages` maps `node:port` to the published address of the node's web pages.
        """
        spec = as_variant(self.specs[node], variant)
        file = NodeFile(
            name=node,
            boot=boot,
            entry=spec.entry or "",
            config=spec.config,
            seed=self._plan.seed,
            data=sources.data_folder_of(spec),
            listen={str(port): ("0.0.0.0", port) for port in spec.bound_ports},  # noqa: S104 - see fill
            connect=self._connect,
            pages=dict(pages),
            power_cut=power_cut,
            condition=condition or Condition(),
        )
        return tar_files({_NODE_FILE[1:]: msgspec.json.encode(file)})

    def data_folder(self, node: str) -> bytes | None:
        """Return a tar archive with an empty data folder, to which every user may write.

        Returns `None` for the default user in the harness's image, which already has such a folder.
        """
        foreign = any(image for (name, _), image in self._images.items() if name == node)
        usual = self.specs[node].user is None and not foreign
        return None if usual else tar_folder(sources.data_folder_of(self.specs[node])[1:], 0o1777)
