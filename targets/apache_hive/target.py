"""The target plug-in of real metastores: nodes `hms1`..`hmsN`, and `db`, a real PostgreSQL."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from harness.cluster import NodeSpec
from harness.errors import UsageError
from harness.permits import CHANGE_RENAMED, DROP_MISSED, DROP_RENAMED, TORN_GET, Permit
from harness.plugins import TARGET_API_VERSION, Deployment, Option, Target, TargetSettings, override
from harness.plugins.options import default_values
from targets.apache_hive.artefacts import HIVE4
from targets.apache_hive.database import database_node
from targets.apache_hive.kdc import KDC_NODE, kdc_node
from targets.apache_hive.metastore import (
    as_member,
    as_spare,
    event_settings,
    metastore_node,
    security_settings,
)
from targets.hive.permits import EVENTS, TOKENS, permits_of_profile
from targets.hive.system import DATABASE_NODE, Layout
from targets.hive.target import AT_CHANGES, HiveTarget
from targets.hive.tokens.token_stores import StoreKind
from targets.hive.zookeeper.ensemble import ensemble_nodes
from targets.hive.zookeeper.sessions import ZooKeeperKind

if TYPE_CHECKING:
    from targets.apache_hive.system import ApacheHiveSystem

_OPTIONS: Final = (
    *("metastores", "selection", "socket-timeout-ms", "connect-timeout-ms", "connect-retries"),
    *("retry-delay-ms", "failure-retries", "socket-lifetime-ms"),
    *("event-ttl-ms", "spare-metastores", "uri-list"),
)
USUAL: Final = {"socket-timeout-ms": 3000}
"""Defaults that differ from the bundled target's. Java is slow, and Hive pauses before retries."""
_LIBRARIES: Final = ("psycopg", "pymetastore", "thrift")
_TOKEN_OPTIONS: Final = (
    *("token-store", "token-max-age-ms", "token-renew-ms", "token-key-ms", "token-scan-ms"),
)
_NO_TOKENS: Final = Permit(
    name="no-kdc",
    why="real delegation tokens need Kerberos: deploy a KDC with --kdc",
    lacks=("hms-tokens",),
)
_RENEW_GAP: Final = Permit(
    name="token-renew-gap",
    why="every store of 4.0.1 renews a token by removing it and adding it again",
    rules={TOKENS: ("renew-gap",)},
)
"""A permit that `strict` needs on real metastores; the profile `hive4` includes it anyway."""
_STALE: Final = Permit(
    name="token-stale-read",
    why="the token store reads from one ZooKeeper server, which may lag behind the others",
    rules={TOKENS: ("stale",)},
)
"""A permit for tokens in ZooKeeper, whose reads may be stale, as in Hive 4.0.1."""
START_WITHOUT_DATABASE: Final = Permit(
    name="start-without-database",
    why="a metastore that cannot reach its database at start-up exits",
    signs=("HMSHandler.init(",),
)
_HIVE4: Final = (
    START_WITHOUT_DATABASE,
    Permit(
        name=CHANGE_RENAMED,
        why="an alter reads the table by name and writes changed columns by id, without a lock",
        rules={EVENTS: ("replay",)},
    ),
    Permit(
        name=DROP_RENAMED,
        why="a drop reads the table by name and deletes it by id",
        rules={EVENTS: ("replay",)},
    ),
    Permit(
        name=DROP_MISSED,
        why="a drop looks its table up a second time, and succeeds if the table is gone by then",
        rules={EVENTS: ("replay",)},
    ),
    Permit(
        name=TORN_GET,
        why="a get reads a table and its parameters in two statements, under read committed",
    ),
)
"""Permits for behaviour that only real metastores show, not bundled ones with `hive4`."""


