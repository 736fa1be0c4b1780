"""Turns the services of a Compose file into nodes.

A key that changes a service is either applied or refused by name. Keys about how Docker Compose
itself runs services (restarts, logging) have no effect; a note lists them.
"""

from __future__ import annotations

import logging  # determinism: no node runs this module
from collections.abc import Mapping, Sequence
from typing import Any

from harness.cluster import InContainer, NodeSpec, Ready, ReadyCommand, ReadyPort
from harness.env import Address
from harness.errors import UsageError, choices_near
from targets.declared.compose.document import ComposeDocument
from targets.declared.compose.keys import (
    FIXED_ADDRESS,
    NOT_USED,
    ONE_NETWORK,
    REFUSED,
    TOP_NOT_USED,
    TOP_REFUSED,
    UDP,
    USED,
)
from targets.declared.compose.values import Mount, Reader, waits_for_end
from targets.declared.document import Path
from targets.declared.file import NODES_MAX, WITHIN_S_MAX, Declared

__all__ = ["compose_nodes"]

_log = logging.getLogger(__name__)


def compose_nodes(
    declared: Declared, port: int, addresses: Sequence[Address] = ()
) -> list[NodeSpec]:
    """Declare one node per service. Clients use `port` of every node, and `addresses`.

    Raises `UsageError`.
    """
    declaration = declared.declaration
    assert declaration.compose is not None
    try:
        declared.folder.text(declaration.compose)
    except UsageError as error:
        raise declared.error("compose", f"is {declaration.compose!r}: {error}") from error
    document = ComposeDocument(declaration.compose, declared.folder)
    return _Services(declared, document, port, addresses).nodes()


