"""The placeholders of commands, files and environments; see `harness.cluster.NodeSpec`.

What stands for each is every environment's own; where a package lies is asked only when one is
named (`{package:P}`), and found without running any of its code.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

from harness.cluster import NodeSpec
from harness.errors import UsageError

__all__ = ["fill_in", "find_module", "package_folder", "placeholders"]

_KNOWN: Final = (
    "{host} {host:NODE} {data} {files} {name} {port:N} {peer:NODE:N} {address:NODE:N} {package:P}"
)
_PLACEHOLDER: Final = re.compile(r"\{([a-z]+)(?::([^{}]*))?\}")


def placeholders(words: Iterable[str]) -> Iterator[re.Match[str]]:
    """All of them: the kind, and what stands behind the first colon."""
    return (match for word in words for match in _PLACEHOLDER.finditer(word))


def fill_in(
    word: str, spec: NodeSpec, values: Mapping[str, str], folder_of: Callable[[str], str]
) -> str:
    """Replace the placeholders of one word; raises `UsageError` for one that cannot be.

    `values` has what stands for `port:7051` and the like, and `folder_of` where a package lies.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] == "package" and match[2]:
            return folder_of(match[2])
        found = {"name": spec.name, **values}.get(match[0][1:-1])
        if found is not None:
            return found
        own, peers = (
            sorted(name.removeprefix(kind) for name in values if name.startswith(kind))
            for kind in ("port:", "peer:")
        )
        raise UsageError(
            f"node {spec.name!r}: the placeholder {match[0]!r} cannot be filled in; known are "
            f"{_KNOWN}, ports of its own are {own}, peers are {peers}"
        )

    return _PLACEHOLDER.sub(value, word)


def find_module(name: str) -> ModuleSpec | None:
    """A top-level package or module as it is installed here."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def package_folder(package: str) -> Path:
    """The folder that holds `package`; raises `UsageError` where there is none of that name."""
    top, *inner = package.split(".")
    spec = find_module(top)
    if spec is not None and spec.submodule_search_locations:
        found = Path(next(iter(spec.submodule_search_locations)))
        return found.joinpath(*inner[:-1]) if inner else found.parent
    if spec is not None and spec.has_location and spec.origin is not None:
        return Path(spec.origin).parent
    raise UsageError(
        f"{{package:{package}}}: no package or module {top!r} is installed here; install the "
        "distribution that brings it into the harness's environment"
    )
