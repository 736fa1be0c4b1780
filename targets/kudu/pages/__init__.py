"""Pages of masters and tablet servers, for people and for Prometheus.

Each page is two pure functions: one makes its data, which is its JSON, from a dump of the node; one
makes HTML of the data (`views`). `Site` picks the page and the form. Ports are Kudu's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["LIST_MAX", "MASTER_PAGES_PORT", "TSERVER_PAGES_PORT", "Dump", "PageOf", "cut", "iso"]

MASTER_PAGES_PORT: Final = 8051
TSERVER_PAGES_PORT: Final = 8050
LIST_MAX: Final = 1000
"""Entries of one list on a page; a longer one is cut, and says so."""

Dump = Mapping[str, Any]
"""What a node says of itself, as plain JSON."""
PageOf = Callable[[str, int], str]
"""Where a browser finds a node's pages: by the address of its RPCs and the port of its pages."""


def cut(name: str, entries: list[Any]) -> dict[str, Any]:
    """A list as part of a page's data, with how many there are and how many of them are here."""
    listed = entries[:LIST_MAX]
    return {"total": len(entries), "shown": len(listed), name: listed}


def iso(time_ns: int) -> str | None:
    """A time of a wall clock as RFC 3339 has it; `None` for none."""
    if time_ns <= 0:
        return None
    return f"{datetime.fromtimestamp(time_ns // 1_000_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
