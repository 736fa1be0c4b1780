"""A TOML file whose errors state the file, the line number, and the line's text.

`tomllib` gives no positions. To find a key, this module parses prefixes of the file. The shortest
prefix that is valid TOML and has the key ends at the last line of the key's value. This is slow,
but it is only done for an error, and files are short.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from harness.errors import UsageError, choices_near, clipped
from harness.exact import whole_number

__all__ = ["TYPES", "Document", "Path", "error_at", "path_of"]

CHARACTERS_MAX: Final = 4 * 1024 * 1024
_LINES_SEARCHED_MAX: Final = 1000
_TEXT_SHOWN_MAX: Final = 80
_PLACE: Final = re.compile(r"^(.*) - at `\$(.*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\.([\w-]+)|\[(\d+)\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_SYNTAX: Final = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)")
_KEY: Final = re.compile(r"^([a-z][\w-]*(?:\.[\w-]+)*)(?=[:\s])")

TYPES: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "a text",
}
"""Maps the names of types in msgspec's messages to names that users know."""

Path = tuple[str | int, ...]
S = TypeVar("S", bound=msgspec.Struct)


def path_of(key: str) -> Path:
    """Return the keys and indexes of a dotted key, such as `nodes.0.command`."""
    steps = ((step, whole_number(step)) for step in key.split("."))
    return tuple(step if number is None else number for step, number in steps)


def error_at(name: str, text: str, number: int, what: str) -> UsageError:
    """Return an error that quotes line `number` of the file `name`, whose content is `text`."""
    lines = text.splitlines()
    written = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    quoted = f", `{clipped(written, _TEXT_SHOWN_MAX)}`" if written else ""
    return UsageError(f"{name}, line {number}{quoted}: {what}")


class Document:
    """The text of a TOML file and its values."""

    def __init__(self, name: str, text: str) -> None:
        """Parse the text. Raises `UsageError`. Errors refer to the file as `name`."""
        self.name, self.text = name, text
        if len(text) > CHARACTERS_MAX:
            raise UsageError(
                f"{name} has {len(text)} characters; the limit is {CHARACTERS_MAX}: it should "
                "declare a system, not contain one"
            )
        try:
            self.values: dict[str, Any] = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise self._syntax(error) from error

    def _syntax(self, error: Exception) -> UsageError:
        place = _SYNTAX.search(str(error))
        what = _SYNTAX.sub("", str(error)).strip() or type(error).__name__
        if place is None:
            return UsageError(f"{self.name}: {what}; write it as TOML")
        lines = self.text.splitlines()
        number = int(place[1] or len(lines))
        return error_at(
            self.name,
            self.text,
            number,
            f"{what}; write it as TOML: `key = value`, with texts in quotes",
        )

    def error(self, path: Path, what: str) -> UsageError:
        """Return an error that quotes the line of the value at `path`, or of its nearest parent."""
        for length in range(len(path), 0, -1):
            number = self._line_of(path[:length])
            if number is not None:
                return error_at(self.name, self.text, number, what)
        return UsageError(f"{self.name}: {what}")

    def explained(self, error: UsageError) -> UsageError:
        """Add the line to an error that begins with a key, such as `operations.read: ...`."""
        key = _KEY.match(str(error))
        if key is None:
            return UsageError(f"{self.name}: {error}")
        return self.error(tuple(key[1].split(".")), str(error))

    def converted(self, value: object, kind: type[S], path: Path) -> S:
        """Decode the value at `path`. Raises `UsageError` for a wrong type or an unknown key."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            what, inner = _explained(str(error))
            place = (*path, *inner)
            key = ".".join(map(str, place))
            unknown = _UNKNOWN.fullmatch(what)
            if unknown is None:
                raise self.error(place, f"{key or 'the file'}: {_in_words(what)}") from error
            keys = [field.encode_name for field in msgspec.structs.fields(_struct_at(kind, inner))]
            raise self.error(
                (*place, unknown[1]),
                f"{'.'.join(map(str, (*place, unknown[1])))} is not a key here; "
                f"{choices_near(unknown[1], keys)}",
            ) from error

    def _line_of(self, path: Path) -> int | None:
        if not _is_at(self.values, path):
            return None
        lines = self.text.splitlines(keepends=True)[:_LINES_SEARCHED_MAX]
        whole = 0
        for number in range(1, len(lines) + 1):
            try:
                values = tomllib.loads("".join(lines[:number]))
            except tomllib.TOMLDecodeError:
                continue  # the prefix ends inside a value
            if _is_at(values, path):
                return self._first_of(lines, whole, number)
            whole = number
        return None

    @staticmethod
    def _first_of(lines: Sequence[str], before: int, last: int) -> int:
        """Return the line where a value begins: the first line with content after line `before`.

        The value ends in line `last`.
        """
        for number in range(before + 1, last):
            text = lines[number - 1].strip()
            if text and not text.startswith("#"):
                return number
        return last


def _is_at(values: Any, path: Path) -> bool:
    for step in path:
        inside = step in values if isinstance(values, Mapping) else _is_index(step, values)
        if not inside:
            return False
        values = values[step]
    return True


def _is_index(step: object, values: object) -> bool:
    return isinstance(values, list) and isinstance(step, int) and step < len(values)


def _explained(error: str) -> tuple[str, Path]:
    place = _PLACE.match(error)
    if place is None:
        return error, ()
    steps: list[str | int] = [step[1] or int(step[2]) for step in _STEP.finditer(place[2])]
    return place[1], tuple(steps)


def _in_words(what: str) -> str:
    missing = re.fullmatch(r"Object missing required field `(.*)`", what)
    if missing is not None:
        return f"the key {missing[1]!r} is missing; add it"
    wrong = re.fullmatch(r"Expected `(.*)`, got `(\w+)`", what)
    if wrong is None:
        return what
    wanted = [TYPES.get(each, each) for each in wrong[1].split(" | ") if each != "null"]
    return f"it is {TYPES.get(wrong[2], wrong[2])}; it must be {' or '.join(wanted)}"


def _struct_at(kind: Any, path: Path) -> Any:
    for step in path:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            for field in msgspec.structs.fields(kind):
                if field.encode_name == step:
                    kind = _struct_in(field.type)
    return kind


def _struct_in(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    inner = (_struct_in(each) for each in getattr(kind, "__args__", ()))
    return next((each for each in inner if each is not None), None)
