"""Makes a base image from Debian packages, for machines without a registry.

debootstrap(8) installs a minimal Debian with Python and the packet filter. It runs in its own mount
namespace, so nothing stays mounted, even if debootstrap is killed. The root file system stays in
the user's cache folder as a tar file, so a second build takes seconds. If the tar file is removed,
the next build fetches fresh packages.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from harness.errors import InfrastructureError
from harness.support.cache_dir import cache_folder

SUITE: Final = "bookworm"  # Debian 12 has Python 3.11, like `image.PYTHON_VERSION`
PACKAGES: Final = ("ca-certificates", "iproute2", "iptables", "libfaketime", "python3")
_EXCLUDED: Final = (
    *("./proc/*", "./sys/*", "./dev/*", "./var/cache/apt/*", "./var/lib/apt/lists/*"),
    *("./usr/share/doc/*", "./usr/share/man/*", "./usr/share/locale/*", "./usr/share/i18n/*"),
)
_RELEASE_TIMEOUT_S: Final = 15
_RELEASE_BYTES_MAX: Final = 4096  # enough, because `Origin` is in the first lines of a release file
_DEBOOTSTRAP_TIMEOUT_S: Final = 1200
_LOG_LINES_MAX: Final = 15
_DEBIAN_SUITES: Final = (
    *("bullseye", "bookworm", "trixie", "forky", "duke"),
    *("oldoldstable", "oldstable", "stable", "testing", "unstable", "sid"),
)
_SCHEMES: Final = frozenset({"http", "https", "file"})  # the URL schemes that debootstrap supports
_FORMAT: Final = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)"


class AptSource(NamedTuple):
    """An entry of apt's configuration: one component of one suite of a package archive."""

    uri: str
    suite: str
    component: str
    keyring: str | None = None


class Mirror(NamedTuple):
    """The archive, suite and keyring from which debootstrap installs."""

    uri: str
    suite: str
    keyring: str | None


