"""Functions that build HTML: tables, facts, badges and notes. All text is escaped.

Any value that is not an `Html` counts as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final
from urllib.parse import urlencode

_VOID: Final = frozenset({"meta", "link", "br"})


class Html(str):
    """Markup that goes into a page unchanged. Only `tag`, `join` and constants create it."""

    __slots__ = ()


DASH: Final = Html("&ndash;")

Child = Html | str | int | float | None


def join(*children: Child) -> Html:
    """Concatenate parts of HTML; text is escaped, and `None` adds nothing."""
    return Html(
        "".join(
            child if isinstance(child, Html) else escape(str(child), quote=True)
            for child in children
            if child is not None
        )
    )


def tag(name: str, /, *children: Child, **attributes: str | None) -> Html:
    """Build one HTML element.

    The attribute `class_` becomes `class`, other underscores become dashes, and attributes that are
    `None` are omitted.
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
    """Build a link to a page of this or another node; `text` and `query` are escaped."""
    return tag("a", text, href=f"{target}?{urlencode(query)}" if query else target)


_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RUNNING", "READY", "ALIVE", "VOTER", "HEALTHY"), "good"),
    **dict.fromkeys(("LEADER",), "lead"),
    **dict.fromkeys(
        ("PREPARING", "CREATING", "ALTERING", "BOOTSTRAPPING", "COPYING", "CANDIDATE", "STARTING"),
        "wait",
    ),
    **dict.fromkeys(("FAILED", "FAILED_UNRECOVERABLE", "SILENT"), "bad"),
}
"""Kinds of badges by state. States that are not listed are normal or final, with grey badges."""


def badge(text: str, kind: str = "") -> Html:
    """Build a badge: a word in the colour of its kind (`good`, `wait`, `bad`, `lead` or grey)."""
    return tag("span", text, class_=f"badge {kind}".rstrip())


def state_badge(state: str) -> Html:
    """Return a badge with a state or a role, in the colour of that state."""
    return badge(state, _KINDS.get(state, ""))


def code(text: Child, title: str | None = None) -> Html:
    """Return an id or an address, in a monospaced font."""
    return tag("code", text, title=title)


def moment(time_ns: int) -> Html:
    """Return a wall-clock time in UTC, or a dash if `time_ns` is 0."""
    if time_ns <= 0:
        return tag("span", DASH, class_="muted")
    at = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return tag("time", f"{at:%Y-%m-%d %H:%M:%S} UTC", datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}")


def note(text: Child, kind: str = "") -> Html:
    """Return a note above the page's content, red if `kind` is `warning`."""
    role = "alert" if kind else None
    return tag("p", text, class_=f"note {kind}".rstrip(), role=role)


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Return a list of names and values."""
    rows = (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs)
    return tag("dl", *rows, class_="facts")


def cards(entries: Iterable[tuple[str, Child, str]]) -> Html:
    """Key numbers, each with its label and a link to a page."""
    cells = (
        tag("a", tag("span", value, class_="number"), tag("span", name), class_="card", href=target)
        for name, value, target in entries
    )
    return tag("div", *cells, class_="cards")


def table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[Child]],
    *,
    empty: str,
    data: Mapping[str, Any] | None = None,
) -> Html:
    """Build a table under its title. A column whose name begins with '#' contains numbers.

    `data` is the result of `cut`, which has the total and the number of entries shown.
    """
    kinds = ["n" if name.startswith("#") else None for name in columns]
    head = (
        tag("th", name.lstrip("#"), class_=kind, scope="col")
        for name, kind in zip(columns, kinds, strict=True)
    )
    body = [
        tag("tr", *(tag("td", c, class_=k) for c, k in zip(row, kinds, strict=True)))
        for row in rows
    ]
    number = len(body) if data is None else data["total"]
    heading = title and tag("h2", title, " ", tag("span", number, class_="count"))
    if not body:
        return join(heading, tag("p", empty, class_="empty"))
    remark = None
    if data is not None and data["shown"] < data["total"]:
        remark = note(f"The first {data['shown']} of {data['total']} are shown.", "cut")
    grid = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))
    return join(heading, remark, tag("div", grid, class_="scroll"))


def node(entry: Mapping[str, Any]) -> Html:
    """Build a node's name from its `address`, linked to its `page`; hovering shows its uuid."""
    name = str(entry["address"]).rpartition(":")[0] or str(entry["uuid"])[:8]
    label = tag("span", name, title=str(entry["uuid"]))
    return link(label, entry["page"]) if entry.get("page") else label
