"""The declaration of a system: a TOML file, decoded to structs and checked before anything starts.

`docs/your-system.md` explains the keys. At the top level, a declaration may also contain the keys
of `harness.toml`, which the command line reads (`harness.cli.project`). So one file can have both
roles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path  # determinism: no node runs this module
from typing import Any, Final

import msgspec

from harness.case import IMPORTED
from harness.errors import UsageError, choices_near
from targets.declared.document import Document, path_of
from targets.declared.kept import KEY as KEPT
from targets.declared.kept import Folder, Kept, bundled

__all__ = [
    "DEFAULTS",
    "Client",
    "Declaration",
    "Each",
    "Leader",
    "NodeTable",
    "from_case",
    "from_disk",
]

NODES_MAX: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,62}")
WITHIN_S_MAX: Final = 3600.0
DEFAULTS: Final = frozenset(
    {
        *("target", "workload", "nemeses", "profile", "env", "store", "label", "time-limit"),
        *("rate", "concurrency", "jobs", "known", "system"),
    }
)
"""The keys of `harness.toml`, which do not describe the system itself."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The base of all tables of the file."""


class Each(_Table, frozen=True, kw_only=True):
    """A template that is filled in for each node. `between` joins the results."""

    each: str
    between: str = ","


class FromFile(_Table, frozen=True, kw_only=True):
    """A text that comes from a file."""

    source: str = msgspec.field(name="from")


_OF_COMPOSE: Final = {
    "data": "the data of a node are in the folder {data}",
    "ready-within": "write it in [nodes]",
    "roles": "write `role` in each table of [[nodes]]",
    "without": "leave the nodes out of [nodes]",
}
"""The keys that have no meaning without a Compose file, and what to write instead."""


class NodeTable(_Table, frozen=True, kw_only=True):
    """A table `[nodes]`: nodes that all run one command line."""

    count: int | None = None
    names: tuple[str, ...] = ()
    role: str = "node"
    command: str | tuple[str, ...] = ()
    image: str | None = None
    dockerfile: str | None = None
    package: str | None = None
    ports: tuple[int, ...] = ()
    ready: str | tuple[str, ...] | None = None
    ready_within: float = 60.0
    environment: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    files: dict[str, str | FromFile] = msgspec.field(default_factory=dict)
    setup: tuple[str | tuple[str, ...], ...] = ()
    each: dict[str, str | Each] = msgspec.field(default_factory=dict)
    after: tuple[str, ...] = ()
    user: str | None = None
    memory_mib: int | None = None
    cpus: float | None = None
    clock_probe: str | tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"


class Client(_Table, frozen=True, kw_only=True):
    """The keys of the table `[client]` that all protocols share. The protocol reads the others."""

    protocol: str
    port: int | None = None
    nodes: tuple[str, ...] = ()
    pinned: bool = False


class Leader(_Table, frozen=True, kw_only=True):
    """The table `[leader]`, which says how to find the leader."""

    probe: str | dict[str, Any]
    leads: str
    term: str | None = None
    protocol: str | None = None
    port: int | None = None


class Declaration(_Table, frozen=True, kw_only=True):
    """The whole file, except for the command line's defaults."""

    client: dict[str, Any]
    name: str | None = None
    nodes: NodeTable | list[NodeTable] | None = None
    compose: str | None = None
    without: tuple[str, ...] = ()
    roles: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    data: str | dict[str, str] = msgspec.field(default_factory=dict)
    ready_within: float = 60.0
    leader: Leader | None = None
    quorum: int | str | dict[str, int | str] = "majority"
    operations: dict[str, Any] = msgspec.field(default_factory=dict)


class Declared:
    """A declaration, with its document and its folder."""

    def __init__(self, document: Document, folder: Folder) -> None:
        """Decode the document. Raises `UsageError`."""
        self.document, self.folder = document, folder
        values = {
            key: value
            for key, value in document.values.items()
            if key not in DEFAULTS and key != KEPT
        }
        _check_keys(document, values)
        self.declaration = document.converted(values, Declaration, ())
        if (self.declaration.nodes is None) == (self.declaration.compose is None):
            wrong = "given" if self.declaration.compose else "missing"
            raise document.error(
                ("compose",),
                f"the table [nodes] and the key `compose` are both {wrong}; write one of them: a "
                "command line for the nodes, or a Compose file",
            )
        if self.declaration.compose is None:
            _refuse_keys_of_compose(document, values)
        name = self.declaration.name
        if name is not None and (not _NAME.fullmatch(name) or name == IMPORTED):
            raise document.error(
                ("name",), f"name is {name!r}; it must match {_NAME.pattern} and not be 'imported'"
            )
        common_keys = {field.encode_name for field in msgspec.structs.fields(Client)}
        table = self.declaration.client
        common = {key: value for key, value in table.items() if key in common_keys}
        self.client = document.converted(common, Client, ("client",))
        self.settings = {key: value for key, value in table.items() if key not in common_keys}

    @property
    def name(self) -> str:
        """The name of the system: the file's `name`, or else the name of the file."""
        stem = re.sub(r"[^\w. -]", "-", Path(self.document.name).stem, flags=re.ASCII)
        return self.declaration.name or stem.lstrip(" .-") or "system"

    def error(self, key: str, what: str) -> UsageError:
        """Return an error that quotes the line of a dotted key."""
        return self.document.error(path_of(key), f"{key} {what}")


def _refuse_keys_of_compose(document: Document, values: Mapping[str, Any]) -> None:
    for key, instead in _OF_COMPOSE.items():
        if key in values:
            raise document.error(
                (key,), f"{key} belongs to a file with `compose`, and not to [nodes]; {instead}"
            )


def _check_keys(document: Document, values: Mapping[str, Any]) -> None:
    system_keys = [field.encode_name for field in msgspec.structs.fields(Declaration)]
    for key in values:
        if key not in system_keys:
            keys = [*system_keys, *sorted(DEFAULTS)]
            raise document.error((key,), f"{key} is not a key here; {choices_near(key, keys)}")
    if "client" not in values:
        raise document.error(
            ("client",),
            "the table [client] is missing; add it, with the protocol that the system speaks: "
            '[client] protocol = "http"',
        )


def from_disk(path: Path) -> Declared:
    """Read a declaration. Raises `UsageError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"--system {str(path)!r} cannot be read: {why}; name a TOML file that declares a "
            "system (docs/your-system.md)"
        ) from error
    document = Document(path.name, text)
    if KEPT in document.values:
        return from_case(text)
    return Declared(document, Folder(path.resolve().parent))


def from_case(text: str) -> Declared:
    """Read a declaration from the text that a case keeps. Raises `UsageError`."""
    document = Document("the case's declaration", text)
    kept = document.converted(document.values.get(KEPT, {}), Kept, (KEPT,))
    document.name = kept.file
    return Declared(document, Folder(Path(kept.folder), kept=kept))


def as_text(declared: Declared) -> str:
    """Return the text that a case keeps: the declaration, and the files that it read."""
    if KEPT in declared.document.values:
        return declared.document.text
    return bundled(declared.document.text, declared.folder.kept(declared.document.name))
