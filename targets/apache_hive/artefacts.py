"""Files from Maven Central that a real metastore needs, pinned by `artefacts.lock` and cached.

The metastore's own archive lacks Hadoop, which the metastore needs for configuration and file
systems. `fetching` checks the hash of each file and finally writes a stamp into the folder: a hash
of the lock file and of the bundled sources. If that hash changes, `harness fetch hive` fetches
everything again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path  # determinism: no node runs this module
from typing import Final, NamedTuple

from harness.errors import UsageError
from harness.support.cache_dir import cache_folder

VERSION: Final = "4.0.1"
ARCHIVE: Final = "hive-standalone-metastore-server"
"""Name of the only artefact that is an archive; all other artefacts are jars."""
STAMP: Final = "complete"
LISTENER: Final = Path(__file__).parent / "EventLog.java"
"""Java source of the metastores' event listener, which `fetching` compiles."""
DOCKERFILE: Final = Path(__file__).parent / "Dockerfile"
"""The Dockerfile of the metastores' image, copied into the folder of the artefacts."""
_LOCK: Final = Path(__file__).parent / "artefacts.lock"


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
        """The file's name in the Maven repository."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{tail}.{self.type}"


def lock_of(text: str) -> tuple[Artefact, ...]:
    """Parse a list of artefacts, one `group:name:version:type[:classifier] sha256` per line."""
    artefacts = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            coordinates, sha256 = line.split()
            group, name, version, kind, *classifier = coordinates.split(":")
            artefacts.append(Artefact(group, name, version, kind, "".join(classifier), sha256))
    return tuple(artefacts)


def lock_text() -> str:
    """The text of `artefacts.lock`, the list of this target's pinned artefacts."""
    return _LOCK.read_text(encoding="utf-8")


def lock_digest() -> str:
    """The stamp of a complete folder: a hash of the lock file and the bundled sources."""
    ours = LISTENER.read_bytes() + DOCKERFILE.read_bytes()
    return hashlib.sha256(lock_text().encode() + ours).hexdigest()


def folder() -> Path:
    """The folder of the artefacts, which may not exist yet."""
    return cache_folder() / f"apache-hive-{VERSION}"


def require() -> Path:
    """The folder with all artefacts. Raises `UsageError` if they were not fetched."""
    place = folder()
    stamp = place / STAMP
    stamped = stamp.read_text(encoding="utf-8") if stamp.is_file() else None
    if stamped != lock_digest():
        state = (
            "are not downloaded" if stamped is None else "belong to another version of this harness"
        )
        raise UsageError(
            f"the artefacts of Hive Metastore {VERSION} {state} ({place}); get them from Maven "
            "Central: harness fetch hive"
        )
    return place
