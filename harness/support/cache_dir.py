"""The folder of things that are slow to make or to fetch, for later runs of this user."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`~/.cache/catalog-harness`, or under `XDG_CACHE_HOME`; created where missing."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "catalog-harness"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
