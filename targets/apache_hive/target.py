"""The target plug-in of real metastores: nodes `hms1`..`hmsN`, and `db`, a real PostgreSQL."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from harness.cluster import NodeSpec
from harness.errors import UsageError
from harness.permits import Permit
from harness.plugins import TARGET_API_VERSION, Deployment, Option, TargetSettings
from targets.apache_hive.artefacts import VERSION, require
from targets.hive.permits import EVENTS, permits_of_profile
from targets.hive.system import DATABASE, SERVICE, Layout
from targets.hive.target import HiveTarget

if TYPE_CHECKING:
    from targets.apache_hive.system import ApacheHiveSystem

__all__ = ["ApacheHiveTarget"]

_OURS: Final = ("event-ttl-ms", "fsync")
"""Options of the bundled metastores that mean nothing here."""
_LIBRARIES: Final = ("psycopg", "pymetastore", "thrift")
_NO_LOG: Final = Permit(
    name="no-event-log",
    why="Hive's DbNotificationListener, which writes the events, is not in what Maven Central has",
    rules={EVENTS: ("lost", "replay")},
)


class ApacheHiveTarget:
    """Stateless metastores, all active, over one database."""

    api_version: ClassVar[int] = TARGET_API_VERSION
    name: ClassVar[str] = "apache-hive"
    doc: ClassVar[str] = f"real Hive Metastores {VERSION} over a real PostgreSQL (harness fetch hive)"
    vocabularies: ClassVar[frozenset[str]] = frozenset({"hms"})
    profiles: ClassVar[tuple[str, ...]] = ("hive4", "strict")
    bugs: ClassVar[Mapping[str, str]] = {}
    workload: ClassVar[str] = HiveTarget.workload
    groups: ClassVar[tuple[str, ...]] = (SERVICE, DATABASE)
    nemeses: ClassVar[tuple[str, ...]] = HiveTarget.nemeses
    options: ClassVar[tuple[Option, ...]] = tuple(
        option for option in HiveTarget.options if option.name not in _OURS
    )

    def nodes(self, settings: TargetSettings) -> Sequence[NodeSpec]:
        """Declare the database, then metastores; raises `UsageError` for impossible settings, and
        where the artefacts or libraries lack.
        """
        missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
        if missing:
            raise UsageError(
                f"the target 'apache-hive' needs {', '.join(missing)}, which is not installed; pip "
                "install 'catalog-harness[hive]'"
            )
        from targets.apache_hive.database import DATABASE_NODE, database_spec
        from targets.apache_hive.metastore import metastore_spec

        place = require()
        names = [address.node for address in Layout(settings).metastores]
        before = [DATABASE_NODE, *names]
        metastores = [
            metastore_spec(name, after, place)
            for name, after in zip(names, before, strict=False)
        ]
        return [*metastores, database_spec(place)]

    def permits(self, settings: TargetSettings) -> Sequence[Permit]:
        """What the profile does not promise, and what these metastores lack."""
        return [*permits_of_profile(settings.profile), _NO_LOG]

    def open(self, deployment: Deployment) -> ApacheHiveSystem:
        """What was just deployed."""
        from targets.apache_hive.system import ApacheHiveSystem

        return ApacheHiveSystem(deployment.env, Layout(deployment.settings))
