"""Real Kudu: the masters and tablet servers that Apache releases, driven by their own RPCs.

`ApacheKuduTarget` is loaded on first access, so that fetching the programs does not import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from targets.apache_kudu.target import ApacheKuduTarget

__all__ = ["ApacheKuduTarget"]


def __getattr__(name: str) -> Any:
    if name == "ApacheKuduTarget":
        from targets.apache_kudu.target import ApacheKuduTarget

        return ApacheKuduTarget
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
