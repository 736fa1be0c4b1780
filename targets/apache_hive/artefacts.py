"""Files from Maven Central that a real metastore needs, pinned by `artefacts.lock` and cached.

The metastore's own archive lacks Hadoop, which the metastore needs for configuration and file
systems. `fetching` checks the hash of each file and finally writes a stamp into the folder: a hash
of the lock file and of the bundled sources. If that hash changes, `harness fetch hive` fetches
everything again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path  # determinism: no node runs this module
from typing import Final

from targets.artefacts import CacheFolder

VERSION: Final = "4.0.1"
ARCHIVE: Final = "hive-standalone-metastore-server"
"""Name of the only artefact that is an archive; all other artefacts are jars."""
LISTENER: Final = Path(__file__).parent / "EventLog.java"
"""Java source of the metastores' event listener, which `fetching` compiles."""
DOCKERFILE: Final = Path(__file__).parent / "Dockerfile"
"""The Dockerfile of the metastores' image, copied into the folder of the artefacts."""
_LOCK: Final = Path(__file__).parent / "artefacts.lock"


def lock_text() -> str:
    """The text of `artefacts.lock`, the list of this target's pinned artefacts."""
    return _LOCK.read_text(encoding="utf-8")


def lock_digest() -> str:
    """The stamp of a complete folder: a hash of the lock file and the bundled sources."""
    ours = LISTENER.read_bytes() + DOCKERFILE.read_bytes()
    return hashlib.sha256(lock_text().encode() + ours).hexdigest()


def folder() -> CacheFolder:
    """The cache's folder of the artefacts."""
    return CacheFolder(f"apache-hive-{VERSION}", lock_digest())


def require() -> Path:
    """The folder with all artefacts. Raises `UsageError` if they were not fetched."""
    return folder().require(f"Hive Metastore {VERSION}", "harness fetch hive")
