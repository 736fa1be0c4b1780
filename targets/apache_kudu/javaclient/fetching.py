"""`harness fetch kudu-client`: downloads Kudu's Java client, and compiles a program around it.

The program, `JavaClient.java`, is in the client's own Java package, because the traces of the
client's RPCs are private to that package. It is compiled against exactly the files of
`artefacts.lock`. The compilation fails for a client whose private parts differ. All failures raise
`UsageError`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os  # determinism: no node runs this module
from collections.abc import Callable, Iterator
from pathlib import Path  # determinism: no node runs this module
from typing import Final

from harness.errors import InfrastructureError, UsageError
from harness.support.java import check_java, compile_java, java_compiler, java_program
from targets.apache_kudu.fetching import download
from targets.artefacts import CacheFolder, lock_of

_LOCK: Final = Path(__file__).parent / "artefacts.lock"
_SOURCE: Final = Path(__file__).parent / "JavaClient.java"
_WHO: Final = "Kudu's Java client"
_JARS: Final = "jars"
_CLASSES: Final = "classes"


@contextlib.contextmanager
def _as_usage() -> Iterator[None]:
    try:
        yield
    except InfrastructureError as error:
        raise UsageError(str(error)) from error


def _version() -> str:
    (version,) = (
        each.version
        for each in lock_of(_LOCK.read_text(encoding="utf-8"))
        if each.name == "kudu-client"
    )
    return version


VERSIONS: Final = (_version(),)
"""The versions of the client that can be fetched. Each works with servers of all versions."""


def folder() -> CacheFolder:
    """Return the client's cache folder. Its stamp is a hash of the pinned files and the program."""
    stamp = hashlib.sha256(_LOCK.read_bytes() + _SOURCE.read_bytes()).hexdigest()
    return CacheFolder(f"apache-kudu-client-{VERSIONS[0]}", stamp)


def require() -> tuple[str, str]:
    """Return the path of Java, and the class path of the program.

    Raises `UsageError` if Java is missing or too old, or if the client was not fetched.
    """
    with _as_usage():
        check_java(_WHO)
    java = java_program()
    assert java is not None, "the check found it"
    return java, class_path(folder().require(_WHO, "harness fetch kudu-client"))


def class_path(place: Path) -> str:
    """Return the class path of the program in the folder `place`."""
    return os.pathsep.join([str(place / _CLASSES), f"{place / _JARS}{os.sep}*"])


@_as_usage()
def fetch(progress: Callable[[str], None], version: str = VERSIONS[0]) -> Path:
    """Fetch and compile the client if it is missing or outdated, and return its folder.

    Raises `UsageError` if a download fails or has a wrong hash, or if Java or its compiler is
    missing.
    """
    java, cache = check_java(_WHO), folder()
    if cache.is_complete:
        progress(f"{_WHO} {version} is already in {cache.place}; it runs on {java}")
        return cache.place
    compiler = java_compiler(_WHO)
    progress(f"fetching {_WHO} {version}, about 9 MB")
    with cache.filled() as (new, _):
        (new / _JARS).mkdir()
        for artefact in lock_of(_LOCK.read_text(encoding="utf-8")):
            download(artefact, new / _JARS / artefact.file)
        compile_java(compiler, _SOURCE, f"{new / _JARS}{os.sep}*", new / _CLASSES)
    progress(f"{_WHO} {version} is in {cache.place}; it runs on {java}")
    return cache.place
