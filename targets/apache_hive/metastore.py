"""Declares a real metastore as a node: Hive's own Java class, and its configuration.

The class path names two folders: the cache on this machine, and the cache's copy in the Docker
image. An idle metastore's node runs a small program instead, which listens on the metastore's port
and closes every connection. Clients see no difference from a missing metastore, as links accept
a connection before they connect to the metastore.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path  # determinism: no node runs this module
from typing import Final
from xml.sax.saxutils import escape

import msgspec

from harness.cluster import NodeSpec, ReadyPort, Variant
from targets.apache_hive.artefacts import HIVE3, HIVE4, Release
from targets.apache_hive.kdc import (
    KDC_NODE,
    KDC_PORT,
    METASTORE,
    configuration,
    keytab,
    principal,
)
from targets.hive.members import IDLE, SERVING
from targets.hive.sql.postgres import DATABASE, USER
from targets.hive.system import DATABASE_NODE, DATABASE_PORT, METASTORE_PORT, Layout
from targets.hive.tokens.token_stores import StoreKind

IMAGE_PLACE: Final = "/opt/apache-hive"
_OPENED: Final = (
    *("java.io", "java.lang", "java.lang.invoke", "java.lang.reflect", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch"),
    *("sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
"""Java packages that Hive uses by reflection, which Java 17 forbids by default."""
_MEMORY: Final = ("-Xmx384m", "-XX:+UseSerialGC")
_CHECK_JAVA: Final = (
    r"""java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || """
    """{ echo 'Hive Metastore needs Java 17 or newer (Debian: openjdk-17-jre-headless), not:'; """
    """java -version 2>&1; exit 1; }"""
)
_START_S: Final = 120.0
_CLEAN_EVERY_S: Final = 1
_HANG_UP: Final = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    server.accept()[0].close()
"""
_IDLE: Final = ("python3", "-I", "-c", _HANG_UP, "{host}", f"{{port:{METASTORE_PORT}}}")
_KEYTAB: Final = "{data}/hive.keytab"
_MAKE_KEYTAB: Final = ("sh", "-c", f"base64 -d {{files}}/hive.keytab.base64 > {_KEYTAB}")
_KERBEROS: Final = (
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djava.security.krb5.conf={files}/krb5.conf",
)
_LISTENERS: Final = "metastore.transactional.event.listeners"
_OF_RELEASE: Final[Mapping[Release, Mapping[str, str]]] = {
    HIVE4: {
        _LISTENERS: "harness.EventLog",
        "metastore.event.message.factory": (
            "org.apache.hadoop.hive.metastore.messaging.json.JSONMessageEncoder"
        ),
    },
    # Kudu's masters reject a metastore without these two listeners, or one that checks the types of
    # columns by their position.
    HIVE3: {
        _LISTENERS: "org.apache.hive.hcatalog.listener.DbNotificationListener,"
        "org.apache.kudu.hive.metastore.KuduMetastorePlugin",
        "hive.metastore.disallow.incompatible.col.type.changes": "false",
        # Hive's default classes for these two belong to its query engine, which is not installed.
        "metastore.expression.proxy": (
            "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
        ),
        "metastore.task.threads.always": (
            "org.apache.hadoop.hive.metastore.events.EventCleanerTask"
        ),
    },
}
_STORES: Final = {
    StoreKind.MEMORY: "MemoryTokenStore",
    StoreKind.DB: "DBTokenStore",
    StoreKind.ZOOKEEPER: "ZooKeeperTokenStore",
}


def _settings() -> Mapping[str, str]:
    return {
        "javax.jdo.option.ConnectionURL": (
            f"jdbc:postgresql://{{peer:{DATABASE_NODE}:{DATABASE_PORT}}}/{DATABASE}"
            "?connectTimeout=5&loginTimeout=5"
        ),
        "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
        "javax.jdo.option.ConnectionUserName": USER,
        # Hive requires a password, but PostgreSQL ignores it
        "javax.jdo.option.ConnectionPassword": USER,
        "metastore.warehouse.dir": "file:{data}/warehouse",
        "metastore.thrift.bind.host": "{host}",
        # Hive refuses one of two concurrent creates only after a retry, by default after 2 s.
        "metastore.hmshandler.retry.interval": "300ms",
        # By default, only a Hadoop proxy user may read the notification log.
        "hive.metastore.event.db.notification.api.auth": "false",
    }


