"""Finds the packages to send to remote executors: the harness, and every package with plug-ins.

For each distribution, an executor on a cluster needs exactly these files: its packages, and the
metadata that the registry of plug-ins reads.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import zipfile
import zipimport
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

from harness.errors import UsageError

OWN: Final = "catalog-harness"
PACKAGES_ZIP: Final = "harness-packages.zip"
"""The archive in which packages are sent to executors that lack them."""
_GROUP: Final = "harness."
_METADATA: Final = ("METADATA", "entry_points.txt", "top_level.txt")
_COMPILED: Final = frozenset({".pyc", ".pyo"})


def plugin_distributions() -> list[Distribution]:
    """Return every distribution with plug-ins, including the harness itself, sorted by name."""
    by_name: dict[str, Distribution] = {}
    for group in importlib.metadata.entry_points().groups:
        for point in importlib.metadata.entry_points(group=group):
            if group.startswith(_GROUP) and point.dist is not None:
                by_name.setdefault(point.dist.name, point.dist)
    return [by_name[name] for name in sorted(by_name)]


def packages_of(distribution: Distribution) -> list[str]:
    """Return the top-level packages and modules of a distribution and of its plug-ins."""
    named = (distribution.read_text("top_level.txt") or "").split()
    points = distribution.entry_points
    ours = {point.module.split(".")[0] for point in points if point.group.startswith(_GROUP)}
    return sorted({*named, *ours})


def package_files(package: str) -> list[tuple[str, Path | zipfile.Path]]:
    """Return (`PACKAGE/...`, path) of each file of a package or module, except compiled files.

    Raises `UsageError` if the package is missing.
    """
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise UsageError(f"the package {package!r} of a plug-in is missing; install it again")
    loader: object = spec.loader
    if isinstance(loader, zipimport.zipimporter):  # a zip file, as on Spark's executors
        archive = zipfile.Path(loader.archive)
        return sorted(
            (name, archive / name)
            for name in archive.root.namelist()
            if name == f"{package}.py" or name.startswith(f"{package}/")
        )
    if spec.submodule_search_locations is None:
        return [(Path(spec.origin).name, Path(spec.origin))] if spec.origin is not None else []
    return sorted(
        (f"{package}/{path.relative_to(root).as_posix()}", path)
        for root in map(Path, spec.submodule_search_locations)
        for path in _files(root)
    )


def texts_of(distribution: Distribution) -> Iterator[tuple[str, str]]:
    """Yield the metadata files that the registry reads, as (`NAME-VERSION.dist-info/...`, text)."""
    about = f"{distribution.name.replace('-', '_')}-{distribution.version}.dist-info"
    for name in _METADATA:
        text = distribution.read_text(name)
        if text is not None:
            yield f"{about}/{name}", text


def _files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        compiled = "__pycache__" in path.parts or path.suffix in _COMPILED
        if not compiled and not path.name.startswith(".") and path.is_file():
            yield path
