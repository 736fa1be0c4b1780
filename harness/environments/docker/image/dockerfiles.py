"""Provides the images of nodes. A target may declare an image as a folder with a Dockerfile.

A declared Dockerfile begins with `ARG BASE` and `FROM ${BASE}`. BASE is the harness's node image,
so the build needs no registry. The folder is the build context. The image's tag contains a digest
of BASE and of the folder's content, so a changed folder never uses an old image.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from harness.cluster import NodeSpec
from harness.environments.docker.engine.archives import tar_files
from harness.environments.docker.engine.engine import Engine, EngineUnreachableError
from harness.environments.docker.image.image import build_on, image_tag
from harness.environments.host.placeholders import is_shared, package_folder
from harness.errors import InfrastructureError, StartError, UsageError
from harness.nodes.declaration import context_files
from harness.nodes.deployment import forms_of

_CONTEXT_BYTES_MAX: Final = 256 * 1024 * 1024
_PULL_TIMEOUT_S: Final = 60
_PACKAGE: Final = re.compile(r"\{package:([^{}]+)\}")


def _folder(dockerfile: str) -> Path:
    folder = Path(_PACKAGE.sub(lambda match: str(package_folder(match[1])), dockerfile))
    if is_shared(folder):
        raise UsageError(
            f"the dockerfile {dockerfile!r} of a node names {folder}, which all distributions "
            "share; put the Dockerfile into a package P as package data, and declare "
            "{package:P}/P"
        )
    if not (folder / "Dockerfile").is_file():
        raise UsageError(
            f"the dockerfile {dockerfile!r} of a node must name a folder with a file named "
            f"Dockerfile; {folder} has no such file"
        )
    return folder.resolve()


class _Context(NamedTuple):
    """The build context of an image: files by path, and the paths that are executable."""

    folder: Path
    files: dict[str, bytes]
    executable: frozenset[str]

    @property
    def tag(self) -> str:
        digest = hashlib.blake2b(image_tag().encode(), digest_size=8)
        for name, data in self.files.items():
            digest.update(f"\0{name}\0{name in self.executable}\0{len(data)}\0".encode())
            digest.update(data)
        slug = re.sub(r"[^a-z0-9]+", "-", self.folder.name.lower()).strip("-") or "node"
        return f"harness-built-{slug}:{digest.hexdigest()}"


def _context(dockerfile: str) -> _Context:
    folder = _folder(dockerfile)
    files: dict[str, bytes] = {}
    size = 0
    for name, path in context_files(folder):
        size += path.stat().st_size
        if size > _CONTEXT_BYTES_MAX:
            raise UsageError(
                f"the folder {folder} is the build context of an image and has more than "
                f"{_CONTEXT_BYTES_MAX} bytes; give the Dockerfile a folder of its own"
            )
        files[name] = path.read_bytes()
    executable = frozenset(name for name in files if os.access(folder / name, os.X_OK))
    return _Context(folder, files, executable)


def built_tag(dockerfile: str) -> str:
    """Return the image tag for the folder's current content; raises `UsageError`."""
    return _context(dockerfile).tag


def image_of(spec: NodeSpec) -> str | None:
    """Return the image that a node declares; `None` means the harness's image."""
    return spec.image if spec.dockerfile is None else built_tag(spec.dockerfile)


def provide_images(
    engine: Engine, nodes: Iterable[NodeSpec], progress: Callable[[str], None]
) -> None:
    """Build or pull the images that these nodes need and the engine lacks.

    Raises `UsageError` for an unusable Dockerfile folder. Raises `StartError` with advice if an
    image cannot be built or pulled, and `EngineUnreachableError` if the engine is unreachable.
    """
    forms = [form for spec in nodes for form in forms_of(spec).values()]
    for dockerfile, node in {form.dockerfile: form.name for form in reversed(forms)}.items():
        if dockerfile is not None:
            _build(engine, dockerfile, node, progress)
    for image, node in {form.image: form.name for form in forms}.items():
        if image is None or engine.image_id(image) is not None:
            continue
        progress(f"pulling {image}")
        with _blaming(
            node,
            f"the engine lacks the image {image!r} of node {node!r} and cannot pull it",
            fix="; build or load the image, or declare a `dockerfile`",
        ):
            engine.pull(image, timeout_s=_PULL_TIMEOUT_S)


def _build(engine: Engine, dockerfile: str, node: str, progress: Callable[[str], None]) -> None:
    context = _context(dockerfile)
    tag = context.tag
    if engine.image_id(tag) is not None:
        return
    progress(f"building {tag} of {context.folder}")
    archive = tar_files(context.files, executable=context.executable)
    with _blaming(node, f"the image for the folder {context.folder} cannot be built"):
        build_on(engine, image_tag(), archive, tag, progress)


@contextlib.contextmanager
def _blaming(node: str, what: str, *, fix: str = "") -> Iterator[None]:
    """Turn an error of the engine into a `StartError` about a node's image.

    An unreachable engine is not the image's fault, so that error passes through.
    """
    try:
        yield
    except EngineUnreachableError:
        raise
    except InfrastructureError as error:
        raise StartError(
            f"{what}: {error.what}{fix}",
            node=node,
            part="image",
            log=error.output,
            log_is="its last output" if error.output else "",
        ) from error
