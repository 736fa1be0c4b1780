"""The nodes `zk1..n` of a real ensemble, from the Debian package `zookeeper` on Java.

A server keeps all data in `{data}`. If power cuts are planned, that is on a disk that the harness
provides. In the process environment, elections bypass the link proxy, because servers announce
their own election addresses to each other. So cuts between servers do not affect elections, but
they affect the traffic between a leader and its followers: a leader that is cut off loses its
followers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.cluster import NodeSpec, ReadyPort

CLIENT_PORT: Final = 2181
_QUORUM_PORT: Final = 2888
_ELECTION_PORT: Final = 3888
CLIENT_ENVIRONMENT: Final = {"HIVE_ZOOKEEPER_CLIENT": "{package:kazoo}"}
"""Environment variables of metastores, with the path of ZooKeeper's client in containers."""
IMAGE: Final = "{package:targets.hive}/hive/zookeeper/server"
JAR: Final = "/usr/share/java/zookeeper.jar"
_CLASSPATH: Final = f"{JAR}:/usr/share/java/slf4j-simple.jar"
_TICK_MS: Final = 500
SILENCE_S: Final = 20 * _TICK_MS / 1000
"""ZooKeeper's longest session timeout, in seconds: no server answers with older data.

A server that hears nothing from its leader for this long no longer answers its clients.
"""
_CONFIGURATION: Final = f"""
tickTime={_TICK_MS}
initLimit=20
syncLimit=6
dataDir={{data}}/zookeeper
clientPort={{port:{CLIENT_PORT}}}
clientPortAddress={{host}}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
"""
_HEAP_MIB: Final = 64
_LOG_KIB: Final = 1024
_WITHOUT_SNAPSHOT: Final = "-Dzookeeper.snapshot.trust.empty=true"
"""A Java option that lets a server start from its log alone.

A server does not sync its first snapshot, so a power cut may destroy it. The log has all data,
because no log is ever removed.
"""


def ensemble_nodes(names: Sequence[str]) -> list[NodeSpec]:
    """Declare one ZooKeeper server per name, all of them voters."""
    return [_node(number, names) for number in range(1, len(names) + 1)]


def _node(number: int, names: Sequence[str]) -> NodeSpec:
    servers = "".join(
        f"server.{other}={_address(name, is_self=other == number)}\n"
        for other, name in enumerate(names, start=1)
    )
    return NodeSpec(
        name=names[number - 1],
        role="zk",
        ports=(CLIENT_PORT, _QUORUM_PORT, _ELECTION_PORT),
        dockerfile=IMAGE,
        files={"zoo.cfg": _CONFIGURATION + servers, "myid": f"{number}\n"},
        setup=(
            ("mkdir", "{data}/zookeeper"),
            ("cp", "{files}/myid", "{data}/zookeeper/myid"),
        ),
        command=(
            *("java", "-cp", _CLASSPATH, f"-Xmx{_HEAP_MIB}m", "-XX:+UseSerialGC"),
            *("-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"),
            *(
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-Dzookeeper.jmx.log4j.disable=true",
            ),
            f"-Dzookeeper.preAllocSize={_LOG_KIB}",
            _WITHOUT_SNAPSHOT,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            "{files}/zoo.cfg",
        ),
        ready=ReadyPort(CLIENT_PORT),
        faulty_disk=True,
        debian_package="zookeeper",
        instead="--zookeeper node",
    )


def _address(name: str, *, is_self: bool) -> str:
    if is_self:
        return f"{{host}}:{{port:{_QUORUM_PORT}}}:{{port:{_ELECTION_PORT}}}"
    return f"{{host:{name}}}:{_QUORUM_PORT}:{_ELECTION_PORT}"
