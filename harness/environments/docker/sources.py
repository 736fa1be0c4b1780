"""The code that nodes need, as one archive to copy into containers, and the placeholders it fills.

Copied when a container is created, our own packages and a third party's alike: an image never goes
stale, nothing of the host is mounted, and it works with a remote engine. An entry brings the
top-level package it lives in; what that package imports from other distributions must be in the
node's image or be declared with `{package:P}`.

Compiled files go along where the driver runs the same Python as the image: six nodes compiling the
same modules at once would be a good part of the time a cluster takes to come up.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.cluster import NodeSpec
from harness.deployment import forms_of, words_of
from harness.environments.docker.image import PYTHON_VERSION
from harness.environments.real.placeholders import fill_in, find_module, placeholders
from harness.errors import UsageError

__all__ = ["APP_FOLDER", "DATA_FOLDER", "FILES_FOLDER", "archive_of", "fill", "packages_of"]

APP_FOLDER: Final = "/harness/app"
DATA_FOLDER: Final = "/data"
FILES_FOLDER: Final = "/harness/files"
_ARCHIVE_BYTES_MAX: Final = 64 * 1024 * 1024
_CACHE_SUFFIX: Final = f".cpython-{PYTHON_VERSION.replace('.', '')}.pyc"


def _locate(package: str) -> list[tuple[str, Path]]:
    """Where a top-level package or module lies: name in the archive, and path."""
    spec = find_module(package)
    if spec is not None and spec.submodule_search_locations:
        return [(package, Path(folder)) for folder in spec.submodule_search_locations]
    if spec is not None and spec.has_location and spec.origin is not None:
        return [(Path(spec.origin).name, Path(spec.origin))]
    raise UsageError(
        f"the package {package!r} of a node's entry or command cannot be imported here; install "
        "the distribution that brings it into the harness's environment"
    )


def packages_of(specs: Iterable[NodeSpec]) -> list[str]:
    """The top-level packages that these nodes need, sorted."""
    needed = set()
    for spec in specs:
        for form in forms_of(spec).values():
            if form.entry is not None:
                needed |= {"harness", form.entry.partition(":")[0].partition(".")[0]}
        for match in placeholders(words_of(spec)):
            if match[1] == "package" and match[2]:
                needed.add(match[2].partition(".")[0])
    return sorted(needed)


def _files(root: Path) -> Iterator[Path]:
    """The files of a package that a node can use; sorted, so that archives are reproducible."""
    same_python = sys.implementation.cache_tag == _CACHE_SUFFIX.split(".")[1]
    for path in sorted(root.rglob("*")):
        if "__pycache__" in path.parts:
            if same_python and path.name.endswith(_CACHE_SUFFIX):
                yield path
        elif path.is_file():
            yield path


def archive_of(packages: Iterable[str]) -> bytes:
    """A tar archive of these packages, to be unpacked at `/`.

    Raises `UsageError` when a package is missing or they are too large together.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for package in packages:
            for name, root in _locate(package):
                for path in _files(root) if root.is_dir() else [root]:
                    inside = f"{name}/{path.relative_to(root)}" if root.is_dir() else name
                    _add(tar, f"{APP_FOLDER[1:]}/{inside}", path)
                    if buffer.tell() > _ARCHIVE_BYTES_MAX:
                        raise UsageError(
                            f"the package {package!r} makes the code of the nodes larger than "
                            f"{_ARCHIVE_BYTES_MAX} bytes; keep data out of it, or give the nodes "
                            "an image that has it"
                        )
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    try:
        data = path.read_bytes()
        status = path.stat()
    except FileNotFoundError:
        return  # a cache file that its interpreter is just replacing
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    info.mtime = int(status.st_mtime)  # compiled files are matched with their source by it
    tar.addfile(info, io.BytesIO(data))


def fill(word: str, spec: NodeSpec, ports_of: Mapping[str, tuple[int, ...]]) -> str:
    """Replace the placeholders of one word; raises `UsageError` for one that cannot be.

    In a container the declared ports are the real ones, and peers have their node's name.
    """
    peers = [f"{node}:{port}" for node, ports in ports_of.items() for port in ports]
    values = {"host": "0.0.0.0", "data": DATA_FOLDER, "files": FILES_FOLDER}  # noqa: S104 - its own
    values |= {f"host:{node}": node for node in ports_of}
    values |= {f"port:{port}": str(port) for port in ports_of[spec.name]}
    values |= {f"{kind}:{peer}": peer for kind in ("peer", "address") for peer in peers}
    return fill_in(
        word, spec, values, lambda package: "/".join([APP_FOLDER, *package.split(".")[:-1]])
    )
