"""The services of a Compose file, reduced to the facts that a draft needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.errors import UsageError
from targets.declared.compose.document import ComposeDocument
from targets.declared.compose.values import Mount, Reader, waits_for_end
from targets.declared.draft.kinds import Recognized, foreign_name, recognized, tool_name
from targets.declared.kept import Folder

__all__ = ["Service", "Survey", "names_of"]

_SHELLS: Final = frozenset({"sh", "bash", "ash"})
_SCRIPT_CHARACTERS_MAX: Final = 64 * 1024


@dataclass(frozen=True)
class Service:
    """The facts about a service, such as the kind of server or tool that it runs."""

    name: str
    image: str
    built: str  # the folder of its Dockerfile, or empty
    words: tuple[str, ...]  # entry point and command
    variables: Mapping[str, str]
    ports: tuple[int, ...]
    mounts: tuple[Mount, ...]
    folders: tuple[str, ...]  # the mount points of its data, in order
    texts: tuple[str, ...]  # the contents of the files that it binds
    health: str  # its health check, or empty
    after: tuple[str, ...]
    recognized: Recognized | None
    foreign: str
    tool: str
    ends: bool  # whether it ends on its own, like a job

    @property
    def kind_name(self) -> str:
        return "" if self.recognized is None else self.recognized.kind.name

    def flag(self, *names: str) -> str | None:
        """Return the value of a flag of the command, if given: `--name value` or `--name=value`."""
        words = [word for text in self.words for word in text.split()]
        for index, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if flag in names:
                return value if equals else next(iter(words[index + 1 : index + 2]), None)
        return None

    def variable(self, *names: str) -> str:
        """Return the value of the first of these variables that is not empty, or ""."""
        return next((self.variables[name] for name in names if self.variables.get(name)), "")

    def mentions(self, other: str) -> bool:
        """Whether the service depends on the other service, or names it in a setting."""
        pattern = re.compile(rf"(?<![\w./-]){re.escape(other)}(?![\w-])")
        texts = [*self.words, *self.variables.values(), *self.texts]
        return other in self.after or any(pattern.search(text) for text in texts)


def names_of(services: Sequence[Service]) -> str:
    """Return the names of the services, separated by commas."""
    return ", ".join(service.name for service in services)


class Survey:
    """Reads the services of a Compose file. Omits the values that the loader will refuse."""

    def __init__(self, document: ComposeDocument, folder: Folder) -> None:
        self._document, self._folder = document, folder
        self._read = Reader(document, folder)

    def services(self) -> list[Service]:
        """Return the services that belong to no profile. Raises `UsageError` if there are none."""
        written = self._read.table(("services",), self._document.values.get("services"))
        tables = {
            name: self._read.table(("services", name), value) for name, value in written.items()
        }
        jobs = set(_jobs(tables.values()))
        services = [
            self._service(name, table, ends=name in jobs)
            for name, table in tables.items()
            if not table.get("profiles")
        ]
        if not services:
            raise self._document.error(
                ("services",), "has no service to run; write one service per node"
            )
        return services

    def _service(self, name: str, table: Mapping[str, Any], *, ends: bool) -> Service:
        path = ("services", name)
        image = str(table.get("image") or "")
        built = self._built(table.get("build"))
        words = (
            *_or(lambda: self._read.words((*path, "entrypoint"), table.get("entrypoint")), ()),
            *_or(lambda: self._read.words((*path, "command"), table.get("command")), ()),
        )
        variables = _or(lambda: self._read.environment(table, path), {})
        ports = _or(lambda: self._read.ports(table, path), ())
        mounts = _or(lambda: self._read.mounts(table, path), [])
        check = table.get("healthcheck")
        test = check.get("test") if isinstance(check, dict) and not check.get("disable") else None
        after = table.get("depends_on") or ()
        commands = tuple(_commands(words))
        kind = recognized(
            name=name,
            image=image,
            commands=commands,
            dockerfile=self._dockerfile(built),
            variables=variables,
            ports=ports,
        )
        tool = tool_name(name, image, *(text.split()[0] for text in commands if text.split()))
        return Service(
            name=name,
            image=image,
            built=built,
            words=words,
            variables=variables,
            ports=ports,
            mounts=tuple(mounts),
            folders=tuple(each.target for each in mounts if self._is_data(each)),
            texts=tuple(self._bound(mounts)),
            health=" ".join(map(str, self._read.listed(test))) if test != ["NONE"] else "",
            after=tuple(map(str, after)),
            recognized=None if tool else kind,
            foreign="" if tool or kind is not None else foreign_name(name, image),
            tool=tool,
            ends=ends,
        )

    def _built(self, build: object) -> str:
        context = build.get("context", ".") if isinstance(build, dict) else build
        return self._document.beside(context) if isinstance(context, str) and context else ""

    def _dockerfile(self, context: str) -> str:
        if not context:
            return ""
        return _or(lambda: self._folder.optional_text(f"{context}/Dockerfile"), None) or ""

    def _is_data(self, mount: Mount) -> bool:
        return bool(_or(lambda: self._read.holds_data(mount), True))

    def _bound(self, mounts: Sequence[Mount]) -> Iterable[str]:
        for mount in mounts:
            if mount.is_bind and not self._folder.at(mount.source).is_dir():
                text = _or(lambda: self._folder.optional_text(mount.source), None)  # noqa: B023
                yield (text or "")[:_SCRIPT_CHARACTERS_MAX]


def _or(read: Any, usual: Any) -> Any:
    try:
        return read()
    except UsageError:
        return usual


def _jobs(tables: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for table in tables:
        after = table.get("depends_on")
        for name, how in after.items() if isinstance(after, dict) else ():
            if waits_for_end(how):
                yield str(name)


def _commands(words: Sequence[str]) -> Iterable[str]:
    first = words[0].rpartition("/")[2] if words else ""
    if first in _SHELLS:
        yield from (word for word in words[1:] if not word.startswith("-"))
    elif words:
        yield " ".join(words)
