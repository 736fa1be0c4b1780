"""The nodes of `[nodes]`: one command line for several nodes, run as processes or in Docker.

In addition to the placeholders of `harness.cluster.NodeSpec`, texts may contain `{number}` (from
1), `{address:2380}`, `{peer:2380}` and `{address}` for the node itself, and the lists of `each`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from harness.cluster import NodeSpec
from harness.errors import UsageError, choices_near, clipped
from harness.exact import whole_number
from harness.nodes.program import PREFIX
from targets.declared.file import NODES_MAX, Declared, Each, NodeTable
from targets.declared.packages import folder_with
from targets.declared.programs import import_path
from targets.declared.readiness import readiness

__all__ = ["command_nodes", "key_of", "only_port", "serving"]

_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)(?::([^{}]*))?\}")
_KNOWN: Final = ("name", "number", "host", "port", "peer", "address", "data", "files", "package")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_SHELL: Final = re.compile(r"[|&;<>]+|\d?>&?\d?")
_HERE: Final = re.compile(r"\.{1,2}/")
_SCRIPT: Final = re.compile(r"[^/{}]+\.(?:py|pyz|jar|js|mjs|rb|pl|sh)")
_IN_OUR_IMAGE: Final = frozenset({"python3", "sh", "bash", "env", "sleep"})
"""Programs in the harness's own image. Nodes that run them need no other image."""


class _Group(NamedTuple):
    """One table of nodes: its key in the file, its values, and the names of its nodes."""

    key: str
    table: NodeTable
    names: tuple[str, ...]


def command_nodes(declared: Declared, environment: str | None, port: int) -> list[NodeSpec]:
    """Declare the nodes of `[nodes]`. Clients connect to `port`. Raises `UsageError`."""
    groups = _groups(declared)
    names = [name for group in groups for name in group.names]
    ports: dict[str, list[int]] = {name: [] for name in names}
    for group in groups:
        if len(groups) == 1 and not declared.client.nodes:
            _add(ports, group.names, [port])
        _add_ports(declared, group, ports)
    _add(ports, [name for name in declared.client.nodes if name in ports], [port])
    return [
        _Builder(declared, group, name, number, environment, port, ports).spec()
        for group in groups
        for number, name in enumerate(group.names, start=1)
    ]


def key_of(declared: Declared, node: str) -> str:
    """Return the dotted key of the table that declares a node."""
    return next(group.key for group in _groups(declared) if node in group.names)


def only_port(declared: Declared) -> int | None:
    """Return the only port that the tables of nodes bind, or `None` if they bind several."""
    bound: set[str] = set()
    for table in _tables(declared):
        bound.update(map(str, table.ports))
        bound.update(rest for _, kind, rest in _placeholders(_texts(table)) if kind == "port")
    return whole_number(min(bound)) if len(bound) == 1 else None


def serving(declared: Declared, nodes: Sequence[NodeSpec], port: int) -> tuple[str, ...]:
    """Return the nodes that clients talk to. Raises `UsageError` if there are none."""
    names = [node.name for node in nodes]
    for name in declared.client.nodes:
        if name not in names:
            raise declared.error(
                "client.nodes",
                f"names {name!r}, which is not a node; {choices_near(name, names)}",
            )
    chosen = declared.client.nodes or tuple(node.name for node in nodes if port in node.ports)
    bare = [node.name for node in nodes if node.name in chosen and port not in node.ports]
    if not chosen or bare:
        raise declared.error(
            "client.port",
            f"is {port}, which is not a port of {', '.join(bare) or 'any node'}; add it to "
            "`ports`, or name the nodes that clients talk to: nodes = [...] in [client]",
        )
    return chosen


def _tables(declared: Declared) -> list[NodeTable]:
    written = declared.declaration.nodes
    return [written] if isinstance(written, NodeTable) else list(written or [])


def _groups(declared: Declared) -> list[_Group]:
    tables = _tables(declared)
    groups, seen = [], dict[str, str]()
    if not tables:
        raise declared.error("nodes", "is empty; declare at least one node")
    for index, table in enumerate(tables):
        key = "nodes" if table is declared.declaration.nodes else f"nodes.{index}"
        names = _names(declared, key, table)
        for name in names:
            if name in seen:
                raise declared.error(
                    key if table.count else f"{key}.names",
                    f"makes a second node {name!r}; give every node its own name, for instance by "
                    "`names` or `role`",
                )
            seen[name] = key
        groups.append(_Group(key, table, names))
    if len(seen) > NODES_MAX:
        raise declared.error("nodes", f"makes {len(seen)} nodes; the limit is {NODES_MAX}")
    return groups


