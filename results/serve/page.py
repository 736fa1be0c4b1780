"""A page: a template, its content, and the same as plain data for the API."""

from __future__ import annotations

from typing import Any

import msgspec


class Page(msgspec.Struct, frozen=True):
    """A template, what it shows, and the same as data."""

    template: str
    context: dict[str, Any]
    data: Any
