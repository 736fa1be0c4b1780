"""The kinds of servers that Compose services run, and how to recognize them.

A kind is recognized, in this order, by the service's program, its image, its Dockerfile, the names
of its variables, its ports, and its name. The program comes first because one image may contain
several programs: Patroni's image also runs etcd.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

__all__ = [
    "CONSUL",
    "ETCD",
    "KINDS",
    "MYSQL",
    "POSTGRES",
    "REDIS",
    "SENTINEL",
    "ZOOKEEPER",
    "Kind",
    "Recognized",
    "foreign_name",
    "recognized",
    "tool_name",
]


class Kind(NamedTuple):
    """A kind of server: its protocol (empty if no client supports it) and its default port."""

    name: str
    protocol: str
    port: int
    images: str  # a regular expression for the last part of an image's name
    programs: tuple[str, ...]
    variables: str = r"(?!)"  # variables that the server has, but its clients do not
    packages: tuple[str, ...] = ()
    data: tuple[str, ...] = ()  # the folders that power cuts should reach, best first


ETCD: Final = Kind(
    "etcd",
    "etcd",
    2379,
    r"(.*-)?etcd(-.*)?",
    ("etcd",),
    r"ETCD_(NAME|INITIAL_\w+|LISTEN_\w+)",
    ("etcd-server",),
)
SENTINEL: Final = Kind(
    "sentinel",
    "",
    26379,
    r"(redis|valkey)-sentinel",
    ("redis-sentinel", "valkey-sentinel"),
    r"(REDIS_|VALKEY_)?SENTINEL_\w+",
    ("redis-sentinel",),
)
REDIS: Final = Kind(
    "redis",
    "redis",
    6379,
    r"(redis|valkey|keydb|dragonfly|kvrocks)(-.*)?",
    ("redis-server", "valkey-server", "keydb-server"),
    r"REDIS_(REPLICATION_MODE|PORT_NUMBER|AOF_ENABLED)",
    ("redis-server", "redis"),
    ("/data", "/bitnami/redis/data"),
)
POSTGRES: Final = Kind(
    "postgres",
    "postgres",
    5432,
    r"(.*-)?(postgres|postgresql|postgis|timescaledb|pgvector|patroni|spilo)(-.*)?",
    ("postgres", "patroni"),
    r"PATRONI_(NAME|SUPERUSER_\w+)|POSTGRES_(INITDB_\w+|HOST_AUTH_METHOD)|POSTGRESQL_REPLICATION_\w+",
    ("postgresql", "patroni"),
    ("/var/lib/postgresql/data", "/var/lib/postgresql", "/bitnami/postgresql"),
)
MYSQL: Final = Kind(
    "mysql",
    "mysql",
    3306,
    r"(mysql|mariadb|percona)(-.*)?",
    ("mysqld", "mariadbd"),
    r"(MYSQL|MARIADB)_(ROOT_PASSWORD|REPLICATION_\w+)",
    ("mysql-server", "mariadb-server"),
    ("/var/lib/mysql", "/bitnami/mysql/data", "/bitnami/mariadb"),
)
ZOOKEEPER: Final = Kind(
    "zookeeper",
    "zookeeper",
    2181,
    r"(.*-)?zookeeper(-.*)?",
    ("zkServer.sh",),
    r"(ZOO|ZOOKEEPER)_(MY_ID|SERVERS|SERVER_ID|CLIENT_PORT)",
    ("zookeeper", "zookeeperd"),
    ("/datalog", "/var/lib/zookeeper/log", "/data", "/bitnami/zookeeper"),
)
MEMCACHED: Final = Kind(
    "memcached", "memcached", 11211, r"memcached", ("memcached",), packages=("memcached",)
)
CONSUL: Final = Kind("consul", "http", 8500, r"consul", ("consul",), data=("/consul/data",))
KINDS: Final = (SENTINEL, ETCD, REDIS, POSTGRES, MYSQL, ZOOKEEPER, MEMCACHED, CONSUL)

_FOREIGN: Final = re.compile(
    r"(cassandra|clickhouse|cockroach|couchbase|emqx|kafka|mongo|mosquitto|nats|neo4j|pulsar|rabbitmq|redpanda"
    r"|scylla|tidb|tikv|yugabyte)",
)
"""Servers for which `targets.declared.protocols` has no protocol."""
_TOOLS: Final = re.compile(
    r"(adminer|cadvisor|commander|compass|dashboard|dozzle|envoy|etcdkeeper|exporter|fluentd"
    r"|grafana|haproxy|insight|jaeger|kafdrop|kibana|loki|mailhog|nginx|pgadmin|pgbouncer|pgpool"
    r"|phpmyadmin|portainer|prometheus|promtail|proxysql|toxiproxy|traefik|watchtower|zipkin"
    r"|zoonavigator|[-_]ui\b|\bui[-_])"
)
"""Tools and proxies around a system, which clients can bypass."""


class Recognized(NamedTuple):
    """The kind of a service, and the evidence for it, in words."""

    kind: Kind
    why: str


def recognized(
    *,
    name: str,
    image: str,
    commands: Sequence[str],
    dockerfile: str,
    variables: Mapping[str, str],
    ports: Sequence[int],
) -> Recognized | None:
    """Return the kind of server that a service runs, or `None` if it is not recognized."""
    seen = (
        _by_program(commands)
        or _by_image(image, "the image")
        or _by_dockerfile(dockerfile)
        or _by_variable(variables)
        or _by_port(ports)
        or (None if image or dockerfile else _by_name(name))
    )
    if seen is not None and seen.kind is REDIS:
        texts = " ".join(commands)
        if "sentinel" in f"{name} {texts}".lower() or SENTINEL.port in ports:
            return Recognized(SENTINEL, f"{seen.why}, as a Sentinel")
    return seen


def foreign_name(*names: str) -> str:
    """Return the first server in `names` that is known but not supported, or ""."""
    match = _FOREIGN.search(" ".join(map(_last, names)).lower())
    return match[1] if match else ""


def tool_name(*names: str) -> str:
    """Return the first tool or proxy in `names` (of a service, image or program), or ""."""
    match = _TOOLS.search(" ".join(map(_last, names)).lower())
    return match[1].strip("-_") if match else ""


def _last(image: str) -> str:
    return re.split(r"[:@]", image.rpartition("/")[2])[0]


def _by_program(commands: Sequence[str]) -> Recognized | None:
    for text in commands:
        for kind in KINDS:
            for program in kind.programs:
                start = rf"(?:^|&&|\|\||[;|\n]|\bexec|\bgosu \S+)\s*(?:\S*/)?{re.escape(program)}"
                if re.search(rf"{start}(?![\w.-])", text):
                    return Recognized(kind, f"its command runs {program}")
    return None


def _by_image(image: str, what: str) -> Recognized | None:
    for kind in KINDS if image else ():
        if re.fullmatch(kind.images, _last(image)):
            return Recognized(kind, f"{what} {image}")
    return None


def _by_dockerfile(text: str) -> Recognized | None:
    for base in re.findall(r"^\s*FROM\s+(?:--\S+\s+)?(\S+)", text, re.MULTILINE | re.IGNORECASE):
        seen = _by_image(base, "its Dockerfile begins with")
        if seen is not None:
            return seen
    installs = " ".join(re.findall(r"(?:install|apk add)\b(?:[^\n\\]|\\\n)*", text))
    for kind in KINDS:
        for package in kind.packages:
            if re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", installs):
                return Recognized(kind, f"its Dockerfile installs {package}")
    return None


def _by_variable(variables: Mapping[str, str]) -> Recognized | None:
    for kind in KINDS:
        for variable in variables:
            if re.fullmatch(kind.variables, variable):
                return Recognized(kind, f"its variable {variable}")
    return None


def _by_port(ports: Sequence[int]) -> Recognized | None:
    for kind in KINDS:
        if kind.port in ports:
            return Recognized(kind, f"its port {kind.port}")
    return None


def _by_name(name: str) -> Recognized | None:
    for kind in KINDS:
        if re.match(rf"(?:\w+-)?{kind.name}(?![a-z])", name.lower()):
            return Recognized(kind, "its name")
    return None
