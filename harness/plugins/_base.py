"""The base class of all plug-ins, and how they declare optional members.

A plug-in sets its required data in the class body. Optional behaviour is a method with a default,
which a plug-in overrides with `@override`. Optional data is set in the class header, as in `class
MyTarget(Target, groups=("masters",))`. mypy finds misspelt names of methods and in headers, and
Python itself refuses a misspelt name in a header.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.errors import choices_near

if TYPE_CHECKING:
    from typing_extensions import override as override  # noqa: PLC0414 - re-exported for mypy
else:

    def override(method):  # noqa: ANN001, ANN202 - `typing` has `override` only since 3.12
        """Mark a method that overrides a method of a base class, for type checkers."""
        return method


class Plugin(ABC):
    """The base of all plug-ins: objects that the harness finds by entry points."""

    api_version: int
    name: str
    doc: str  # one line, which `harness list` shows


def set_traits(plugin: type, allowed: type, traits: Mapping[str, object]) -> None:
    """Set the optional data of a class from its header. `allowed` is a `TypedDict`."""
    names = sorted(allowed.__annotations__)
    for name in names:
        if name in vars(plugin):
            raise TypeError(f"write {name} in the header: class {plugin.__name__}(..., {name}=...)")
    for name, value in traits.items():
        if name not in names:
            raise TypeError(f"{plugin.__name__} has no trait {name!r}; {choices_near(name, names)}")
        setattr(plugin, name, value)
