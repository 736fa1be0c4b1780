"""Explains a failed start by the line of the declaration or Compose file that caused it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from harness.errors import StartError, UsageError, clipped
from targets.declared.compose.document import ComposeDocument
from targets.declared.document import Path, path_of
from targets.declared.nodes import key_of
from targets.declared.parts import Parts

__all__ = ["explained"]

_CHARACTERS_MAX: Final = 600
_SIMULATED_TIME: Final = re.compile(r"\d+\.\d{6} ")
_SIMULATED_END: Final = re.compile(
    rf"{_SIMULATED_TIME.pattern}(node-|the program exited with |asyncio: Task exception )"
)
_KEYS: Final = {
    "image": ("image", "build", "dockerfile", "package"),
    "command": ("command", "entrypoint", "image", "build"),
    "setup": ("setup",),
    "ready": ("ready", "healthcheck", "command", "entrypoint", "image", "build"),
}
"""The keys that define each part of a node, in declarations and in Compose files."""


def explained(parts: Parts, error: StartError) -> UsageError:
    """Return the error as one line that quotes the user's file and the last line of output."""
    last = _last_words(error.log)
    what = " ".join(error.what.split())
    if last and error.node:
        what += f"; the last line of its output is {last!r}"
    what = clipped(what, _CHARACTERS_MAX)
    declared = parts.declared
    if not error.node:
        return declared.document.error(_of_whole(error.what, parts), what)
    if declared.declaration.compose is not None:
        document = ComposeDocument(declared.declaration.compose, declared.folder)
        path = _narrowed(document.values, ("services", error.node), error.part)
        return document.error(path, f"is to blame: {what}")
    place = path_of(key_of(declared, error.node))
    path = _narrowed(declared.document.values, place, error.part)
    return declared.document.error(path, what)


def _last_words(log: Sequence[str]) -> str:
    """Return the last line that the program wrote, if it wrote one.

    In the simulation, a line begins with its time, and the end of a program is a line of the log.
    """
    lines = [line.strip() for line in log if line.strip()]
    plain = [line for line in lines if not _SIMULATED_END.match(line)]
    return _SIMULATED_TIME.sub("", plain[-1]) if plain else lines[-1] if lines else ""


def _narrowed(values: Any, place: Path, part: str) -> Path:
    for step in place:
        values = values[step]
    key = next((key for key in _KEYS[part] if key in values), None)
    return place if key is None else (*place, key)


def _of_whole(what: str, parts: Parts) -> tuple[str, ...]:
    leads = parts.declared.declaration.leader is not None and "[leader]" in what
    return ("leader", "leads") if leads else ("client",)
