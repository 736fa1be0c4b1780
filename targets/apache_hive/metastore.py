"""A metastore as a node: Hive's own class on Java 17, with its configuration as data.

Two places stand on the class path: the cache of this machine, and where the image has the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path  # determinism: no part of a node
from typing import Final
from xml.sax.saxutils import escape

from harness.cluster import NodeSpec, ReadyPort
from targets.hive.sql.postgres import DATABASE, USER
from targets.hive.system import DATABASE_NODE, DATABASE_PORT, METASTORE_PORT

__all__ = ["IMAGE_PLACE", "metastore_node"]

IMAGE_PLACE: Final = "/opt/apache-hive"
_OPENED: Final = (
    *("java.io", "java.lang", "java.lang.invoke", "java.lang.reflect", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch"),
    *("sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
"""Packages of Java that Hive looks into by reflection, which Java 17 does not allow by itself."""
_MEMORY: Final = ("-Xmx384m", "-XX:+UseSerialGC")
_CHECK_JAVA: Final = (
    r"""java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || """
    """{ echo 'Hive Metastore needs Java 17 or newer (Debian: openjdk-17-jre-headless), not:'; """
    """java -version 2>&1; exit 1; }"""
)
_START_S: Final = 120.0


def _settings() -> Mapping[str, str]:
    return {
        "javax.jdo.option.ConnectionURL": (
            f"jdbc:postgresql://{{peer:{DATABASE_NODE}:{DATABASE_PORT}}}/{DATABASE}"
            "?connectTimeout=5&loginTimeout=5"
        ),
        "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
        "javax.jdo.option.ConnectionUserName": USER,
        "javax.jdo.option.ConnectionPassword": USER,  # it asks for none, and Hive wants one
        "metastore.warehouse.dir": "file:{data}/warehouse",
        "metastore.thrift.bind.host": "{host}",
        # 2 s by default: that is how long the loser of two creates would wait to be told so.
        "metastore.hmshandler.retry.interval": "300ms",
        "metastore.transactional.event.listeners": "harness.EventLog",
        "metastore.event.message.factory": (
            "org.apache.hadoop.hive.metastore.messaging.json.JSONMessageEncoder"
        ),
        # Without: whoever reads the notification log must be a proxy user of Hadoop's.
        "hive.metastore.event.db.notification.api.auth": "false",
    }


def _site(settings: Mapping[str, str]) -> str:
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    ]
    return "\n".join(["<configuration>", *lines, "</configuration>", ""])


def metastore_node(name: str, after: str, place: Path) -> NodeSpec:
    """One metastore, which starts once `after` is ready: each writes to an empty database first."""
    parts = ("listener", "hive/lib/*", "hadoop/*")
    jars = [f"{root}/{part}" for root in (place, IMAGE_PLACE) for part in parts]
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    return NodeSpec(
        name=name,
        role="hms",
        ports=(METASTORE_PORT,),
        dockerfile=str(place),
        files={"metastore-site.xml": _site(_settings())},
        setup=(("sh", "-c", _CHECK_JAVA),),
        command=(
            *("java", *_MEMORY, *opened, "-cp", ":".join(["{files}", *jars])),
            *("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", f"{{port:{METASTORE_PORT}}}"),
        ),
        ready=ReadyPort(METASTORE_PORT, within_s=_START_S),
        after=(after,),
        memory_mib=1024,
        debian_package="openjdk-17-jre-headless",
    )