def read_sources() -> list[AptSource]:
    """Return all entries of this machine's apt configuration, in order; empty without apt."""
    command = ["apt-get", "indextargets", "--format", _FORMAT, "Created-By: Packages"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return []
    sources = []
    for line in answer.stdout.splitlines():
        uri, suite, component, signed_by = line.split("|")
        # If Signed-By is a fingerprint or a whole key, debootstrap uses its default keyring
        # instead.
        first = signed_by.split(",")[0].strip()
        keyring = first if first.startswith("/") else None
        sources.append(AptSource(uri, suite, component, keyring))
    return sources


def _likeness(source: AptSource, suite: str) -> int:
    url = urlsplit(source.uri)
    return (
        8 * (source.suite == suite)
        + 4 * ("debian-archive" in (source.keyring or ""))
        + 2 * (url.path.rstrip("/").endswith("/debian"))
        + (url.hostname or "").endswith("debian.org")
    )


def choose_mirror(
    sources: Iterable[AptSource], suite: str, origin: Callable[[str, str], str | None]
) -> Mirror:
    """Return the mirror of Debian's `suite` that is most like Debian's own archive.

    `origin(uri, suite)` returns the `Origin` in the suite's release file, or `None` without such a
    file. It must be `Debian`, because some vendors use Debian's names for suites and components. An
    entry for another Debian suite counts as well, since mirrors carry all suites. Raises
    `InfrastructureError`, with the mirrors that were tried, if none has the suite.
    """
    candidates = [
        source
        for source in sources
        if source.component == "main"
        and urlsplit(source.uri).scheme in _SCHEMES
        and source.suite in _DEBIAN_SUITES
    ]
    # equal scores keep the order of the files
    candidates.sort(key=lambda source: -_likeness(source, suite))
    asked = []
    for source in candidates:
        answer = origin(source.uri, suite)
        if answer == "Debian":
            return Mirror(source.uri.rstrip("/"), suite, source.keyring)
        asked.append(f"{source.uri} ({answer or 'no release file'})")
    raise InfrastructureError(
        f"no apt source of this machine serves Debian {suite} with component main; tried: "
        f"{', '.join(asked) or 'none, since apt has no Debian entry'}. Add the line "
        f"`deb http://deb.debian.org/debian {suite} main` to /etc/apt/sources.list"
    )


def _proxies() -> dict[str, str]:
    proxies: dict[str, str] = {}
    for scheme in ("http", "https"):
        variable = f"{scheme}_proxy"
        if os.environ.get(variable) or os.environ.get(variable.upper()):
            continue
        command = ["apt-config", "shell", "PROXY", f"Acquire::{scheme}::Proxy"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        value = answer.stdout.strip().partition("=")[2].strip("'")
        if value and value != "DIRECT":
            proxies[variable] = value
    return proxies


def _origin(uri: str, suite: str) -> str | None:
    for name in ("InRelease", "Release"):
        try:
            request = f"{uri.rstrip('/')}/dists/{suite}/{name}"
            with urllib.request.urlopen(request, timeout=_RELEASE_TIMEOUT_S) as answer:  # noqa: S310 - schemes are checked
                head: str = answer.read(_RELEASE_BYTES_MAX).decode("utf-8", "replace")
        except (urllib.error.URLError, OSError):
            continue
        for line in head.splitlines():
            if line.startswith("Origin:"):
                return line.partition(":")[2].strip()
    return None


def _require_tools() -> None:
    missing = [tool for tool in ("debootstrap", "tar", "unshare") if shutil.which(tool) is None]
    if missing:
        raise InfrastructureError(
            "no registry answers, and building from Debian packages needs programs that are not "
            f"installed: {', '.join(missing)}; run apt-get install --yes debootstrap tar util-linux"
        )
    if os.geteuid() != 0:
        raise InfrastructureError(
            "no registry answers, and building from Debian packages needs root (debootstrap makes "
            "a root file system); run: sudo harness image build"
        )


def root_file_system(progress: Callable[[str], None], packages: Sequence[str] = PACKAGES) -> Path:
    """Return a tar file of a minimal Debian with `packages`; makes it if it is not cached.

    Raises `InfrastructureError` with advice if the tar file cannot be made.
    """
    target = cache_folder() / f"debian-{SUITE}-{platform.machine()}-{'-'.join(packages)}.tar"
    if target.exists():
        progress(f"using Debian packages from {target}; remove it to fetch fresh ones")
        return target
    _require_tools()
    for variable, value in _proxies().items():
        os.environ[variable] = value  # for `_origin`, and for debootstrap's wget
    mirror = choose_mirror(read_sources(), SUITE, _origin)
    progress(f"installing Debian {SUITE} from {mirror.uri}; this takes about a minute")
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="debootstrap-") as scratch:
        root = Path(scratch) / "root"
        _debootstrap(mirror, root, packages)
        archive = Path(scratch) / "root.tar"
        excludes = [f"--exclude={pattern}" for pattern in _EXCLUDED]
        command = ["tar", "-C", str(root), "--numeric-owner", *excludes, "-cf", str(archive), "."]
        _run(command, timeout_s=300)
        archive.replace(target)
    return target


def _debootstrap(mirror: Mirror, root: Path, packages: Sequence[str]) -> None:
    keyring = [f"--keyring={mirror.keyring}"] if mirror.keyring else []
    command = [
        *("unshare", "--mount", "--propagation", "private"),
        *("debootstrap", "--variant=minbase", f"--include={','.join(packages)}"),
        *(*keyring, mirror.suite, str(root), mirror.uri),
    ]
    _run(command, timeout_s=_DEBOOTSTRAP_TIMEOUT_S)


def _run(command: list[str], *, timeout_s: float) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(
            f"{command[0]} did not finish within {timeout_s:.0f} s: {' '.join(command)}"
        ) from error
    if done.returncode != 0:
        raise InfrastructureError(
            f"`{' '.join(command)}` failed with code {done.returncode}",
            output=done.stdout.splitlines()[-_LOG_LINES_MAX:],
        )
