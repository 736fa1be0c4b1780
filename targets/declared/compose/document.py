"""A Compose file with its variables replaced. Errors state the line number.

Variables come from the file `.env` in the same folder and from the shell's environment. As in
Docker Compose, the environment has priority.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any, Final

from harness.errors import UsageError, shown
from targets.declared.document import Path, error_at
from targets.declared.kept import Folder

__all__ = ["ComposeDocument", "variables_in"]

VALUES_MAX: Final = 50_000
DEPTH_MAX: Final = 40
_NESTED: Final = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
"""A pattern for text with balanced braces, nested at most two deep, as in variables' defaults."""
_VARIABLE: Final = re.compile(
    r"\$(?:(?P<escaped>\$)|\{(?P<braced>[A-Za-z_]\w*)"
    rf"(?:(?P<how>:?[-?+])(?P<other>{_NESTED}))?\}}"
    r"|(?P<plain>[A-Za-z_]\w*)|(?P<wrong>.?))",
    re.DOTALL,
)


class ComposeDocument:
    """The values of a Compose file, and the line of each value."""

    def __init__(self, name: str, folder: Folder) -> None:
        """Read and parse the file. Raises `UsageError`."""
        self.name = name
        self._text = folder.text(name)
        self._folder = folder
        self._lines: dict[Path, int] = {}
        self._left = VALUES_MAX
        self._flattened: set[int] = set()
        self._here = posixpath.dirname(name)
        written = folder.optional_text(self.beside(".env"))
        self._env = {} if written is None else variables_in(written)
        self.values = self._parsed()

    def beside(self, name: str) -> str:
        """Convert a path in the Compose file to a path relative to the declaration's folder."""
        return posixpath.normpath(posixpath.join(self._here, name))

    def error(self, path: Path, what: str) -> UsageError:
        """Return an error that quotes the line of the value at `path`, or of its nearest parent."""
        number = next(
            (self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines),
            None,
        )
        key = ".".join(map(str, path))
        if number is None:
            return UsageError(f"{self.name}: {key} {what}".replace("  ", " "))
        return error_at(self.name, self._text, number, f"{key} {what}")

    def _parsed(self) -> Mapping[str, Any]:
        try:
            import yaml
        except ModuleNotFoundError as error:
            raise UsageError(
                f"a Compose file such as {self.name!r} needs the extra 'docker' (PyYAML is not "
                "installed): pip install 'catalog-harness[docker]'"
            ) from error
        loader = yaml.SafeLoader(self._text)
        try:
            root = loader.get_single_node()
            values = None if root is None else self._value(loader, root, ())
        except (yaml.YAMLError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            place = "" if mark is None else f", line {mark.line + 1}"
            what = getattr(error, "problem", None) or str(error)
            raise UsageError(f"{self.name}{place}: {what}; write it as YAML") from error
        finally:
            loader.dispose()
        if not isinstance(values, dict):
            raise UsageError(f"{self.name}: it is not a Compose file; write a table `services:`")
        return values

    def _value(self, loader: Any, node: Any, path: Path) -> Any:
        import yaml

        self._lines.setdefault(path, node.start_mark.line + 1)
        self._left -= 1
        if self._left < 0 or len(path) > DEPTH_MAX:
            raise UsageError(
                f"{self.name} has more than {VALUES_MAX} values or {DEPTH_MAX} levels, anchors "
                "included; declare the system in a smaller file"
            )
        if isinstance(node, yaml.MappingNode):
            place = id(node)  # determinism: no node runs this module
            if place not in self._flattened:  # a table with an anchor is visited several times
                self._refuse_twice(node, path)
                self._flattened.add(place)
                loader.flatten_mapping(node)
            return self._table(loader, node, path)
        if isinstance(node, yaml.SequenceNode):
            return [
                self._value(loader, each, (*path, index)) for index, each in enumerate(node.value)
            ]
        value = loader.construct_object(node)
        return self._replaced(value, path) if isinstance(value, str) else value

    def _table(self, loader: Any, node: Any, path: Path) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node)
            if not isinstance(key, str | int | float | bool):
                raise self.error(path, f"has the key {shown(key)}; a key must be a string")
            inner = (*path, str(key))
            self._lines[inner] = key_node.start_mark.line + 1
            table[str(key)] = self._value(loader, value_node, inner)
        return table

    def _refuse_twice(self, node: Any, path: Path) -> None:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in seen:
                self._lines[*path, key] = key_node.start_mark.line + 1
                raise self.error((*path, key), "occurs twice; keep one of the two")
            seen.add(key)

    def _replaced(self, text: str, path: Path) -> str:
        def value(match: re.Match[str]) -> str:
            if match["escaped"]:
                return "$"
            name = match["braced"] or match["plain"]
            if name is None:
                raise self.error(
                    path,
                    f"has {shown(match[0])}, which is not a variable; write ${{NAME}}, or $$ for a "
                    "dollar sign",
                )
            return self._variable(name, match["how"], match["other"] or "", path)

        return _VARIABLE.sub(value, text)

    def _variable(self, name: str, how: str | None, other: str, path: Path) -> str:
        value = self._folder.variable(name)
        if value is None:
            value = self._env.get(name)
        present = bool(value) if how and how.startswith(":") else value is not None
        if how is None or how in {"-", ":-"}:
            return (value or "") if how is None or present else self._replaced(other, path)
        if how in {"+", ":+"}:
            return self._replaced(other, path) if present else ""
        if not present:
            raise self.error(path, f"needs the variable {name}: {other or 'it is not set'}; set it")
        return value or ""


def variables_in(text: str) -> dict[str, str]:
    """Return the variables in an environment file: lines NAME=VALUE, with optional quotes."""
    variables: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip().removeprefix("export ").strip()
        name, equals, value = stripped.partition("=")
        if not stripped or stripped.startswith("#") or not equals:
            continue
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        else:
            value = re.sub(r"\s+#.*$", "", value)
        variables[name.strip()] = value
    return variables
