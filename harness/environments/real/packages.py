"""Where the packages that declarations name lie on this machine: `{package:P}`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from harness.errors import UsageError

__all__ = ["package_folder"]


def package_folder(package: str) -> Path:
    """The folder that holds `package`, found without running any of its code.

    Raises `UsageError` where there is none of that name.
    """
    top, *inner = package.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.submodule_search_locations:
        found = Path(next(iter(spec.submodule_search_locations)))
        return found.joinpath(*inner[:-1]) if inner else found.parent
    if spec is not None and spec.has_location and spec.origin is not None:
        return Path(spec.origin).parent
    raise UsageError(
        f"{{package:{package}}}: no package or module {top!r} is installed here; install the "
        "distribution that brings it into the harness's environment"
    )
