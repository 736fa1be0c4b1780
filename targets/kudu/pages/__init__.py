"""Web pages of masters and tablet servers, for people and for Prometheus.

Each page has two pure functions. One builds the page's data from a dump of the node; the data are
also the page's JSON. The other renders the data as HTML (`master_views`, `tserver_views`). `Site`
selects the page and the format. Ports are Kudu's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["LIST_MAX", "MASTER_PAGES_PORT", "TSERVER_PAGES_PORT", "Dump", "PageOf", "cut", "iso"]

MASTER_PAGES_PORT: Final = 8051
TSERVER_PAGES_PORT: Final = 8050
LIST_MAX: Final = 1000
"""Maximum number of list entries on a page. The page says if it shows only a part."""

Dump = Mapping[str, Any]
PageOf = Callable[[str, int], str]
"""A function that returns the browser address of a node's pages.

Its arguments are the node's RPC address and page port.
"""


def cut(name: str, entries: list[Any]) -> dict[str, Any]:
    """Return at most `LIST_MAX` entries for a page, with the number shown and the total."""
    listed = entries[:LIST_MAX]
    return {"total": len(entries), "shown": len(listed), name: listed}


def iso(time_ns: int) -> str | None:
    """Return a wall-clock time in the format of RFC 3339; `None` if the time is 0."""
    if time_ns <= 0:
        return None
    return f"{datetime.fromtimestamp(time_ns // 1_000_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
