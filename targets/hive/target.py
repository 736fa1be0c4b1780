"""The target plug-in of the bundled metastores: nodes `hms1`..`hmsN` on port 9083, and `db`."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.cluster import NodeSpec
from harness.permits import Permit
from harness.plugins import (
    TARGET_API_VERSION,
    BugSwitch,
    Deployment,
    Option,
    Target,
    TargetSettings,
    override,
)
from targets.hive import members
from targets.hive.bugs import BUGS, PROFILES, Bug
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
from targets.hive.tokens.token_stores import StoreKind
from targets.hive.zookeeper.sessions import ZooKeeperKind
from targets.switches import switches_of

METASTORES_MAX: Final = 8
_AGE_MS: Final = (100, 2**40)
DRAWN: Final[Mapping[str, Sequence[Any]]] = {
    "metastores": (2, 2, 2, 3),
    "selection": ("", "", "random"),
    "socket_lifetime_ms": (0, 0, 500),
    "database_log_kb": (512, 4),  # with 4 KiB, the database writes a checkpoint every few seconds
}
"""The values of options from which a soak draws.

Append new entries, so that the draws of earlier seeds stay the same.
"""
TOKENS: Final = "hms-tokens"
AT_CHANGES: Final = ("restart-database", "at-points")
"""The nemeses that strike when a metastore writes to the database."""


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
    extras=("at-points",),
    points={
        "change": ("change-written",),
        "checkpoint": ("checkpoint-due", "checkpoint-written", "change-written"),
    },
):
    """The target plug-in of the bundled metastores: stateless, all active, with one database."""

    api_version = TARGET_API_VERSION
    name = "hive"
    doc = "the bundled Hive Metastores, all active over one database"
    vocabularies = frozenset({"hms", TOKENS})
    profiles = tuple(PROFILES)
    bugs = BUGS
    options = (
        Option("metastores", 2, "number of metastores", within=(1, METASTORES_MAX)),
        Option(
            "selection",
            "",
            "order in which clients try metastores: sequential (default in strict) or random",
        ),
        Option("socket-timeout-ms", 2000, "how long clients wait for an answer", (50, 600_000)),
        Option("connect-timeout-ms", 1000, "how long clients wait for a connection", (50, 600_000)),
        Option(
            "connect-retries",
            3,
            "rounds in which a client tries all metastores before it gives up connecting",
            within=(1, 100),
        ),
        Option("retry-delay-ms", 1000, "pause before a client retries", (0, 60_000)),
        Option(
            "failure-retries",
            1,
            "times that a client resends a call without an answer",
            within=(0, 10),
        ),
        Option(
            "socket-lifetime-ms",
            0,
            "age at which clients replace a connection; 0: never",
            (0, 3_600_000),
        ),
        Option(
            "event-ttl-ms",
            86_400_000,
            "age at which events are removed from the notification log",
            (1, 2**40),
        ),
        Option(
            "database",
            "",
            "postgres (default), or store: a bundled database, the default in simulation",
        ),
        Option(
            "token-store",
            "",
            "where delegation tokens are kept: db (default in strict), zookeeper or memory",
        ),
        Option(
            "zookeeper",
            "",
            "ensemble (default): three real ZooKeeper servers, or node: a bundled server, the "
            "default in simulation",
        ),
        Option("token-max-age-ms", 20_000, "maximum age of tokens; Hive: 7 days", _AGE_MS),
        Option(
            "token-renew-ms", 6000, "age at which an unrenewed token expires; Hive: 1 d", _AGE_MS
        ),
        Option("token-key-ms", 5000, "age at which master keys are replaced; Hive: 1 d", _AGE_MS),
        Option("token-scan-ms", 1000, "period of removing expired tokens; Hive: 1 h", _AGE_MS),
        Option("fsync", True, "the database syncs its log before it acknowledges"),
        Option(
            "database-log-kb",
            512,
            "size of the bundled database's log above which a checkpoint replaces it",
            within=(1, 1_000_000),
        ),
        Option("spare-metastores", 0, "metastores that a run may add later", within=(0, 4)),
        Option(
            "uri-list",
            "",
            "reread (default in strict): clients read the list of metastores again when they "
            "reconnect; or kept",
        ),
    )

    def nodes(self, settings: TargetSettings) -> Sequence[NodeSpec]:
        """Declare metastores, database and ZooKeeper; raise `UsageError` for invalid settings."""
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
            "log_bytes_max": options["database_log_kb"] * 1024,
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
    def switches(self) -> Sequence[BugSwitch]:
        return switches_of(Bug)

    @override
    def pointless(self, settings: TargetSettings) -> Collection[str]:
        """Return the nemeses that strike only at changes in the database, if this run makes none.

        A run makes no such changes if it changes only tokens and these are in another store.
        """
        changes_nothing = settings.vocabulary == TOKENS and (
            Layout(settings).token_store is not StoreKind.DB
        )
        return AT_CHANGES if changes_nothing else ()

    @override
    def permits(self, settings: TargetSettings) -> Sequence[Permit]:
        return permits_of_profile(settings.profile, Layout(settings).token_store)

    @override
    def draw_options(self, rng: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
        """Draw the options for one seed of a soak; options in `given` are not drawn."""
        drawn = {name: choices[rng.randrange(len(choices))] for name, choices in DRAWN.items()}
        return {**drawn, **given}

    def open(self, deployment: Deployment) -> HiveSystem:
        return HiveSystem(deployment.env, Layout(deployment.settings))
