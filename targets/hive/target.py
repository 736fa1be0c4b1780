"""The target plug-in of the bundled metastores: nodes `hms1`..`hmsN` on port 9083, and `db`."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.cluster import NodeSpec
from harness.permits import Permit
from harness.plugins import TARGET_API_VERSION, Deployment, Option, Target, TargetSettings, override
from targets.hive import members
from targets.hive.bugs import BUGS, PROFILES
from targets.hive.permits import permits_of_profile
from targets.hive.sql.remote import DatabaseKind
from targets.hive.system import (
    DATABASE,
    DATABASE_NODE,
    DATABASE_PORT,
    METASTORE_PORT,
    SERVICE,
    HiveSystem,
    Layout,
)
from targets.hive.zookeeper.sessions import ZooKeeperKind

METASTORES_MAX: Final = 8
_AGE_MS: Final = (100, 2**40)
DRAWN: Final[Mapping[str, Sequence[Any]]] = {
    "metastores": (2, 2, 2, 3),
    "selection": ("", "", "random"),
    "socket_lifetime_ms": (0, 0, 500),
}
"""Choices of a soak: how a client picks the next metastore, and clients that reconnect without
need. Append new entries, so that earlier draws stay the same.
"""


class HiveTarget(
    Target,
    workload="hms-ddl",
    groups=(SERVICE, DATABASE),
    operations=(members.ADD, members.REMOVE),
    variant_of={members.ADD: members.SERVING, members.REMOVE: members.IDLE},
    larger=({"token_store": "zookeeper"}, {"spare_metastores": 1}),
    nemeses=(
        "kill-metastore",
        "pause-metastore",
        "partition-metastore",
        "kill-database",
        "pause-database",
        "power-cut-database",
        "kill-random",
        "pause-random",
        "partition-random-node",
        "restart-random",
        "restart-database",
        "restart-metastores",
    ),
):
    """Stateless metastores, all active, over one database."""

    api_version = TARGET_API_VERSION
    name = "hive"
    doc = "the bundled Hive Metastores, all active over one database"
    vocabularies = frozenset({"hms", "hms-tokens"})
    profiles = tuple(PROFILES)
    bugs = BUGS
    options = (
        Option("metastores", 2, "number of metastores", within=(1, METASTORES_MAX)),
        Option(
            "selection",
            "",
            "sequential or random: which metastore clients try first; by default as the profile",
        ),
        Option("socket-timeout-ms", 2000, "how long clients wait for an answer", (50, 600_000)),
        Option("connect-timeout-ms", 1000, "how long they wait for a connection", (50, 600_000)),
        Option("connect-retries", 3, "rounds over the metastores to connect", within=(1, 100)),
        Option("retry-delay-ms", 1000, "before calls and rounds are tried again", (0, 60_000)),
        Option("failure-retries", 1, "how often a lost call is sent again", within=(0, 10)),
        Option("socket-lifetime-ms", 0, "clients reconnect after it; 0: never", (0, 3_600_000)),
        Option("event-ttl-ms", 86_400_000, "age at which events are removed", (1, 2**40)),
        Option(
            "database",
            "",
            "postgres or store; by default a PostgreSQL, but in simulation the store of ours",
        ),
        Option(
            "token-store",
            "",
            "db, zookeeper or memory: who keeps delegation tokens; by default as the profile",
        ),
        Option(
            "zookeeper",
            "",
            "ensemble or node; by default three real servers, but in simulation a node of ours",
        ),
        Option("token-max-age-ms", 20_000, "greatest age of tokens; Hive: 7 days", _AGE_MS),
        Option("token-renew-ms", 6000, "they are to be renewed before it; Hive: a day", _AGE_MS),
        Option("token-key-ms", 5000, "master keys are replaced after it; Hive: a day", _AGE_MS),
        Option("token-scan-ms", 1000, "expired tokens are removed so often; Hive: 1 h", _AGE_MS),
        Option("fsync", True, "the database syncs its log before it acknowledges"),
        Option("spare-metastores", 0, "metastores that may be added later", within=(0, 4)),
        Option(
            "uri-list",
            "",
            "reread or kept: whether clients read the list of metastores again when they reconnect;"
            " by default reread in strict, else kept",
        ),
    )

    def nodes(self, settings: TargetSettings) -> Sequence[NodeSpec]:
        """Declare the database, then metastores; raises `UsageError` for impossible settings."""
        layout = Layout(settings)
        database, beside = self._database(layout, settings.options)
        config: dict[str, Any] = {
            "port": METASTORE_PORT,
            "database": [DATABASE_NODE, DATABASE_PORT],
            "database_kind": layout.database.value,
            "profile": settings.profile,
            "bugs": sorted(settings.bugs),
            "event_ttl_ms": settings.options["event_ttl_ms"],
            "token_store": layout.token_store.value,
            "token_times": msgspec.to_builtins(layout.token_times),
            "zookeeper": [list(address) for address in layout.zookeepers],
            "zookeeper_kind": layout.zookeeper.value,
        }
        usual = {members.IDLE: members.VARIANTS[members.IDLE]} if layout.spares else {}
        spare = {members.SERVING: members.VARIANTS[members.SERVING]}
        zookeepers, client = self._zookeepers(layout)
        metastores = [
            NodeSpec(
                name=address.node,
                role="hms",
                ports=(METASTORE_PORT,),
                entry="targets.hive.metastore.node:main",
                config=config if address not in layout.spares else {**config, "serves": False},
                variants=spare if address in layout.spares else usual,
                **{**beside, "environment": {**beside.get("environment", {}), **client}},
            )
            for address in (*layout.metastores, *layout.spares)
        ]
        return [*metastores, database, *zookeepers]

    def _database(
        self, layout: Layout, options: Mapping[str, Any]
    ) -> tuple[NodeSpec, Mapping[str, Any]]:
        """The node `db`, and the fields that metastores need to reach it."""
        if layout.database is DatabaseKind.POSTGRES:
            from targets.hive.sql import postgres, server

            postgres.require_driver()
            node = server.postgres_node(
                DATABASE_NODE, DATABASE_PORT, layout.databases, fsync=options["fsync"]
            )
            return node, server.BESIDE
        config = {
            "port": DATABASE_PORT,
            "databases": list(layout.databases),
            "fsync": options["fsync"],
        }
        node = NodeSpec(
            name=DATABASE_NODE,
            role="db",
            ports=(DATABASE_PORT,),
            entry="targets.hive.sql.node:main",
            config=config,
        )
        return node, {}

    def _zookeepers(self, layout: Layout) -> tuple[Sequence[NodeSpec], Mapping[str, str]]:
        """The nodes `zk1..n`, and the environment variables that metastores need to reach them."""
        if layout.zookeepers and layout.zookeeper is ZooKeeperKind.ENSEMBLE:
            from targets.hive.zookeeper import ensemble, kazoo

            kazoo.require_kazoo()
            names = [address.node for address in layout.zookeepers]
            return ensemble.ensemble_nodes(names), ensemble.CLIENT_ENVIRONMENT
        nodes = [
            NodeSpec(
                name=address.node,
                role="zk",
                ports=(address.port,),
                entry="targets.hive.zookeeper.node:main",
                config={"port": address.port},
            )
            for address in layout.zookeepers
        ]
        return nodes, {}

    @override
    def permits(self, settings: TargetSettings) -> Sequence[Permit]:
        return permits_of_profile(settings.profile, Layout(settings).token_store)

    @override
    def draw_options(self, rng: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of one seed of a soak: the `given` ones, and drawn values for the rest."""
        drawn = {name: choices[rng.randrange(len(choices))] for name, choices in DRAWN.items()}
        return {**drawn, **given}

    def open(self, deployment: Deployment) -> HiveSystem:
        return HiveSystem(deployment.env, Layout(deployment.settings))
