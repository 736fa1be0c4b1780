"""Pinned programs of real targets: files from Maven repositories, and the cache that keeps them.

An `Artefact` names one file and its required SHA-256; `lock_of` parses a list of artefacts. A
`CacheFolder` has the files of a list. A fetch fills a temporary folder, which replaces the cache's
folder only when it is complete. The folder contains a stamp. A later version of the harness that
needs other files has another stamp.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil  # determinism: no node runs this module
import tempfile  # determinism: no node runs this module
from collections.abc import Iterator
from pathlib import Path  # determinism: no node runs this module
from typing import Final, NamedTuple

from harness.errors import UsageError
from harness.support.cache_dir import cache_folder

STAMP: Final = "complete"


class Artefact(NamedTuple):
    """One file of a Maven repository, and its required SHA-256."""

    group: str
    name: str
    version: str
    type: str
    classifier: str
    sha256: str

    @property
    def file(self) -> str:
        """Return the file's name in the Maven repository."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{tail}.{self.type}"

    @property
    def path(self) -> str:
        """Return the file's path below the address of a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file}"


def lock_of(text: str) -> tuple[Artefact, ...]:
    """Parse a list of artefacts, one `group:name:version:type[:classifier] sha256` per line."""
    artefacts = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            coordinates, sha256 = line.split()
            group, name, version, kind, *classifier = coordinates.split(":")
            artefacts.append(Artefact(group, name, version, kind, "".join(classifier), sha256))
    return tuple(artefacts)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class CacheFolder(NamedTuple):
    """A folder of the user's cache. It is complete if its stamp file contains `stamp`."""

    name: str
    stamp: str

    @property
    def place(self) -> Path:
        """Return the folder, which may not exist yet."""
        return cache_folder() / self.name

    @property
    def is_complete(self) -> bool:
        """Whether the folder contains what this version of the harness needs."""
        return self._stamped() == self.stamp

    def _stamped(self) -> str | None:
        stamp = self.place / STAMP
        return stamp.read_text(encoding="utf-8") if stamp.is_file() else None

    def require(self, what: str, verb: str) -> Path:
        """Return the folder. Raises `UsageError` if it is incomplete or of another version."""
        if not self.is_complete:
            state = (
                "is not downloaded"
                if self._stamped() is None
                else "was downloaded for another version of this harness"
            )
            raise UsageError(f"{what} {state} ({self.place}); get it from Maven Central: {verb}")
        return self.place

    @contextlib.contextmanager
    def filled(self) -> Iterator[tuple[Path, Path]]:
        """Yield two empty folders: the new content of this folder, and a folder for scratch files.

        If the body raises an exception, the cache is unchanged.
        """
        place = self.place
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f"{place.name}-") as temporary:
            new, scratch = Path(temporary) / place.name, Path(temporary) / "scratch"
            new.mkdir()
            scratch.mkdir()
            yield new, scratch
            (new / STAMP).write_text(self.stamp, encoding="utf-8")
            if place.exists():
                shutil.rmtree(place)
            new.rename(place)
