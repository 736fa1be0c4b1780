"""The cache folder of this user, for things that are slow to make or to download."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return `~/.cache/catalog-harness`, and create it if it is missing.

    If `XDG_CACHE_HOME` is set, the folder is in that folder.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "catalog-harness"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
