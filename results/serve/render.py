"""Renders the templates of `harness serve`, and makes the links in them."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec

from results.report import number_words as numbers
from results.report.templates import templates

if TYPE_CHECKING:
    import jinja2
    import markupsafe

STATIC: Final = {
    "serve.css": "text/css; charset=utf-8",
    "serve.js": "text/javascript; charset=utf-8",
}
_PACKAGE: Final = "results.serve"
_OP: Final = re.compile(r"\bop ([0-9]{1,9})\b")


class Page(msgspec.Struct, frozen=True):
    """A page: its template, the values for the template, and its content as data for the API."""

    template: str
    context: dict[str, Any]
    data: Any


@functools.cache
def ensure_templates() -> jinja2.Environment:
    """Return the pages' templates; raise `UsageError` with advice if Jinja2 is not installed."""
    environment = templates((_PACKAGE, "templates"), ("results.report", ""))
    environment.filters |= {"with_ops": _with_ops, "p_value": numbers.p_value}
    environment.globals.update(address=address, urlencode=urlencode)
    return environment


def render(template: str, /, **context: Any) -> bytes:
    """Render a template to bytes; escape characters that UTF-8 cannot encode (lone surrogates)."""
    text = ensure_templates().get_template(template).render(**context)
    return text.encode("utf-8", "backslashreplace")


@functools.cache
def static_file(name: str) -> tuple[bytes, str] | None:
    """Return content and type of a file in the folder `static`; `None` for an unknown name."""
    if name not in STATIC:
        return None
    return (resources.files(_PACKAGE) / "static" / name).read_bytes(), STATIC[name]


def address(*parts: str) -> str:
    """Make a path on this server. Each part is percent-encoded as a whole."""
    return "/" + "/".join(quote(part, safe="", errors="backslashreplace") for part in parts)


def _with_ops(text: str) -> markupsafe.Markup:
    """Escape `text`, and link each `op 12` in it to this operation on the run's page."""
    import markupsafe

    link = markupsafe.Markup('<a href="report.html#op={0}">op {0}</a>')
    parts = _OP.split(text)
    return markupsafe.Markup("").join(
        link.format(part) if place % 2 else part for place, part in enumerate(parts)
    )
