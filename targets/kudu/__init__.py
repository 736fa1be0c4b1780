"""The bundled target: a re-creation of Apache Kudu's masters and tablet servers.

`KuduTarget`, the target plug-in, is loaded on first access. Node processes import this package too,
but they do not need the plug-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from targets.kudu.target import KuduTarget

__all__ = ["KuduTarget"]


def __getattr__(name: str) -> Any:
    if name == "KuduTarget":
        from targets.kudu.target import KuduTarget

        return KuduTarget
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
