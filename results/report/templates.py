"""Loads Jinja2 templates that escape all text. An undefined name in a template is an error."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from harness.errors import UsageError
from results.report import number_words as numbers

if TYPE_CHECKING:
    import jinja2


@functools.cache
def templates(*places: tuple[str, str]) -> jinja2.Environment:
    """Load templates from (package, folder) pairs; raise `UsageError` if Jinja2 is missing."""
    try:
        import jinja2
    except ImportError as error:
        raise UsageError(
            "pages need Jinja2, which is not installed: pip install 'catalog-harness[report]'"
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(*place) for place in places]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "count": numbers.count,
        "duration": numbers.duration,
        "ms": numbers.milliseconds,
        "seconds": numbers.seconds,
        "share": numbers.share,
        "size": numbers.size,
    }
    return environment
