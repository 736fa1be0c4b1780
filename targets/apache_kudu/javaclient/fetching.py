"""`harness fetch kudu-client`: download Kudu's Java client, and compile the program that drives it.

The program, `JavaClient.java`, is in the client's own package, because the traces of the client's
RPCs are private to it. So it is compiled against exactly the files of `artefacts.lock`, and a
client that differs there does not compile. What cannot be fetched or compiled is a `UsageError`.
"""

from __future__ import annotations

import hashlib
import os  # determinism: no node runs this module
import shutil  # determinism: no node runs this module
import subprocess  # determinism: no node runs this module
from collections.abc import Callable
from pathlib import Path  # determinism: no node runs this module
from typing import Final

from harness.errors import InfrastructureError, UsageError, clipped
from harness.support.java import JAVA_MIN, check_java, java_program
from targets.apache_kudu.fetching import download
from targets.artefacts import CacheFolder, lock_of

_LOCK: Final = Path(__file__).parent / "artefacts.lock"
_SOURCE: Final = Path(__file__).parent / "JavaClient.java"
_WHO: Final = "Kudu's Java client"
_JARS: Final = "jars"
_CLASSES: Final = "classes"
_COMPILE_S: Final = 300.0
_ERRORS_MAX: Final = 300


def _version() -> str:
    (version,) = (
        each.version
        for each in lock_of(_LOCK.read_text(encoding="utf-8"))
        if each.name == "kudu-client"
    )
    return version


VERSIONS: Final = (_version(),)
"""The versions of the client that can be fetched. It talks to servers of all fetched versions."""


def folder() -> CacheFolder:
    """The cache's folder of the client; its stamp is a hash of the pinned files and the program."""
    stamp = hashlib.sha256(_LOCK.read_bytes() + _SOURCE.read_bytes()).hexdigest()
    return CacheFolder(f"apache-kudu-client-{VERSIONS[0]}", stamp)


def require() -> tuple[str, str]:
    """Return the path of Java, and the class path of the program.

    Raises `UsageError` if Java is missing or too old, or if the client was not fetched.
    """
    _check_java()
    java = java_program()
    assert java is not None, "the check found it"
    return java, class_path(folder().require(_WHO, "harness fetch kudu-client"))


def class_path(place: Path) -> str:
    """The class path of the program whose folder is `place`."""
    return os.pathsep.join([str(place / _CLASSES), f"{place / _JARS}{os.sep}*"])


def fetch(progress: Callable[[str], None], version: str = VERSIONS[0]) -> Path:
    """Fetch and compile the client if it is missing or outdated, and return its folder.

    Raises `UsageError` if a download fails or has a wrong hash, or if Java or its compiler is
    missing.
    """
    java, cache = _check_java(), folder()
    if cache.is_complete:
        progress(f"{_WHO} {version} is already in {cache.place}; it runs on {java}")
        return cache.place
    compiler = _compiler()
    progress(f"fetching {_WHO} {version}, about 9 MB")
    with cache.filled() as (new, _):
        (new / _JARS).mkdir()
        for artefact in lock_of(_LOCK.read_text(encoding="utf-8")):
            download(artefact, new / _JARS / artefact.file)
        _compile(compiler, new)
    progress(f"{_WHO} {version} is in {cache.place}; it runs on {java}")
    return cache.place


def _check_java() -> str:
    try:
        return check_java(_WHO)
    except InfrastructureError as error:
        raise UsageError(str(error)) from error


def _compiler() -> str:
    """The compiler in the folder of `java`, or on PATH. Raises `UsageError`."""
    sibling = Path(java_program() or "").with_name("javac")
    compiler = str(sibling) if sibling.is_file() else shutil.which("javac")
    if compiler is None:
        raise UsageError(
            f"{_WHO} needs a Java compiler, and there is no javac in the folder of java or on "
            "PATH; install one (Debian: apt install openjdk-17-jdk-headless)"
        )
    return compiler


def _compile(compiler: str, new: Path) -> None:
    command = [compiler, "--release", str(JAVA_MIN), "-nowarn", "-d", str(new / _CLASSES)]
    command += ["-cp", f"{new / _JARS}{os.sep}*", str(_SOURCE)]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_COMPILE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"cannot run {compiler}: {error}") from error
    if answer.returncode != 0:
        reason = clipped(" ".join((answer.stdout + answer.stderr).split()), _ERRORS_MAX)
        raise UsageError(f"{compiler} cannot compile {_SOURCE.name}: {reason}")
