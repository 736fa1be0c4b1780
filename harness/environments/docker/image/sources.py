"""Packs the code that nodes need into one archive, and fills placeholders for containers.

The harness copies the archive into each container that it creates. So images need no rebuild after
a code change, no host folder is mounted, and remote engines work. The archive contains the harness
and the top-level packages of the nodes' entries. Modules of other distributions must be in the
node's image, or be declared with `{package:P}`; `host.placeholders` selects the files of such a
package.

If the driver runs the same Python as the image, the archive includes compiled files. Without them,
all nodes would compile the same modules at once, which takes much of a cluster's start-up time.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.cluster import NodeSpec
from harness.environments.docker.image.image import PYTHON_VERSION
from harness.environments.host.placeholders import (
    brought_by,
    files_of,
    fill_in,
    located,
    packages_named,
)
from harness.errors import UsageError
from harness.nodes.deployment import forms_of, words_of

APP_FOLDER: Final = "/harness/app"
DATA_FOLDER: Final = "/data"
FILES_FOLDER: Final = "/harness/files"
_ARCHIVE_BYTES_MAX: Final = 64 * 1024 * 1024
_CACHE_SUFFIX: Final = f".cpython-{PYTHON_VERSION.replace('.', '')}.pyc"


def code_of(specs: Sequence[NodeSpec]) -> dict[str, Path]:
    """Map each path in `APP_FOLDER` to the code file for it, for all nodes in `specs`; sorted by
    path.

    Raises `UsageError` for a missing file, and for two different files with the same path.
    """
    forms = [form for spec in specs for form in forms_of(spec).values()]
    entries = {form.entry.partition(":")[0].partition(".")[0] for form in forms if form.entry}
    words = [word for spec in specs for word in words_of(spec)]
    brought = [package_files(package) for package in sorted(entries and {"harness", *entries})]
    brought += [brought_by(path) for path in packages_named(words)]
    merged: dict[str, Path] = {}
    for files in brought:
        for name, path in files.items():
            there = merged.setdefault(name, path)
            if there != path and there.read_bytes() != path.read_bytes():
                raise UsageError(
                    f"the packages that nodes name include {there} and {path}, and both files "
                    f"would be {name} in a container; put one of the two files into a package"
                )
    return dict(sorted(merged.items()))


def package_files(package: str) -> dict[str, Path]:
    """Map each path in `APP_FOLDER` to a file of this top-level package or module."""
    files: dict[str, Path] = {}
    for place in located(package):
        files |= files_of(place.parent, [place])
    return files


def _is_usable(name: str) -> bool:
    """Whether a node can use this file. Bytecode works only with the same Python version."""
    if "__pycache__" not in name.split("/"):
        return True
    same_python = sys.implementation.cache_tag == _CACHE_SUFFIX.split(".")[1]
    return same_python and name.endswith(_CACHE_SUFFIX)


def archive_of(files: Mapping[str, Path]) -> bytes:
    """Return a tar archive of `files`, which maps paths in `APP_FOLDER` to files.

    Raises `UsageError` if the archive is too large.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in files.items():
            if _is_usable(name):
                _add(tar, f"{APP_FOLDER[1:]}/{name}", path)
            if buffer.tell() > _ARCHIVE_BYTES_MAX:
                raise UsageError(
                    f"with {path} the code of the nodes is larger than {_ARCHIVE_BYTES_MAX} "
                    "bytes; keep data out of the packages that nodes name, or give the nodes an "
                    "image that has these packages"
                )
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    try:
        data = path.read_bytes()
        status = path.stat()
    except FileNotFoundError:
        return  # an interpreter is just replacing this bytecode file
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o755 if status.st_mode & 0o100 else 0o644
    info.mtime = int(status.st_mtime)  # Python ignores bytecode if its source has another mtime
    tar.addfile(info, io.BytesIO(data))


def data_folder_of(spec: NodeSpec) -> str:
    """Return the folder in the node's container at which its data volume is mounted."""
    inside = spec.container
    return DATA_FOLDER if inside is None or inside.data is None else inside.data


def fill(word: str, spec: NodeSpec, ports_of: Mapping[str, tuple[int, ...]]) -> str:
    """Fill the placeholders in one word; raises `UsageError` for an unknown one.

    A node listens on its declared ports, and reaches a peer by the peer's node name. Words from a
    Compose file have no placeholders.
    """
    if spec.container is not None:
        return word
    peers = [f"{node}:{port}" for node, ports in ports_of.items() for port in ports]
    values = {"host": "0.0.0.0", "data": DATA_FOLDER, "files": FILES_FOLDER}  # noqa: S104 - its own
    values |= {f"host:{node}": node for node in ports_of}
    values |= {f"port:{port}": str(port) for port in ports_of[spec.name]}
    values |= {f"{kind}:{peer}": peer for kind in ("peer", "address") for peer in peers}
    return fill_in(
        word, spec, values, lambda package: "/".join([APP_FOLDER, *package.split(".")[:-1]])
    )