def _names(declared: Declared, key: str, table: NodeTable) -> tuple[str, ...]:
    if table.names and table.count is not None and table.count != len(table.names):
        raise declared.error(
            f"{key}.count",
            f"is {table.count}, but there are {len(table.names)} `names`; drop one of the two",
        )
    count = 1 if table.count is None else table.count
    if not 1 <= count <= NODES_MAX:
        raise declared.error(f"{key}.count", f"is {count}; it must be in 1 .. {NODES_MAX}")
    prefix = "n" if table.role == "node" else table.role
    names = table.names or tuple(f"{prefix}{number}" for number in range(1, count + 1))
    for name in names:
        if not _NAME.fullmatch(name) or name == "client":
            raise declared.error(
                f"{key}.names",
                f"has {name!r}; a name must match {_NAME.pattern} and not be 'client'",
            )
    if len(dict.fromkeys(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise declared.error(f"{key}.names", f"has {twice!r} twice; give every node its own name")
    return names


def words(declared: Declared, key: str, written: str | Sequence[str]) -> tuple[str, ...]:
    """Split a command into words. Raises `UsageError` for syntax that only a shell understands."""
    if not isinstance(written, str):
        return tuple(written)
    try:
        split = shlex.split(written)
    except ValueError as error:
        raise declared.error(
            key, f"cannot be split into words: {error}; close the quote"
        ) from error
    shell = next((word for word in split if _SHELL.fullmatch(word)), None)
    if shell is not None:
        raise declared.error(
            key,
            f"has {shell!r}, but no shell runs it; write a shell's command as "
            '["sh", "-c", "..."], with `set -eo pipefail` in bash before a pipe',
        )
    return tuple(split)


def _texts(table: NodeTable) -> Iterable[str]:
    for written in (table.command, table.clock_probe, *table.setup):
        yield from [written] if isinstance(written, str) else written
    if table.ready is not None:
        yield from [table.ready] if isinstance(table.ready, str) else table.ready
    yield from (str(value) for value in table.environment.values())
    for text in table.each.values():
        yield text if isinstance(text, str) else text.each


def _placeholders(texts: Iterable[str]) -> Iterable[tuple[str, str, str]]:
    for text in texts:
        for match in _PLACEHOLDER.finditer(text):
            yield match[0], match[1], match[2] or ""


def _add(ports: Mapping[str, list[int]], names: Iterable[str], more: Iterable[int]) -> None:
    for name in names:
        ports[name] += [port for port in more if port not in ports[name]]


def _add_ports(declared: Declared, group: _Group, ports: Mapping[str, list[int]]) -> None:
    for port in group.table.ports:
        if not 1 <= port <= 65535:
            raise declared.error(f"{group.key}.ports", f"has {port}; a port is in 1 .. 65535")
    _add(ports, group.names, group.table.ports)
    files = (text for text in group.table.files.values() if isinstance(text, str))
    for written, kind, rest in _placeholders([*_texts(group.table), *files]):
        name, colon, number = rest.rpartition(":")
        is_own = kind in {"peer", "address"} and not colon and written != "{address}"
        if kind == "port" or is_own:
            _add(ports, group.names, [_port(declared, group.key, written, rest)])
        elif kind in {"peer", "address", "host"} and rest:
            name = name or number
            if name not in ports:
                raise declared.error(
                    f"{group.key}.command",
                    f"has {written}, and no node is named {name!r}; "
                    f"{choices_near(name, list(ports))}",
                )
            if colon:
                _add(ports, [name], [_port(declared, group.key, written, number)])


def _port(declared: Declared, key: str, placeholder: str, text: str) -> int:
    number = whole_number(text)
    if number is None or not 1 <= number <= 65535:
        fix = "write a port in 1 .. 65535, such as {port:8080}"
        raise declared.error(f"{key}.command", f"has {clipped(placeholder, 40)}; {fix}")
    return number


class _Builder:
    """Builds the declaration of one node of a group."""

    def __init__(
        self,
        declared: Declared,
        group: _Group,
        name: str,
        number: int,
        environment: str | None,
        client_port: int,
        ports: Mapping[str, Sequence[int]],
    ) -> None:
        self.declared, self.group, self.table = declared, group, group.table
        self.name, self.number, self.environment = name, number, environment
        self.client_port, self.ports = client_port, ports
        self.has_image = self.table.image is not None or self.table.dockerfile is not None

    def spec(self) -> NodeSpec:
        table, key = self.table, self.group.key
        command = tuple(map(self._placed, self._command(f"{key}.command", table.command)))
        environment = {
            variable: self._filled(f"{key}.environment.{variable}", str(value))
            for variable, value in table.environment.items()
        }
        if command and command[0].startswith(PREFIX):
            path = environment.get("PYTHONPATH", ".")
            environment |= import_path(
                self.declared, f"{key}.command", command[0], path, self.environment
            )
        dockerfile = self._dockerfile(command)
        ports = tuple(self.ports[self.name])
        return NodeSpec(
            name=self.name,
            role=table.role,
            ports=ports,
            command=command,
            image=table.image,
            dockerfile=dockerfile,
            debian_package=table.package,
            environment=environment,
            files=self._files(),
            setup=tuple(self._command(f"{key}.setup", each) for each in table.setup),
            ready=readiness(self.declared, key, table, ports, self.client_port, self._command),
            after=table.after,
            user=table.user,
            memory_mib=table.memory_mib,
            cpus=table.cpus,
            clock_probe=self._command(f"{key}.clock-probe", table.clock_probe),
            stop_signal=table.stop_signal,
            faulty_disk=any("{data}" in text for text in _texts(table)),
        )

    def _command(self, key: str, written: str | Sequence[str]) -> tuple[str, ...]:
        return tuple(self._filled(key, word) for word in words(self.declared, key, written))

    def _filled(self, key: str, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            kind, rest = match[1], match[2]
            if kind in self.table.each and rest is None:
                return self._list(kind)
            if kind == "number" and rest is None:
                return str(self.number)
            if kind in {"peer", "address"} and rest and ":" not in rest:
                return f"{{{kind}:{self.name}:{rest}}}"
            if kind == "address" and not rest:
                return f"{{host:{self.name}}}"
            if kind in _KNOWN:
                return match[0]
            kinds = [*_KNOWN, *self.table.each]
            raise self.declared.error(
                key, f"has {match[0]}, which is not a placeholder; {choices_near(kind, kinds)}"
            )

        return _PLACEHOLDER.sub(value, text)

    def _list(self, name: str) -> str:
        written = self.table.each[name]
        each = written if isinstance(written, Each) else Each(each=written)

        def of_node(node: str, number: int) -> Callable[[re.Match[str]], str]:
            def value(match: re.Match[str]) -> str:
                kind, rest = match[1], match[2]
                if kind in {"name", "number"} and rest is None:
                    return node if kind == "name" else str(number)
                if kind == "host" and rest is None:
                    return f"{{host:{node}}}"
                if kind in {"peer", "address"} and rest and ":" not in rest:
                    return f"{{{kind}:{node}:{rest}}}"
                raise self.declared.error(
                    f"{self.group.key}.each.{name}",
                    f"has {match[0]}; in a list there are {{name}}, {{number}}, {{host}}, "
                    "{address:PORT} and {peer:PORT}",
                )

            return value

        nodes = enumerate(self.group.names, start=1)
        texts = [_PLACEHOLDER.sub(of_node(node, number), each.each) for number, node in nodes]
        return each.between.join(texts)

    def _placed(self, word: str) -> str:
        """Return a word of the command. In a path, an initial ./ means the file's folder."""
        if not _HERE.match(word):
            if _SCRIPT.fullmatch(word) and self._lies_here(word):
                raise self.declared.error(
                    f"{self.group.key}.command",
                    f"names {word!r}, which is in the folder of the TOML file, but a node runs in "
                    f"a folder of its own; write './{word}'",
                )
            return word
        if self.environment == "docker":
            if self.has_image:
                return word
            raise self.declared.error(
                f"{self.group.key}.command",
                f"runs {word!r}, which is on this machine and not in a container; use --env "
                "process, name an `image` or a `dockerfile`, or list a script in `files` and "
                "run it as {files}/NAME",
            )
        return str(self.declared.folder.at(word))

    def _lies_here(self, word: str) -> bool:
        """Whether the word is a file in the TOML file's folder. A node would not find that file."""
        folder = self.declared.folder
        return not (self.has_image or folder.is_kept) and folder.at(word).is_file()

    def _dockerfile(self, command: Sequence[str]) -> str | None:
        table, key = self.table, self.group.key
        images = [name for name in ("image", "dockerfile") if getattr(table, name) is not None]
        if len(images) > 1:
            raise self.declared.error(
                f"{key}.image", "and `dockerfile` are both given; keep one of the two"
            )
        if not command and not images:
            raise self.declared.error(
                f"{key}.command",
                "is missing; write what a node runs, such as 'server --port {port:8080}', or name "
                "an `image` that runs its own command",
            )
        if table.package is not None and not _PACKAGE.fullmatch(table.package):
            raise self.declared.error(
                f"{key}.package",
                f"is {table.package!r}; it must be the name of a Debian package, such as "
                "'redis-server'",
            )
        if self.environment not in {None, "docker"} or table.image is not None:
            return None
        if table.dockerfile is not None:  # also records the folder's digest for the case
            try:
                return str(self.declared.folder.context(table.dockerfile))
            except UsageError as error:
                raise self.declared.error(f"{key}.dockerfile", f"is wrong: {error}") from error
        if self.environment is None:
            return None
        if table.package is not None:
            return str(folder_with(table.package))
        if command[0] not in _IN_OUR_IMAGE and "{" not in command[0]:
            raise self.declared.error(
                f"{key}.command",
                f"runs {command[0]!r}, which the harness's own image lacks; for Docker name its "
                "Debian `package`, an `image`, or the folder of a `dockerfile`",
            )
        return None

    def _files(self) -> dict[str, str]:
        files = {}
        for path, written in self.table.files.items():
            key = f"{self.group.key}.files"
            text = written if isinstance(written, str) else ""
            if not isinstance(written, str):
                try:
                    text = self.declared.folder.text(written.source)
                except UsageError as error:
                    raise self.declared.error(key, f"has {path!r}: {error}") from error
            files[path] = self._filled(key, text)
        return files
