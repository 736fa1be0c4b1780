"""What a metastore is made of: files of Maven Central, pinned by `artefacts.lock`, in the cache.

The metastore's own archive brings no Hadoop, which it needs for its configuration and file systems.
What stands in the folder was hashed when it was fetched; the stamp, written last, is the hash of
the list itself and of the files of ours: where they are others, all is fetched anew.
"""

from __future__ import annotations

import hashlib
from pathlib import Path  # determinism: no part of a node
from typing import Final, NamedTuple

from harness.errors import UsageError
from harness.support.cache_dir import cache_folder

VERSION: Final = "4.0.1"
ARCHIVE: Final = "hive-standalone-metastore-server"
"""The artefact that is an archive; all others are jars beside it."""
STAMP: Final = "complete"
LISTENER: Final = Path(__file__).parent / "EventLog.java"
"""The source of what is compiled against them."""
DOCKERFILE: Final = Path(__file__).parent / "Dockerfile"
"""What makes an image of them: it lies beside them, as the folder is its context."""
_LOCK: Final = Path(__file__).parent / "artefacts.lock"


class Artefact(NamedTuple):
    """One file of a Maven repository, and the SHA-256 that it must have."""

    group: str
    name: str
    version: str
    type: str
    classifier: str
    sha256: str

    @property
    def file(self) -> str:
        """What Maven calls it."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{tail}.{self.type}"


def lock_of(text: str) -> tuple[Artefact, ...]:
    """The artefacts of a list: `group:name:version:type[:classifier] sha256` a line."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            coordinates, sha256 = line.split()
            group, name, version, kind, *classifier = coordinates.split(":")
            found.append(Artefact(group, name, version, kind, "".join(classifier), sha256))
    return tuple(found)


def lock_text() -> str:
    """The list that this target is made for."""
    return _LOCK.read_text(encoding="utf-8")


def lock_digest() -> str:
    """What the stamp of a folder says that holds all of the list, and what is of ours."""
    ours = LISTENER.read_bytes() + DOCKERFILE.read_bytes()
    return hashlib.sha256(lock_text().encode() + ours).hexdigest()


def folder() -> Path:
    """Where they are, or are to be."""
    return cache_folder() / f"apache-hive-{VERSION}"


def require() -> Path:
    """The folder with all of them; raises `UsageError` where they were not fetched."""
    place = folder()
    stamp = place / STAMP
    said = stamp.read_text(encoding="utf-8") if stamp.is_file() else None
    if said != lock_digest():
        state = "are not there" if said is None else "are those of another version of this harness"
        raise UsageError(
            f"the artefacts of Hive Metastore {VERSION} {state} ({place}); get them from Maven "
            "Central: harness fetch hive"
        )
    return place
