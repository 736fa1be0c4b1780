"""Real Hive Metastores, as Apache releases them, over a real PostgreSQL.

`ApacheHiveTarget` is loaded on first access, so that fetching its artefacts does not import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from targets.apache_hive.target import ApacheHiveTarget

__all__ = ["ApacheHiveTarget"]


def __getattr__(name: str) -> Any:
    if name == "ApacheHiveTarget":
        from targets.apache_hive.target import ApacheHiveTarget

        return ApacheHiveTarget
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
