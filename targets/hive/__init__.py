"""The bundled Hive Metastore: stateless metastores over one database, written against `Env`.

`HiveTarget`, the target plug-in, is loaded on first access. Node processes import this package too,
but they do not need the plug-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from targets.hive.target import HiveTarget

__all__ = ["HiveTarget"]


def __getattr__(name: str) -> Any:
    if name == "HiveTarget":
        from targets.hive.target import HiveTarget

        return HiveTarget
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