def event_settings(ttl_s: int) -> Mapping[str, str]:
    """Make Hive remove events older than `ttl_s`. It checks every second, not every 2 h."""
    listener = "hive.metastore.event.db.listener"
    return {
        f"{listener}.timetolive": f"{ttl_s}s",
        f"{listener}.clean.interval": f"{_CLEAN_EVERY_S}s",
    }


def _secure_files() -> dict[str, str]:
    return {
        "core-site.xml": _site({"hadoop.security.authentication": "kerberos"}),
        "krb5.conf": configuration(f"{{peer:{KDC_NODE}:{KDC_PORT}}}"),
        "hive.keytab.base64": keytab(),
    }


def security_settings(layout: Layout) -> Mapping[str, str]:
    """Return the settings of a metastore for Kerberos and delegation tokens."""
    tokens = "hive.cluster.delegation.token"
    store, times = _STORES[layout.token_store], layout.token_times
    servers = ",".join(f"{{peer:{node}:{port}}}" for node, port in layout.zookeepers)
    zookeeper = {
        f"{tokens}.store.zookeeper.connectString": servers,
        # If true, the ZooKeeper servers would need Kerberos to serve stored tokens.
        "hive.zookeeper.kerberos.enabled": "false",
    }
    return {
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.principal": principal(METASTORE),
        "hive.metastore.kerberos.keytab.file": _KEYTAB,
        f"{tokens}.store.class": f"org.apache.hadoop.hive.metastore.security.{store}",
        f"{tokens}.max-lifetime": f"{times.max_age_ms}ms",
        f"{tokens}.renew-interval": f"{times.renew_ms}ms",
        f"{tokens}.gc-interval": f"{times.scan_ms}ms",
        "hive.cluster.delegation.key.update-interval": f"{times.key_ms}ms",
        **(zookeeper if servers else {}),
    }


def _site(settings: Mapping[str, str]) -> str:
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    ]
    return "\n".join(["<configuration>", *lines, "</configuration>", ""])


def as_member(metastore: NodeSpec) -> NodeSpec:
    """Add the variant `IDLE` to the declaration of a metastore that serves from the start."""
    return msgspec.structs.replace(metastore, variants={IDLE: Variant(command=_IDLE)})


def as_spare(metastore: NodeSpec) -> NodeSpec:
    """Turn a metastore into a spare, whose node idles until it starts as the variant `SERVING`."""
    serving = Variant(command=metastore.command)
    return msgspec.structs.replace(metastore, command=_IDLE, variants={SERVING: serving})


def metastore_node(
    name: str,
    after: tuple[str, ...],
    place: Path,
    events: Mapping[str, str],
    security: Mapping[str, str] | None = None,
    *,
    release: Release = HIVE4,
) -> NodeSpec:
    """Declare a metastore that starts once the nodes in `after` are ready.

    Metastores start one after another, because each of them initializes the database if it is
    empty. `security` has the settings for Kerberos and tokens, if there is a KDC.
    """
    secure = security is not None
    kerberos = _KERBEROS if secure else ()
    parts = ("listener", "hive/lib/*", "hadoop/*")
    jars = [f"{root}/{part}" for root in (place, IMAGE_PLACE) for part in parts]
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    return NodeSpec(
        name=name,
        role="hms",
        ports=(METASTORE_PORT,),
        dockerfile=str(place),
        files={
            "metastore-site.xml": _site(
                {**_settings(), **_OF_RELEASE[release], **events, **(security or {})}
            ),
            **(_secure_files() if secure else {}),
        },
        setup=(("sh", "-c", _CHECK_JAVA), *((_MAKE_KEYTAB,) if secure else ())),
        command=(
            *("java", *_MEMORY, *opened, *kerberos, "-cp", ":".join(["{files}", *jars])),
            *("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", f"{{port:{METASTORE_PORT}}}"),
        ),
        ready=ReadyPort(METASTORE_PORT, within_s=_START_S),
        after=after,
        memory_mib=1024,
        debian_package="openjdk-17-jre-headless",
    )
