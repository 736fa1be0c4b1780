"""Names, finds and builds the node image.

The tag contains a hash of the recipe (Dockerfile, packages, wheels), so a changed recipe never uses
an old image. The image does not contain the code of the harness or of a target; `sources` copies
this code into containers.

The build starts from a normal Python image if a registry answers, and otherwise from Debian
packages. The harness downloads the wheels before the build, so a build on Debian packages needs no
network.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import io
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from harness.environments.docker.engine.archives import tar_files
from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.engine.labels import IMAGE_LABEL
from harness.environments.docker.image import debian
from harness.errors import InfrastructureError
from harness.support.cache_dir import cache_folder

PYTHON_VERSION: Final = "3.11"
_REGISTRY_BASE: Final = f"python:{PYTHON_VERSION}-slim-{debian.SUITE}"
_REPOSITORY: Final = "harness-node"
NEWEST: Final = f"{_REPOSITORY}:latest"
"""A second name for the newest node image, for files that cannot contain a hash."""
_NODE_REQUIREMENTS: Final = ("h11", "msgspec")  # the only third-party packages that nodes import
_PULL_TIMEOUT_S: Final = 30
_WHEELS_TIMEOUT_S: Final = 900
_GLIBC: Final = ("manylinux_2_28", "manylinux2014")  # the base image can run wheels with either tag
_RECIPE: Final = Path(__file__).with_name("Dockerfile")


def _requirements() -> list[str]:
    return [f"{name}=={importlib.metadata.version(name)}" for name in _NODE_REQUIREMENTS]


def image_tag() -> str:
    """Return the name of the node image for this version of the harness."""
    recipe = [
        _RECIPE.read_text(encoding="utf-8"),
        PYTHON_VERSION,
        debian.SUITE,
        *debian.PACKAGES,
        *_requirements(),
    ]
    digest = hashlib.blake2b("\0".join(recipe).encode(), digest_size=6).hexdigest()
    return f"{_REPOSITORY}:{importlib.metadata.version('catalog-harness')}-{digest}"


def image_exists() -> bool:
    """Whether the engine has the node image; raises `InfrastructureError` if no engine answers."""
    with Engine.connected() as engine:
        return engine.image_id(image_tag()) is not None


def build_image(progress: Callable[[str], None]) -> str:
    """Build the node image if the engine lacks it; returns the image's tag.

    Raises `InfrastructureError` if the build fails or no engine answers.
    """
    tag = image_tag()
    with Engine.connected() as engine, one_build_at_a_time():
        if engine.image_id(tag) is not None:
            engine.tag(tag, *NEWEST.split(":"))
            progress(f"{tag} already exists")
            return tag
        with tempfile.TemporaryDirectory(prefix="harness-image-") as scratch:
            site = Path(scratch) / "site"
            install_wheels(site, _requirements(), progress)
            context = _context(site)
        base = f"{_REPOSITORY}-base"
        build_somewhere(engine, context, tag, progress, base=base, packages=debian.PACKAGES)
        engine.tag(tag, *NEWEST.split(":"))
    progress(f"built {tag}")
    return tag


def build_somewhere(
    engine: Engine,
    context: bytes | Path,
    tag: str,
    progress: Callable[[str], None],
    *,
    base: str,
    packages: Sequence[str],
) -> None:
    """Build an image on a registry's Python image. If that fails, build it on a Debian image.

    The Debian image is called `base` and contains `packages`. Raises `InfrastructureError` if both
    builds fail.
    """
    try:
        if engine.image_id(_REGISTRY_BASE) is None:
            progress(f"pulling {_REGISTRY_BASE}")
            engine.pull(_REGISTRY_BASE, timeout_s=_PULL_TIMEOUT_S)
        build_on(engine, _REGISTRY_BASE, context, tag, progress)
    except InfrastructureError as error:
        progress(f"no base image from a registry ({str(error)[:200]})")
        with debian.root_file_system(progress, packages).open("rb") as root:
            engine.import_image(root, base, debian.SUITE)
        build_on(engine, f"{base}:{debian.SUITE}", context, tag, progress, online=False)


@contextlib.contextmanager
def one_build_at_a_time() -> Iterator[None]:
    """Hold a lock file, so that two processes do not build the same image at once."""
    with (cache_folder() / "image-build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_on(
    engine: Engine,
    base: str,
    context: bytes | Path,
    tag: str,
    progress: Callable[[str], None],
    *,
    online: bool = True,
) -> None:
    """Build an image on the image `base`. The build has a network only if `online` is true."""
    proxies = ("http_proxy", "https_proxy", "no_proxy") if online else ()
    with io.BytesIO(context) if isinstance(context, bytes) else context.open("rb") as archive:
        engine.build(
            archive,
            tag,
            network="default" if online else "none",
            arguments={"BASE": base} | {n: os.environ[n] for n in proxies if n in os.environ},
            labels={IMAGE_LABEL: tag},
            progress=progress,
        )


def install_wheels(
    site: Path,
    wanted: Sequence[str],
    progress: Callable[[str], None],
    *,
    sources: Sequence[str] = (),
    others: bool = False,
) -> None:
    """Download wheels for the container's Python, and unpack them in the folder `site`.

    `others` adds the dependencies of `wanted`. `sources` are the members of `wanted` without
    published wheels; this machine builds their wheels. Raises `InfrastructureError` if a wheel
    cannot be fetched.
    """
    progress(f"fetching wheels: {', '.join(wanted)}")
    machine = platform.machine()
    made = site.with_name(f"{site.name}-made")
    pip = [sys.executable, "-m", "pip"]
    quietly = ["--quiet", "--disable-pip-version-check"]
    there = ["--target", str(site), "--only-binary=:all:", f"--python-version={PYTHON_VERSION}"]
    there += [] if others else ["--no-deps"]
    by_pip = [
        *([[*pip, "wheel", *quietly, "--no-deps", "-w", str(made), *sources]] if sources else ()),
        [
            *(*pip, "install", *quietly, *there, "--implementation=cp"),
            *(f"--platform={glibc}_{machine}" for glibc in _GLIBC),
            *(("--find-links", str(made)) if sources else ()),
            *wanted,
        ],
    ]
    by_uv = [
        [
            *("uv", "pip", "install", "--quiet", *there),
            *(f"--no-binary={name.partition('==')[0]}" for name in sources),
            *(f"--python-platform={machine}-{_GLIBC[0]}", *wanted),
        ]
    ]
    failures = []
    for commands in (by_pip, by_uv) if shutil.which("uv") else (by_pip,):
        for command in commands:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_WHEELS_TIMEOUT_S
            )
            if done.returncode != 0:
                complaint = done.stderr.strip()[-500:]
                failures.append(f"`{' '.join(command[:4])}`: {complaint}")
                break
        else:
            return
    raise InfrastructureError(
        f"the wheels {', '.join(wanted)} cannot be fetched: {'; '.join(failures)}. The download "
        "needs a package index that answers, and uv or pip here (python -m ensurepip)"
    )


def _context(site: Path) -> bytes:
    """Return the build context, with fixed owners and times so that the engine can cache it."""
    paths = [path for path in site.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    names = {path: f"site/{path.relative_to(site)}" for path in paths}
    executable = frozenset(names[path] for path in paths if path.stat().st_mode & 0o100)
    files = {name: path.read_bytes() for path, name in names.items()}
    return tar_files({"Dockerfile": _RECIPE.read_bytes(), **files}, executable=executable)
