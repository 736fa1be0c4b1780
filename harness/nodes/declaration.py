"""Parts of a node's declaration: readiness probes and variants, as data.

`harness.cluster` defines `NodeSpec` and re-exports these parts; `harness.nodes.deployment` has the
rules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

BASE: Final = "base"
"""The name of a node's base variant: the node as it is declared."""

_READY_S: Final = 60.0
_PASSED_OVER: Final = ("__pycache__", ".egg-info", ".git")
"""Endings of names that are left out of a build context. These files change although no source has
changed."""


class _Probe(msgspec.Struct, frozen=True, tag_field="probe"):
    """The base of all readiness probes."""


class ReadyPort(_Probe, frozen=True, tag="port"):
    """A node is ready once its declared TCP port accepts connections, within `within_s`."""

    port: int
    within_s: float = _READY_S


class ReadyHttp(_Probe, frozen=True, tag="http"):
    """A node is ready once it answers a GET of `path` on its declared port with status 200."""

    port: int
    path: str = "/"
    within_s: float = _READY_S


class ReadyLog(_Probe, frozen=True, tag="log"):
    """A node is ready once a line printed since its start matches a regular expression."""

    pattern: str
    within_s: float = _READY_S


class ReadyCommand(_Probe, frozen=True, tag="command"):
    """A node is ready once the command, with its placeholders filled, exits with 0.

    The command runs with the node's environment variables and user, in the node's data folder. In
    Docker it runs in the node's container, which must have a shell (`sh`). Each try may take 10 s.
    """

    command: tuple[str, ...]
    within_s: float = _READY_S


class InContainer(msgspec.Struct, frozen=True, kw_only=True):
    """Properties that only a container can have, from a Compose file (`NodeSpec.container`).

    The node's declaration has no placeholders. `entrypoint` is the program, which gets the node's
    command as arguments; `None` means the image's own entry point. `data` is the folder of the
    container at which the node's data volume is mounted. `files` are text files by absolute path,
    written before each start. `aliases` are more names under which other nodes reach this one.
    """

    entrypoint: tuple[str, ...] | None = None
    data: str | None = None
    files: dict[str, str] = msgspec.field(default_factory=dict)
    working_folder: str | None = None
    aliases: tuple[str, ...] = ()


Ready = ReadyPort | ReadyHttp | ReadyLog | ReadyCommand


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of a node, such as another version: the changes to the node's declaration.

    Fields replace the node's fields; `config` and `environment` are merged key by key. A variant
    cannot give a command to a node on `Env`, or an entry to a foreign program.
    """

    entry: str | None = None
    config: dict[str, Any] | None = None
    command: tuple[str, ...] | None = None
    environment: dict[str, str] | None = None
    image: str | None = None
    dockerfile: str | None = None


def context_files(folder: Path) -> list[tuple[str, Path]]:
    """Return the files of an image's build context, sorted, with their relative paths."""
    files = [(str(path.relative_to(folder)), path) for path in sorted(folder.rglob("*"))]
    return [
        (name, path)
        for name, path in files
        if path.is_file() and not any(part.endswith(_PASSED_OVER) for part in Path(name).parts)
    ]
