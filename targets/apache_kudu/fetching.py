"""`harness fetch kudu`: downloads a release of Kudu's servers from Maven Central and unpacks it.

The file is Kudu's own test artefact, a zip. Its folder `bin/` has the servers and the tool `kudu`,
`lib/` has their libraries, and `www/` has the templates of their pages. HARNESS_MAVEN names another
repository, such as a mirror. A failed fetch raises `UsageError`.
"""

from __future__ import annotations

import hashlib
import os  # determinism: no node runs this module
import re
import shutil  # determinism: no node runs this module
import subprocess  # determinism: no node runs this module
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path  # determinism: no node runs this module
from typing import Final

from harness.errors import UsageError, counted
from targets.artefacts import Artefact, CacheFolder, lock_of, sha256_of

CENTRAL: Final = "https://repo1.maven.org/maven2"
MIRROR: Final = "HARNESS_MAVEN"
"""The environment variable that may name a Maven repository in place of `CENTRAL`."""
_LOCK: Final = Path(__file__).parent / "artefacts.lock"
_DOCKERFILE: Final = Path(__file__).parent / "Dockerfile"
_TINFO: Final = "libtinfo6"
_OTHER_TINFO: Final[Mapping[str, str]] = {"1.16.0": "libtinfo5"}
"""Debian's package of the terminal library, for versions that do not need `_TINFO`."""
_UNPACKED: Final = 1
"""The version of the unpacked folder's layout. If it changes, the release is fetched again."""
_SERVER: Final = "kudu-master"
_PARTS: Final = ("bin", "lib", "www")
_SILENCE_S: Final = 30.0
_CLASHING: Final = re.compile(r"lib(krb5|gssapi_krb5|k5crypto)\.so")
"""Kerberos libraries in Kudu 1.17 and later, which clash with Debian's libkrb5support.

The system's own libraries are used instead.
"""
_PACKAGES: Final[Mapping[str, str]] = {
    "libcom_err.so.2": "libcom-err2",
    "libcrypt.so.1": "libcrypt1",
    "libdb-5.3.so": "libdb5.3",
    "libgssapi_krb5.so.2": "libgssapi-krb5-2",
    "libk5crypto.so.3": "libk5crypto3",
    "libkeyutils.so.1": "libkeyutils1",
    "libkrb5.so.3": "libkrb5-3",
    "libkrb5support.so.0": "libkrb5support0",
    "libpcre.so.3": "libpcre3",
    "libselinux.so.1": "libselinux1",
    "libtinfo.so.5": "libtinfo5",
    "libtinfo.so.6": "libtinfo6",
}
"""Debian's packages of the libraries that the programs expect on the system."""


def _artefacts() -> dict[str, Artefact]:
    return {each.version: each for each in lock_of(_LOCK.read_text(encoding="utf-8"))}


VERSIONS: Final = tuple(_artefacts())
"""The versions that can be fetched; the first is the usual one."""


def folder(version: str) -> CacheFolder:
    """Return the cache's folder of a version."""
    dockerfile = hashlib.sha256(_dockerfile(version).encode()).hexdigest()
    stamp = f"{_artefacts()[version].sha256} {_UNPACKED} {dockerfile}"
    return CacheFolder(f"apache-kudu-{version}", stamp)


def _dockerfile(version: str) -> str:
    text = _DOCKERFILE.read_text(encoding="utf-8")
    return text.replace(_TINFO, _OTHER_TINFO.get(version, _TINFO))


def require(version: str) -> Path:
    """Return the folder of a version. Raises `UsageError` if it was not fetched."""
    return folder(version).require(f"Kudu {version}", f"harness fetch kudu {version}")


def fetch(progress: Callable[[str], None], version: str = VERSIONS[0]) -> Path:
    """Fetch a version if it is missing or outdated, and return its folder.

    Raises `UsageError` if the download fails, if the file's hash differs from `artefacts.lock`, or
    if this machine lacks libraries that the servers need.
    """
    cache, artefact = folder(version), _artefacts()[version]
    if cache.is_complete:
        progress(f"Kudu {version} is already in {cache.place}")
    else:
        progress(f"fetching Kudu {version}, about 35 MB")
        with cache.filled() as (new, scratch):
            archive = scratch / artefact.file
            download(artefact, archive)
            _unpack(archive, new, scratch)
            (new / _DOCKERFILE.name).write_text(_dockerfile(version), encoding="utf-8")
        progress(f"Kudu {version} is in {cache.place}")
    require_libraries(cache.place)
    return cache.place


def download(artefact: Artefact, into: Path) -> None:
    """Download a file of the Maven repository.

    Raises `UsageError` if the download fails or the file has a wrong hash.
    """
    url = f"{os.environ.get(MIRROR, CENTRAL).rstrip('/')}/{artefact.path}"
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{MIRROR} is {os.environ[MIRROR]!r}; give an http or https address")
    try:
        with urllib.request.urlopen(url, timeout=_SILENCE_S) as answer, into.open("wb") as file:  # noqa: S310 - checked above
            shutil.copyfileobj(answer, file)
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(error, urllib.error.HTTPError):
            reason = f"HTTP {error.code} {reason}"
            error.close()
        raise UsageError(
            f"cannot download {url}: {reason}; connect this machine to Maven Central, or name a "
            f"mirror in {MIRROR}"
        ) from error
    digest = sha256_of(into)
    if digest != artefact.sha256:
        raise UsageError(
            f"{url} has the SHA-256 {digest}, but artefacts.lock requires {artefact.sha256}: the "
            f"download was cut off or is another file; fetch again, or name another mirror in "
            f"{MIRROR}"
        )


def _unpack(archive: Path, into: Path, scratch: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        file.extractall(scratch)
    (top,) = (path.parent for path in scratch.glob("*/bin"))
    for part in _PARTS:
        (top / part).rename(into / part)
    for program in (into / "bin").iterdir():
        program.chmod(0o755)
    for library in (into / "lib").iterdir():
        if _CLASHING.match(library.name):
            library.unlink()


def require_libraries(place: Path) -> None:
    """Raise `UsageError` if this machine lacks libraries that the servers of `place` need."""
    try:
        answer = subprocess.run(
            ["ldd", str(place / "bin" / _SERVER)], capture_output=True, text=True, check=False
        )
    except OSError:
        return  # without `ldd`, the server reports a missing library when it starts
    missing = sorted(set(re.findall(r"^\s*(\S+) => not found", answer.stdout, re.MULTILINE)))
    if missing:
        packages = sorted(_PACKAGES[name] for name in missing if name in _PACKAGES)
        fix = f" (Debian: apt install {' '.join(packages)})" if packages else ""
        raise UsageError(
            f"the servers in {place} need {counted(len(missing), 'library', 'libraries')} that "
            f"this machine lacks: {', '.join(missing)}; install them{fix}"
        )
