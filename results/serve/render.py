"""Templates: Jinja2 with everything escaped, and numbers as people read them."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from harness.errors import UsageError

if TYPE_CHECKING:
    import jinja2
    import markupsafe

__all__ = ["address", "ensure_templates", "render", "static_file"]

STATIC: Final = {
    "serve.css": "text/css; charset=utf-8",
    "serve.js": "text/javascript; charset=utf-8",
}
_PACKAGE: Final = "results.serve"
_OP: Final = re.compile(r"\bop ([0-9]{1,9})\b")


def ensure_templates() -> None:
    """Raise `UsageError` with the fix where Jinja2 is not installed."""
    try:
        import jinja2  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise UsageError(
            "harness serve needs Jinja2: pip install 'catalog-harness[report]'"
        ) from error


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_PACKAGE, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        count=_count, number=_number, seconds=_seconds, ms=_ms, size=_size, percent=_percent,
        with_ops=_with_ops,
    )  # fmt: skip
    environment.globals.update(address=address, urlencode=urlencode)
    return environment


def render(template: str, /, **context: Any) -> bytes:
    """A page; what cannot be encoded (half a surrogate pair from somebody's file) is replaced."""
    text = _environment().get_template(template).render(**context)
    return text.encode("utf-8", "backslashreplace")


@functools.cache
def static_file(name: str) -> tuple[bytes, str] | None:
    """The content of one of our own files, and its type."""
    if name not in STATIC:
        return None
    return (resources.files(_PACKAGE) / "static" / name).read_bytes(), STATIC[name]


def address(*parts: str) -> str:
    """A path of our own from its parts, each quoted as a whole."""
    return "/" + "/".join(quote(part, safe="", errors="backslashreplace") for part in parts)


def _count(value: int | None) -> str:
    return "" if value is None else _grouped(f"{value:,}")


def _grouped(number: str) -> str:
    """Thousands apart by a thin space, in every number of these pages alike."""
    return number.replace(",", "\u202f")


def _number(value: float | None) -> str:
    return (
        "" if value is None else f"{value:.3g}" if abs(value) < 1000 else _grouped(f"{value:,.0f}")
    )


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 3600:
        return f"{value / 3600:.1f} h"
    if value >= 100:
        return f"{value / 60:.1f} min"
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def _ms(value_ns: float | None) -> str:
    if value_ns is None:
        return ""
    return _grouped(f"{value_ns / 1e6:,.1f}" if value_ns < 1e9 else f"{value_ns / 1e6:,.0f}")


def _with_ops(text: str) -> markupsafe.Markup:
    """The text, escaped, in which each `op 12` leads to that operation on the page of the run."""
    import markupsafe

    link = markupsafe.Markup('<a href="report.html#op={0}">op {0}</a>')
    parts = _OP.split(text)  # texts and numbers in turn
    return markupsafe.Markup("").join(
        link.format(part) if place % 2 else part for place, part in enumerate(parts)
    )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.3g} %"


def _size(value: int) -> str:
    if value < 1024:
        return f"{value} B"
    for power, unit in ((1, "kB"), (2, "MB"), (3, "GB")):
        if value < 1024 ** (power + 1) or unit == "GB":
            return f"{value / 1024**power:.1f} {unit}"
    return ""
