"""HTML that is always escaped: everything that is not `Html` already is treated as text."""

from __future__ import annotations

from html import escape
from typing import Final
from urllib.parse import urlencode

_VOID: Final = frozenset({"meta", "link", "br"})


class Html(str):
    """Markup that goes into a page unescaped. Only `tag`, `join` and constants create it."""

    __slots__ = ()


DASH: Final = Html("&ndash;")
"""The sign for an empty cell."""

Child = Html | str | int | float | None


def join(*children: Child) -> Html:
    """Concatenate parts; `None` adds nothing."""
    return Html(
        "".join(
            child if isinstance(child, Html) else escape(str(child), quote=True)
            for child in children
            if child is not None
        )
    )


def tag(name: str, /, *children: Child, **attributes: str | None) -> Html:
    """One element. The attribute `class_` becomes `class`, other underscores become dashes, and
    attributes that are `None` are omitted.
    """
    attributes_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{attributes_text}>")
    return Html(f"<{name}{attributes_text}>{join(*children)}</{name}>")


def link(text: Child, target: str, **query: str) -> Html:
    """A link to a page of this or another node, built from text with any characters."""
    return tag("a", text, href=f"{target}?{urlencode(query)}" if query else target)