class _Services:
    """All services of one file."""

    def __init__(
        self,
        declared: Declared,
        document: ComposeDocument,
        port: int,
        addresses: Sequence[Address],
    ) -> None:
        self.declared, self.document, self.port = declared, document, port
        self.addresses = addresses
        self.read = Reader(document, declared.folder)
        self.roles = _roles(declared)
        self.not_used: dict[str, list[str]] = {}

    def nodes(self) -> list[NodeSpec]:
        services = self._services()
        self._check_names(services)
        self._check_networks(services)
        specs = [self._node(name, service, services) for name, service in services.items()]
        self._check_shared_volumes(services)
        notes = self._notes()
        # Log the notes only once, when the case is created.
        if notes and not self.declared.folder.is_kept:
            _log.warning("%s", notes)
        return specs

    def _services(self) -> dict[str, Mapping[str, Any]]:
        for key in self.document.values:
            if key in TOP_REFUSED:
                raise self.document.error((key,), f"is not supported: {TOP_REFUSED[key]}")
            if key != "services" and key not in TOP_NOT_USED and not key.startswith("x-"):
                choices = ["services", *sorted(TOP_NOT_USED)]
                raise self.document.error(
                    (key,), f"is not a key here; {choices_near(key, choices)}"
                )
        self._check_volumes()
        written = self.read.table(("services",), self.document.values.get("services"))
        services: dict[str, Mapping[str, Any]] = {}
        for name, value in written.items():
            service = self.read.table(("services", name), value)
            left_out = name in self.declared.declaration.without or service.get("profiles")
            if not left_out:
                self._check_keys(name, service)
                services[name] = service
        if not services:
            raise self.document.error(
                ("services",), "has no service to run; write one service per node"
            )
        if len(services) > NODES_MAX:
            raise self.document.error(
                ("services",), f"has {len(services)} services; the limit is {NODES_MAX}"
            )
        return services

    def _check_volumes(self) -> None:
        volumes = self.read.table(("volumes",), self.document.values.get("volumes"))
        for name, value in volumes.items():
            if isinstance(value, dict) and value.get("external"):
                raise self.document.error(
                    ("volumes", name),
                    "is external, and every run begins with empty data; drop `external`",
                )

    def _check_keys(self, name: str, service: Mapping[str, Any]) -> None:
        for key in service:
            path = ("services", name, key)
            harmless = _is_harmless(key, service[key])
            if key in REFUSED and not harmless:
                raise self.document.error(path, f"is not supported: {REFUSED[key]}")
            if key in NOT_USED or harmless:
                self.not_used.setdefault(key, []).append(name)
            elif key not in USED and not key.startswith("x-"):
                choices = sorted(USED | NOT_USED.keys())
                raise self.document.error(
                    path, f"is not a key that the harness knows; {choices_near(key, choices)}"
                )

    def _check_names(self, services: Mapping[str, object]) -> None:
        for key, names in (
            ("client.nodes", self.declared.client.nodes),
            ("without", self.declared.declaration.without),
            *((f"roles.{role}", each) for role, each in self.declared.declaration.roles.items()),
        ):
            choices = services if key != "without" else self.document.values["services"]
            for name in names:
                if name not in choices:
                    raise self.declared.error(
                        key,
                        f"names {name!r}, which is not a service of {self.document.name}; "
                        f"{choices_near(name, list(choices))}",
                    )

    def _check_networks(self, services: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise `UsageError` if networks separate the services: all nodes share one network."""
        first: tuple[str, list[str]] | None = None
        for name, service in services.items():
            written = service.get("networks") or ["default"]
            if isinstance(written, dict) and any(
                "ipv4_address" in (network or {}) for network in written.values()
            ):
                self.not_used.setdefault(FIXED_ADDRESS, []).append(name)
            networks = sorted(written)
            if first is not None and networks != first[1]:
                raise self.document.error(
                    ("services", name, "networks"),
                    f"is {networks}, and that of {first[0]} is {first[1]}: {ONE_NETWORK}",
                )
            first = first or (name, networks)

    def _check_shared_volumes(self, services: Mapping[str, Mapping[str, Any]]) -> None:
        owners: dict[str, str] = {}
        for name, service in services.items():
            for mount in self.read.mounts(service, ("services", name)):
                if mount.is_bind or not mount.source:
                    continue
                other = owners.setdefault(mount.source, name)
                if other != name:
                    raise self.document.error(
                        mount.path,
                        f"is the volume {mount.source!r}, which {other} has, too; every node has "
                        "data of its own: give each service its own volume",
                    )

    def _notes(self) -> str:
        parts = [
            f"`{key}` of {', '.join(names)}" + (f" ({why})" if (why := NOT_USED.get(key)) else "")
            for key, names in self.not_used.items()
        ]
        return f"{self.document.name}: not used: {'; '.join(parts)}" if parts else ""

    # --- one service -------------------------------------------------------------------------

    def _node(
        self, name: str, service: Mapping[str, Any], services: Mapping[str, object]
    ) -> NodeSpec:
        path = ("services", name)
        image, dockerfile = self._image(path, service)
        ports = self.read.ports(service, path)
        if path in self.read.with_udp:
            self.not_used.setdefault(UDP, []).append(name)
        used = [self.port] if name in self.declared.client.nodes else []
        used += [address.port for address in self.addresses if address.node == name]
        ports = tuple(dict.fromkeys((*ports, *used)))
        data, files = self._placed(name, self.read.mounts(service, path))
        memory_mib, cpus = self._limits(path, service)
        entrypoint = service.get("entrypoint")
        working = service.get("working_dir")
        return NodeSpec(
            name=name,
            role=self.roles.get(name, "node"),
            ports=ports,
            command=self.read.words((*path, "command"), service.get("command")),
            image=image,
            dockerfile=dockerfile,
            environment=self.read.environment(service, path),
            after=self._after(path, service, services),
            ready=self._ready(path, service, ports),
            user=None
            if "user" not in service
            else self.read.text((*path, "user"), service["user"]),
            memory_mib=memory_mib,
            cpus=cpus,
            stop_signal=self.read.text(
                (*path, "stop_signal"), service.get("stop_signal", "SIGTERM")
            ),
            faulty_disk=data is not None,
            container=InContainer(
                entrypoint=None
                if entrypoint is None
                else self.read.words((*path, "entrypoint"), entrypoint),
                data=data,
                files=files,
                working_folder=None
                if working is None
                else self.read.text((*path, "working_dir"), working),
                aliases=self._aliases(name, path, service),
            ),
        )

    def _image(self, path: Path, service: Mapping[str, Any]) -> tuple[str | None, str | None]:
        build = service.get("build")
        if build is None:
            if "image" not in service:
                raise self.document.error(path, "has neither an `image` nor a `build`; add one")
            return self.read.text((*path, "image"), service["image"]), None
        place = (*path, "build")
        context, file = build, "Dockerfile"
        if isinstance(build, dict):
            for key in build:
                if key not in {"context", "dockerfile", "tags", "labels"}:
                    raise self.document.error(
                        (*place, key),
                        "is not supported: build the image yourself, and name it as `image`",
                    )
            context, file = build.get("context", "."), build.get("dockerfile", file)
        if file != "Dockerfile":
            raise self.document.error(
                (*place, "dockerfile"),
                f"is {file!r}; the harness builds a folder's Dockerfile: rename it, or build the "
                "image yourself and name it as `image`",
            )
        name = self.document.beside(self.read.text(place, context))
        folder = self.read.checked(place, lambda: str(self.declared.folder.context(name)))
        return None, folder

    def _placed(self, name: str, mounts: list[Mount]) -> tuple[str | None, dict[str, str]]:
        volumes: list[Mount] = []
        files: dict[str, str] = {}
        for mount in mounts:
            if self.read.holds_data(mount):
                volumes.append(mount)
            else:
                files |= self._bound(mount)
        written = self.declared.declaration.data
        chosen = written if isinstance(written, str) else written.get(name)
        if chosen is not None:
            if not chosen.startswith("/") or len(chosen) < 2:
                raise self.declared.error("data", f"is {chosen!r}; write a path of the container")
            return chosen.rstrip("/"), files
        return (volumes[0].target if volumes else None), files

    def _bound(self, mount: Mount) -> dict[str, str]:
        try:
            names = self.declared.folder.files_below(mount.source)
            texts = {inner: self.declared.folder.text(name) for inner, name in names.items()}
        except UsageError as error:
            raise self.document.error(
                mount.path,
                f"binds {mount.source!r}: {error}; data belong in a named volume, and programs "
                "into an image",
            ) from error
        return {
            f"{mount.target}/{inner}" if inner else mount.target: texts[inner] for inner in texts
        }

    def _limits(self, path: Path, service: Mapping[str, Any]) -> tuple[int | None, float | None]:
        deploy = self.read.table((*path, "deploy"), service.get("deploy"))
        replicas = deploy.get("replicas", 1)
        if replicas != 1 or deploy.get("mode", "replicated") != "replicated":
            raise self.document.error(
                (*path, "deploy", "replicas" if replicas != 1 else "mode"),
                f"is not supported: {REFUSED['scale']}",
            )
        resources = self.read.table((*path, "deploy", "resources"), deploy.get("resources"))
        limits = self.read.table((*path, "deploy", "resources", "limits"), resources.get("limits"))
        memory = service.get("mem_limit", limits.get("memory"))
        cpus = service.get("cpus", limits.get("cpus"))
        return (
            None if memory is None else self.read.mib((*path, "mem_limit"), memory),
            None if cpus is None else self.read.number((*path, "cpus"), cpus),
        )

    def _after(
        self, path: Path, service: Mapping[str, Any], services: Mapping[str, object]
    ) -> tuple[str, ...]:
        written = service.get("depends_on")
        place = (*path, "depends_on")
        entries = written if isinstance(written, dict) else dict.fromkeys(self.read.listed(written))
        after = []
        for name, how in entries.items():
            if name in self.declared.declaration.without:
                continue
            if waits_for_end(how):
                raise self.document.error(
                    (*place, name),
                    f"waits for the end of {name!r}, and nodes do not end; do its work in an "
                    f'image, and leave it out: without = ["{name}"]',
                )
            if name in services:
                after.append(str(name))
            elif name not in self.document.values["services"]:
                raise self.document.error(
                    place,
                    f"names {name!r}, which is not a service; {choices_near(name, list(services))}",
                )
        return tuple(after)

    def _ready(
        self, path: Path, service: Mapping[str, Any], ports: tuple[int, ...]
    ) -> Ready | None:
        within_s = self.declared.declaration.ready_within
        place = (*path, "healthcheck")
        check = self.read.table(place, service.get("healthcheck"))
        test = check.get("test")
        off = check.get("disable") is True or test == ["NONE"]
        if test is None or off:
            return ReadyPort(self.port, within_s) if self.port in ports else None
        retries = int(self.read.number((*place, "retries"), check.get("retries", 3)))
        start, pause = (
            self.read.seconds((*place, key), check.get(key, usual))
            for key, usual in (("start_period", "0s"), ("interval", "30s"))
        )
        within_s = min(WITHIN_S_MAX, max(within_s, start + pause * retries))
        if isinstance(test, str):
            return ReadyCommand(("sh", "-c", test), within_s)
        words = self.read.words((*place, "test"), test)
        match words[:1]:
            case ("CMD",) if len(words) > 1:
                return ReadyCommand(words[1:], within_s)
            case ("CMD-SHELL",) if len(words) == 2:
                return ReadyCommand(("sh", "-c", words[1]), within_s)
        raise self.read.wrong(
            (*place, "test"), test, 'write ["CMD", "program", ...] or ["CMD-SHELL", "command"]'
        )

    def _aliases(self, name: str, path: Path, service: Mapping[str, Any]) -> tuple[str, ...]:
        aliases = [
            self.read.text((*path, key), service[key])
            for key in ("hostname", "container_name")
            if key in service
        ]
        networks = service.get("networks")
        for network in networks.values() if isinstance(networks, dict) else ():
            aliases += self.read.listed((network or {}).get("aliases"))
        return tuple(dict.fromkeys(alias for alias in aliases if alias != name))


def _is_harmless(key: str, value: object) -> bool:
    """Whether a refused key has a value that only requests the harness's own behaviour."""
    match key, value:
        case "links", list():
            # a link defines an alias only if it has a colon (`SERVICE:ALIAS`)
            return not any(":" in str(name) for name in value)
        case (("privileged" | "read_only"), False):
            return True
        case ("scale", 1) | ("cap_drop", list()):
            return True
    return False


def _roles(declared: Declared) -> dict[str, str]:
    roles: dict[str, str] = {}
    for role, names in declared.declaration.roles.items():
        for name in names:
            if roles.setdefault(name, role) != role:
                raise declared.error(
                    f"roles.{role}", f"has {name!r}, which is already a {roles[name]!r}; drop one"
                )
    return roles
