"""The files from Maven Central that a real metastore needs: pinned lists, and their cache.

The metastore's own archive lacks Hadoop, which the metastore needs for configuration and file
systems. `fetching` checks the hash of each file and finally writes a stamp into the folder: a hash
of the lists and of the bundled sources. If that hash changes, `harness fetch hive` fetches
everything again.

Real Kudu needs Hive 3.1.3, because Kudu's masters read entries with the Thrift call `get_table`,
which Hive 4 no longer has.
"""

from __future__ import annotations

import hashlib
from pathlib import Path  # determinism: no node runs this module
from typing import Final, NamedTuple

from targets.artefacts import CacheFolder

_HERE: Final = Path(__file__).parent
_LOCK: Final = _HERE / "artefacts.lock"
"""The artefacts of Hive 4.0.1. Other releases use its jars, but have their own archive."""
ARCHIVES: Final = "tar.gz"
"""The type of artefacts that are unpacked: a release's own archive. All others are jars."""
DOCKERFILE: Final = _HERE / "Dockerfile"


class Release(NamedTuple):
    """A release of the Hive Metastore."""

    version: str
    listener: Path
    """The Java source of a listener for changes of tables. `fetching` compiles it."""
    schema_version: str
    more: str = ""
    """The file that lists what this release needs in addition to the jars of `_LOCK`."""

    @property
    def schema(self) -> str:
        """Return the path of PostgreSQL's schema in the folder of the artefacts."""
        folder = "hive/scripts/metastore/upgrade/postgres"
        return f"{folder}/hive-schema-{self.schema_version}.postgres.sql"

    def lock_text(self) -> str:
        """Return the list of this release's pinned artefacts."""
        usual = _LOCK.read_text(encoding="utf-8")
        if not self.more:
            return usual
        jars = [line for line in usual.splitlines() if f":{ARCHIVES}" not in line]
        return "\n".join([(_HERE / self.more).read_text(encoding="utf-8"), *jars])

    def folder(self) -> CacheFolder:
        """Return the cache folder of the artefacts."""
        ours = self.listener.read_bytes() + DOCKERFILE.read_bytes()
        stamp = hashlib.sha256(self.lock_text().encode() + ours).hexdigest()
        return CacheFolder(f"apache-hive-{self.version}", stamp)

    def require(self) -> Path:
        """Return the folder with all artefacts. Raises `UsageError` if they were not fetched."""
        verb = f"harness fetch hive {self.version}"
        return self.folder().require(f"Hive Metastore {self.version}", verb)


HIVE4: Final = Release("4.0.1", _HERE / "EventLog.java", "4.0.0")
HIVE3: Final = Release(
    "3.1.3", _HERE / "KuduMetastorePlugin.java", "3.1.0", more="artefacts-3.1.3.lock"
)
RELEASES: Final = {release.version: release for release in (HIVE4, HIVE3)}
