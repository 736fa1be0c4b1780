"""Pages that masters and tablet servers have alike: flags and health."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from targets.kudu.flags import RANGES, Flags
from targets.kudu.pages.html import DASH, Html, join, tag
from targets.kudu.pages.parts import badge, code, table
from targets.kudu.pages.site import Page, Plain


def flags_page(flags: Flags) -> Page:
    """Every flag with its default and range; those that differ come first."""
    usual = msgspec.to_builtins(Flags())
    rows = [
        {
            "name": name,
            "value": value,
            "default": usual[name],
            "is_default": value == usual[name],
            "range": list(RANGES[name]) if name in RANGES else None,
        }
        for name, value in msgspec.to_builtins(flags).items()
    ]
    rows.sort(key=lambda row: (row["is_default"], row["name"]))
    shown = (
        (
            code(row["name"]),
            tag("strong", _flag(row["value"])) if not row["is_default"] else _flag(row["value"]),
            _flag(row["default"]),
            None if row["range"] is None else f"{row['range'][0]} to {row['range'][1]}",
            badge("default") if row["is_default"] else badge("changed", "wait"),
        )
        for row in rows
    )
    body = table(None, ["Flag", "#Value", "#Default", "#Range", ""], shown, empty="none")
    return Page({"flags": rows}, body)


def _flag(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def health_page(data: Mapping[str, Any]) -> Plain:
    """`OK` and 200, or what is amiss and 503, for programs that look whether a node serves."""
    is_ok = data["status"] == "ok"
    status = HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Plain(data, "OK\n" if is_ok else f"{data['status']}\n", status=status)


def partition_text(start: str, end: str) -> Html:
    """A tablet's share of the encoded partition keys, `[start, end)` in hexadecimal."""
    if not start and not end:
        return tag("span", "all rows", class_="muted")
    return join(
        code(f"0x{start}" if start else "first"),
        " ",
        DASH,
        " ",
        code(f"0x{end}" if end else "last"),
    )


def columns_table(columns: list[Mapping[str, Any]]) -> Html:
    """A schema, keys first."""
    typed = any("type" in column for column in columns)  # tablet servers dump ids and names only
    rows = (
        (
            column["name"],
            *([join(str(column["type"]).lower(), _key(column))] if typed else []),
            str(column["id"]),
        )
        for column in columns
    )
    names = ["Name", "Type", "Id"] if typed else ["Name", "Id"]
    return table("Columns", names, rows, empty="It has no columns.")


def _key(column: Mapping[str, Any]) -> Html | None:
    return join(" ", badge("key", "lead")) if column.get("is_key") else None
