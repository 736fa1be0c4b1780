"""Values of Compose files: commands, durations, sizes, environments, ports and volumes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from harness.errors import UsageError
from targets.declared.compose.document import ComposeDocument, variables_in
from targets.declared.document import Path
from targets.declared.kept import Folder

__all__ = ["Mount", "Reader", "waits_for_end"]

_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_PORT: Final = re.compile(
    r"(?:(?:[\d.]+|\[[0-9a-f:]+\]):)?(?:(?:\d+(?:-\d+)?)?:)?(\d+)(?:-(\d+))?(?:/(\w+))?"
)
_PORTS_MAX: Final = 100
_MIB: Final = 1 << 20
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Mount(NamedTuple):
    """A volume of a service. `source` is a volume's name, a path, or empty (anonymous)."""

    source: str
    target: str
    is_bind: bool
    read_only: bool
    path: Path


class Reader:
    """Reads the values of one file. Every method raises `UsageError` for a wrong value."""

    def __init__(self, document: ComposeDocument, folder: Folder) -> None:
        self.document, self.folder = document, folder
        self.with_udp: set[Path] = set()
        """The services with UDP ports, which the harness never uses."""

    def wrong(self, path: Path, value: object, rule: str) -> Exception:
        return self.document.error(path, f"is {value!r}; {rule}")

    def text(self, path: Path, value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.wrong(path, value, "it must be a string")
        return str(value)

    def words(self, path: Path, value: object) -> tuple[str, ...]:
        """Return the words of a command: a list, or a string that is split by a shell's rules."""
        if value is None:
            return ()
        if isinstance(value, list):
            return tuple(self.text((*path, index), each) for index, each in enumerate(value))
        try:
            return tuple(shlex.split(self.text(path, value)))
        except ValueError as error:
            raise self.wrong(path, value, f"it cannot be split into words: {error}") from error

    @staticmethod
    def listed(value: object) -> list[Any]:
        """Return a list unchanged, `[]` for a missing value, and `[value]` for any other."""
        if value is None:
            return []
        return value if isinstance(value, list) else [value]

    def table(self, path: Path, value: object) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(path, value, "it must be a table")
        return value

    def seconds(self, path: Path, value: object) -> float:
        text = self.text(path, value)
        match = _DURATION.fullmatch(text)
        if not text or match is None:
            raise self.wrong(path, value, "write a time such as 10s or 1m30s")
        hours, minutes, seconds, millis = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds + millis / 1000

    def mib(self, path: Path, value: object) -> int:
        match = _SIZE.fullmatch(self.text(path, value).strip())
        if match is None:
            raise self.wrong(path, value, "write a size such as 512m or 1g")
        return max(1, int(match[1]) * _UNITS[match[2].lower()] // _MIB)

    def number(self, path: Path, value: object) -> float:
        try:
            return float(self.text(path, value))
        except ValueError:
            raise self.wrong(path, value, "it must be a number") from None

    def environment(self, service: Mapping[str, Any], path: Path) -> dict[str, str]:
        """Return the variables in `env_file` and `environment`; the latter has priority."""
        variables: dict[str, str] = {}
        place = (*path, "env_file")
        for entry in self.listed(service.get("env_file")):
            required = True
            if isinstance(entry, dict):
                required, entry = entry.get("required", True) is not False, entry.get("path")  # noqa: PLW2901
            name = self.document.beside(self.text(place, entry))
            text = self._text_at(place, name) if required else self.folder.optional_text(name)
            variables |= variables_in(text or "")
        place = (*path, "environment")
        written = service.get("environment")
        pairs: dict[str, Any] = {}
        if isinstance(written, list):
            for entry in written:
                name, equals, value = self.text(place, entry).partition("=")
                pairs[name] = value if equals else None
        else:
            pairs = dict(self.table(place, written))
        for name, value in pairs.items():
            # a name without a value takes the shell's value, as in Docker Compose
            if value is None:
                shell = self.folder.variable(name)
                if shell is not None:
                    variables[name] = shell
            elif isinstance(value, bool):
                rule = "put true and false in quotes, as Docker Compose demands"
                raise self.wrong((*place, name), value, rule)
            else:
                variables[name] = self.text((*place, name), value)
        return variables

    def _text_at(self, path: Path, name: str) -> str:
        return self.checked(path, lambda: self.folder.text(name))

    def checked(self, path: Path, read: Callable[[], str]) -> str:
        """Return the result of `read`. Its errors state where the value at `path` is."""
        try:
            return read()
        except UsageError as error:
            raise self.document.error(path, f"is wrong: {error}") from error

    def ports(self, service: Mapping[str, Any], path: Path) -> tuple[int, ...]:
        """Return the container ports in `ports` and `expose`."""
        ports: list[int] = []
        for key in ("ports", "expose"):
            for index, entry in enumerate(self.listed(service.get(key))):
                ports += self._port((*path, key, index), entry)
        if len(ports) > _PORTS_MAX:
            raise self.document.error((*path, "ports"), f"has {len(ports)}; at most {_PORTS_MAX}")
        return tuple(dict.fromkeys(ports))

    def _port(self, path: Path, entry: object) -> range:
        rule = "write it as 8080 or '8080:80'"
        if isinstance(entry, dict):
            written = f"{entry.get('target')}/{entry.get('protocol', 'tcp')}"
        else:
            written = self.text(path, entry)
        match = _PORT.fullmatch(written)
        if match is None:
            raise self.wrong(path, entry, rule)
        if match[3] == "udp":
            self.with_udp.add(path[:2])
            return range(0)
        if (match[3] or "tcp") != "tcp":
            raise self.wrong(path, entry, "clients of the harness speak TCP; drop it")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= 65535:
            raise self.wrong(path, entry, f"a port is in 1 .. 65535; {rule}")
        return range(first, last + 1)

    def holds_data(self, mount: Mount) -> bool:
        """Whether a mount is for data: a volume, or a folder that Docker Compose creates empty."""
        if not mount.is_bind:
            return True
        return not mount.read_only and not self.folder.exists(mount.source)

    def mounts(self, service: Mapping[str, Any], path: Path) -> list[Mount]:
        """Return the volumes of a service."""
        return [
            self._mount((*path, "volumes", index), entry)
            for index, entry in enumerate(self.listed(service.get("volumes")))
        ]

    def _mount(self, path: Path, entry: object) -> Mount:
        if isinstance(entry, dict):
            kind = entry.get("type", "volume")
            if kind not in {"volume", "bind"}:
                rule = "it must be volume or bind; the /tmp of a container is writable anyway"
                raise self.wrong(path, kind, rule)
            source, target = entry.get("source") or "", entry.get("target")
            read_only, is_bind = bool(entry.get("read_only")), kind == "bind"
        else:
            first, *rest = self.text(path, entry).split(":")
            source, target = (first, rest[0]) if rest else ("", first)
            read_only = len(rest) > 1 and "ro" in rest[1].split(",")
            is_bind = source.startswith((".", "/", "~"))
        if not isinstance(target, str) or not target.startswith("/") or len(target) < 2:
            raise self.wrong(path, entry, "write it as NAME:/path or ./file:/path")
        if source.startswith("~"):
            rule = "the harness reads files next to the Compose file; write a path such as ./conf"
            raise self.wrong(path, entry, rule)
        if is_bind:
            source = self.document.beside(str(source))
        return Mount(str(source), target.rstrip("/"), is_bind, read_only, path)


def waits_for_end(condition: object) -> bool:
    """Whether an entry in `depends_on` waits until the other service has ended."""
    return (
        isinstance(condition, dict)
        and condition.get("condition") == "service_completed_successfully"
    )
