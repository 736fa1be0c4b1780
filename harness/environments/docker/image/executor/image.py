"""The Spark executor image: Java, Python, PySpark, and the code installed on this machine.

Spark executors share no files with the driver, so their image contains all code that they run: the
harness and every other installed package with plug-ins, copied file by file, and the requirements
of these packages. The requirements of the extras `spark` and `report` are included, so that drivers
can use the image too. Requirements are pinned to the versions installed on this machine.

There are two images, since the first takes minutes to build and the second seconds. The base image
has the third-party software, and its tag is a hash of its recipe. The second image adds the code of
the harness and of plug-ins, and its tag is a hash of the base tag and of all these files. An image
whose code differs from the driver's code therefore has a different tag.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

from harness.environments.docker.engine.archives import tar_files
from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.image import debian
from harness.environments.docker.image.image import (
    PYTHON_VERSION,
    build_on,
    build_somewhere,
    install_wheels,
    one_build_at_a_time,
)
from harness.support.distributions import (
    OWN,
    package_files,
    packages_of,
    plugin_distributions,
    texts_of,
)

PACKAGES: Final = ("ca-certificates", "openjdk-17-jre-headless", "python3", "tini")
# the harness's extras whose requirements are in the image
EXTRAS: Final = frozenset({"spark", "report"})
SOURCES: Final = ("pyspark",)  # requirements without published wheels
_REPOSITORY: Final = "harness-executor"
NEWEST_EXECUTOR: Final = f"{_REPOSITORY}:latest"
"""A second name for the newest executor image."""
_HERE: Final = Path(__file__).parent
_FILES: Final = ("Dockerfile", "entrypoint.sh")
_ABOVE: Final = "ARG BASE\nFROM ${BASE}\nCOPY app /opt/harness/app\n"
_REQUIREMENT: Final = re.compile(r"([\w.-]+)\s*(\[[^]]*\])?([^;]*)(?:;(.*))?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([\w-]+)["']""")


def _requirements(distributions: list[Distribution]) -> Iterator[str]:
    names = {_normal(distribution.name) for distribution in distributions}
    for distribution in distributions:
        wanted = EXTRAS if distribution.name == OWN else frozenset()
        for line in distribution.requires or ():
            match = _REQUIREMENT.fullmatch(line.strip())
            assert match is not None, line
            name, extras, versions, marker = match.groups(default="")
            extra = _EXTRA.search(marker)
            if _normal(name) in names or (extra is not None and extra[1] not in wanted):
                continue
            try:
                versions = f"=={importlib.metadata.version(name)}"
            except importlib.metadata.PackageNotFoundError:
                if marker and extra is None:
                    continue  # pip skipped it: its marker excludes this platform
            yield f"{name}{extras}{versions.strip()}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _base_tag(wanted: list[str]) -> str:
    recipe = [(_HERE / name).read_text(encoding="utf-8") for name in _FILES]
    recipe += [PYTHON_VERSION, debian.SUITE, *PACKAGES, *wanted]
    return f"{_REPOSITORY}-base:{_digest(chr(0).join(recipe).encode())}"


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=6).hexdigest()


def _above(distributions: list[Distribution]) -> bytes:
    files: dict[str, bytes] = {}
    for distribution in distributions:
        files |= {name: text.encode() for name, text in texts_of(distribution)}
        for package in packages_of(distribution):
            files |= {name: path.read_bytes() for name, path in package_files(package)}
    inside = {f"app/{name}": content for name, content in files.items()}
    return tar_files({"Dockerfile": _ABOVE.encode(), **inside})


def _own_tag(base: str, above: bytes) -> str:
    version = importlib.metadata.version(OWN)
    return f"{_REPOSITORY}:{version}-{_digest(base.encode() + above)}"


def executor_tag() -> str:
    """Return the name of the executor image for the packages that are installed on this machine."""
    distributions = plugin_distributions()
    wanted = sorted(set(_requirements(distributions)))
    return _own_tag(_base_tag(wanted), _above(distributions))


def build_executor(progress: Callable[[str], None]) -> str:
    """Build the executor image if the engine lacks it; returns the image's tag.

    Raises `InfrastructureError` if the build fails or no engine answers.
    """
    distributions = plugin_distributions()
    wanted = sorted(set(_requirements(distributions)))
    base, above = _base_tag(wanted), _above(distributions)
    tag = _own_tag(base, above)
    with Engine.connected() as engine, one_build_at_a_time():
        if engine.image_id(tag) is None:
            if engine.image_id(base) is None:
                _build_base(engine, base, wanted, progress)
            build_on(engine, base, above, tag, progress, online=False)
            progress(f"built {tag}")
        else:
            progress(f"{tag} already exists")
        engine.tag(tag, *NEWEST_EXECUTOR.split(":"))
    return tag


def _build_base(
    engine: Engine, tag: str, wanted: list[str], progress: Callable[[str], None]
) -> None:
    with tempfile.TemporaryDirectory(prefix="harness-image-") as scratch:
        site, archive = Path(scratch) / "site", Path(scratch) / "context.tar"
        sources = [
            requirement
            for requirement in wanted
            if re.split(r"[\[=<>~! ]", requirement)[0] in SOURCES
        ]
        plain = [re.sub(r"\[.*\]", "", requirement) for requirement in sources]
        install_wheels(site, wanted, progress, sources=plain, others=True)
        with tarfile.open(archive, "w") as tar:
            for name in _FILES:
                tar.add(_HERE / name, name, filter=_anonymous)
            tar.add(site, "site", filter=_anonymous)
        build_somewhere(
            engine, archive, tag, progress, base=f"{_REPOSITORY}-debian", packages=PACKAGES
        )


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Clear a file's owner and time, which the engine's build cache compares; skip bytecode."""
    if "__pycache__" in info.name:
        return None
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info
