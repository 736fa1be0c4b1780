"""Docker images that add one Debian package to the harness's own node image."""

from __future__ import annotations

from pathlib import Path  # determinism: no node runs this module
from typing import Final

from harness.support.cache_dir import cache_folder

__all__ = ["folder_with"]

_DOCKERFILE: Final = """\
ARG BASE
FROM ${{BASE}}
USER root
RUN apt-get update \\
    && apt-get install --yes --no-install-recommends {package} \\
    && rm -rf /var/lib/apt/lists/*
USER 65532:65532
"""


def folder_with(package: str) -> Path:
    """Return a folder with a Dockerfile that installs a Debian package."""
    folder = cache_folder() / "packages" / package
    folder.mkdir(parents=True, exist_ok=True)
    file, text = folder / "Dockerfile", _DOCKERFILE.format(package=package)
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
    return folder
