"""Placeholders in templates, and values as JSON text.

A placeholder is `{name}` or `{name:encoding}`, such as `{value}` or `{key:base64}`. Braces of JSON
objects are not placeholders, because the names in them are quoted. Without an encoding, `{key}` is
the plain text of the key. Every other argument is its JSON text, so that 5 and "5" differ in any
store.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from harness.errors import UsageError, shown
from targets.declared.protocols import MalformedError, described

__all__ = [
    "PLACEHOLDER",
    "check_keys",
    "check_names",
    "check_needed",
    "decoded",
    "encoded",
    "filled",
    "names_in",
    "text_of",
]

PLACEHOLDER: Final = re.compile(r"\{([a-z][a-z_0-9]*)(?::([a-z0-9]+))?\}")
PLAIN: Final = frozenset({"key"})
"""The arguments that are inserted as plain text instead of JSON."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def encoded(value: Any) -> str:
    """Return a value as compact JSON text, without escapes for characters beyond ASCII."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def decoded(data: bytes | bytearray | str) -> Any:
    """Parse a JSON text. Raises `MalformedError` for an empty text, NaN, a lone surrogate, etc."""
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8")
        value = json.loads(text, parse_constant=_refuse)
        # An escape may have produced a lone surrogate, which a history cannot contain.
        if "\\u" in text:
            encoded(value).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"not JSON: {shown(data)} ({described(error)})") from error
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def text_of(name: str, value: Any) -> str:
    """Return the text for the placeholder `{name}`, which has no encoding."""
    return value if name in PLAIN and isinstance(value, str) else encoded(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encoded(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        raise ValueError(f"{shown(value)} is not a name")
    return value


ENCODINGS: Final[Mapping[str, Callable[[str, Any], str]]] = {
    "base64": lambda name, value: b64encode(text_of(name, value).encode()).decode(),
    "json": lambda _, value: encoded(value),
    "name": lambda _, value: _name(value),
    "text": lambda _, value: _text(value),
    "url": lambda name, value: quote(text_of(name, value), safe=""),
}


def filled(
    template: str, arguments: Mapping[str, Any], plain: Callable[[str, Any], str] = text_of
) -> str:
    """Replace the placeholders of a template. `plain` encodes placeholders without an encoding."""

    def replacement(match: re.Match[str]) -> str:
        name, encoding = match.groups()
        return (ENCODINGS[encoding] if encoding else plain)(name, arguments[name])

    return PLACEHOLDER.sub(replacement, template)


def names_in(written: object) -> Iterator[str]:
    """Yield the names of all placeholders in a string, or in the strings of a list or table."""
    yield from (match[1] for text in _texts(written) for match in PLACEHOLDER.finditer(text))


def check_names(where: str, written: object, known: Collection[str]) -> None:
    """Raise `UsageError` for a placeholder with an unknown argument or encoding."""
    for match in (match for text in _texts(written) for match in PLACEHOLDER.finditer(text)):
        name, encoding = match.groups()
        if name not in known:
            choices = ", ".join(f"{{{each}}}" for each in sorted(known)) or "none"
            raise UsageError(
                f"{where}: {match[0]} in {shown(written)} is not an argument of this operation, "
                f"which has {choices}"
            )
        if encoding is not None and encoding not in ENCODINGS:
            choices = ", ".join(ENCODINGS)
            raise UsageError(f"{where}: {match[0]} has an unknown encoding; give one of {choices}")


def check_needed(where: str, text: object, needed: Collection[str]) -> None:
    """Raise `UsageError` for a template that ignores an argument on which the verdict depends."""
    missing = sorted({*needed} - {*names_in(text)})
    if missing:
        names = " and ".join(f"{{{name}}}" for name in missing)
        raise UsageError(
            f"{where} is {shown(text)}, without {names}: the system would do something else than "
            f"the harness checks; add {names}"
        )


def check_keys(entries: Sequence[tuple[str, str, str, Any]]) -> None:
    """Raise `UsageError` if only some templates of a vocabulary use the key."""
    keyed: dict[str, str] = {}
    keyless: dict[str, tuple[str, Any]] = {}
    for where, vocabulary, _, text in entries:
        if "key" in names_in(text):
            keyed.setdefault(vocabulary, where)
        else:
            keyless.setdefault(vocabulary, (where, text))
    for vocabulary, (where, text) in keyless.items():
        if vocabulary in keyed:
            raise UsageError(
                f"{where} is {shown(text)}, without {{key}}, but {keyed[vocabulary]} has it: the "
                "two would use different data; write {key} in both or in neither"
            )


def _texts(written: object) -> Iterator[str]:
    if isinstance(written, str):
        yield written
    elif isinstance(written, Mapping):
        for key, value in written.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(written, list | tuple):
        for value in written:
            yield from _texts(value)
