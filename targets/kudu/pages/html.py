"""HTML that is always escaped: all that is not `Html` already is text."""

from __future__ import annotations

from html import escape
from typing import Final
from urllib.parse import urlencode

_VOID: Final = frozenset({"meta", "link", "br"})


class Html(str):
    """Markup that goes into a page as it is. Only `tag`, `join` and constants make it."""

    __slots__ = ()


DASH: Final = Html("&ndash;")
"""The sign for an empty cell."""

Child = Html | str | int | float | None


def join(*children: Child) -> Html:
    """One after another; `None` is nothing."""
    return Html(
        "".join(
            child if isinstance(child, Html) else escape(str(child), quote=True)
            for child in children
            if child is not None
        )
    )


def tag(name: str, /, *children: Child, **attributes: str | None) -> Html:
    """One element. `class_` is `class`, other underscores are dashes; `None` leaves one out."""
    attributes_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{attributes_text}>")
    return Html(f"<{name}{attributes_text}>{join(*children)}</{name}>")


def link(text: Child, target: str, **query: str) -> Html:
    """A link to a page of ours or of another node's, made of text that may hold anything."""
    return tag("a", text, href=f"{target}?{urlencode(query)}" if query else target)