class ApacheHiveTarget(
    Target,
    workload=HiveTarget.workload,
    usual={"profile": "hive4"},
    groups=HiveTarget.groups,
    nemeses=HiveTarget.nemeses,
    operations=HiveTarget.operations,
    variant_of=HiveTarget.variant_of,
):
    """The target plug-in of real metastores: all are active, stateless, and use one PostgreSQL."""

    api_version = TARGET_API_VERSION
    name = "apache-hive"
    doc = f"real Hive Metastores {HIVE4.version} over a real PostgreSQL (harness fetch hive)"
    vocabularies = HiveTarget.vocabularies
    profiles = ("hive4", "strict")
    bugs = MappingProxyType[str, str]({})
    options = (
        *(
            msgspec.structs.replace(option, default=USUAL.get(option.name, option.default))
            for option in HiveTarget.options
            if option.name in (*_OPTIONS, *_TOKEN_OPTIONS)
        ),
        Option("kdc", False, "require Kerberos, and deploy a KDC"),
    )

    def nodes(self, settings: TargetSettings) -> Sequence[NodeSpec]:
        """Declare the metastores and the database, and with `--kdc` also the KDC and ZooKeeper.

        Raises `UsageError` for impossible settings, or if artefacts or libraries are missing.
        """
        require_libraries("the target 'apache-hive'")
        place = HIVE4.require()
        layout = _layout(settings)
        names = [address.node for address in (*layout.metastores, *layout.spares)]
        before = [DATABASE_NODE, *names]
        database = database_node(place)
        events = event_settings(whole_seconds(settings, "event-ttl-ms", "metastores"))
        if not settings.options["kdc"]:
            if settings.options["token_store"]:
                raise UsageError(
                    f"--token-store is {settings.options['token_store']!r}, but there are no "
                    "tokens without Kerberos; add --kdc, or leave --token-store out"
                )
            metastores = [
                metastore_node(name, (after,), place, events)
                for name, after in zip(names, before, strict=False)
            ]
            return [*_members(layout, metastores), database]
        _require_kerberos()
        from targets.apache_hive.sasl import USERS

        zookeepers = [address.node for address in layout.zookeepers]
        security = security_settings(layout)
        metastores = [
            metastore_node(name, (after, KDC_NODE, *zookeepers), place, events, security)
            for name, after in zip(names, before, strict=False)
        ]
        others = [database, kdc_node(USERS), *ensemble_nodes(zookeepers)]
        return [*_members(layout, metastores), *others]

    @override
    def pointless(self, settings: TargetSettings) -> Collection[str]:
        """Return the nemeses that wait for database changes: real metastores announce none."""
        del settings
        return AT_CHANGES

    @override
    def permits(self, settings: TargetSettings) -> Sequence[Permit]:
        """Return the permits of the profile, which also depend on the token store and the KDC."""
        store = _layout(settings).token_store
        permits = list(permits_of_profile(settings.profile, store))
        if not settings.options["kdc"]:
            permits.append(_NO_TOKENS)
        else:
            if settings.profile == "strict":
                permits.append(_RENEW_GAP)
            if store is StoreKind.ZOOKEEPER:
                permits.append(_STALE)
        return [*permits, *_HIVE4] if settings.profile == "hive4" else permits

    def open(self, deployment: Deployment) -> ApacheHiveSystem:
        from targets.apache_hive.system import ApacheHiveSystem

        settings = deployment.settings
        return ApacheHiveSystem(deployment.env, _layout(settings), kdc=settings.options["kdc"])


def require_libraries(who: str) -> None:
    """Raise `UsageError` if Python libraries for real metastores are missing; `who` needs them."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{who} needs Python libraries that are not installed: "
            f"{', '.join(missing)}; run pip install 'catalog-harness[hive]'"
        )


def _members(layout: Layout, metastores: Sequence[NodeSpec]) -> list[NodeSpec]:
    """Return the metastores; if the layout has spares, each with a variant `IDLE` or `SERVING`."""
    if not layout.spares:
        return [*metastores]
    count = len(layout.metastores)
    return [*map(as_member, metastores[:count]), *map(as_spare, metastores[count:])]


def whole_seconds(settings: TargetSettings, option: str, who: str) -> int:
    """Return an option in ms as seconds, the unit of real servers (`who`).

    Raises `UsageError` for a fraction of a second.
    """
    given_ms: int = settings.options[option.replace("-", "_")]
    seconds, rest = divmod(given_ms, 1000)
    if rest:
        raise UsageError(
            f"--{option} is {given_ms}, but real {who} count in whole seconds; give "
            f"{seconds * 1000 or 1000} or {seconds * 1000 + 1000}"
        )
    return seconds


def _require_kerberos() -> None:
    if not all(importlib.util.find_spec(name) for name in ("gssapi", "puresasl")):
        raise UsageError("--kdc needs gssapi; pip install 'catalog-harness[kerberos]'")


def _layout(settings: TargetSettings) -> Layout:
    theirs = default_values(HiveTarget.options)
    options = {**theirs, **settings.options, "zookeeper": ZooKeeperKind.ENSEMBLE.value}
    return Layout(msgspec.structs.replace(settings, options=options))
