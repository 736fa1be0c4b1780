"""Checks the types of the attributes that plug-ins declare, for each group of plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from harness.cluster import Capability
from harness.errors import shown
from harness.plugins.options import Option

__all__ = ["wrong_declaration"]

_Rule = tuple[type | tuple[type, ...], type | None, str]
"""A rule for a plug-in's attribute: its type, the type of its elements, and both in words."""
_SEQUENCE: Final = (tuple, list)
_TEXT: Final[_Rule] = (str, None, "text")
_TEXTS: Final[_Rule] = (_SEQUENCE, str, "a tuple of texts")
_OPTIONS: Final[_Rule] = (_SEQUENCE, Option, "a tuple of Options")
_DECLARATIONS: Final[Mapping[str, Mapping[str, _Rule]]] = {
    "targets": {
        "name": _TEXT,
        "vocabularies": ((AbstractSet, *_SEQUENCE), str, "a set of texts"),
        "profiles": _TEXTS,
        "bugs": (Mapping, str, "a mapping of texts"),
        "options": _OPTIONS,
    },
    "nemeses": {
        "name": _TEXT,
        "requires": ((AbstractSet, *_SEQUENCE), Capability, "a set of Capabilities"),
    },
    "workloads": {
        "name": _TEXT,
        "vocabulary": _TEXT,
        "options": _OPTIONS,
        "checkers": _TEXTS,
    },
}


def wrong_declaration(plugin: Any, group: str) -> str | None:
    """Describe the first attribute that has a wrong type; `None` if all types are right."""
    for name, (kind, element, words) in _DECLARATIONS.get(group, {}).items():
        value = getattr(plugin, name)
        right = isinstance(value, kind)
        if not right or (element is not None and not all(isinstance(x, element) for x in value)):
            return f"{name}={shown(value)}; it must be {words}"
    return None
