"""The target plug-in of the bundled Kudu: its nodes and its options.

Masters are `m1`..`mN` on port 7051. Tablet servers are `t1`..`tN` on port 7050. Both are Kudu's own
ports.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.cluster import NodeSpec, Variant
from harness.permits import Permit
from harness.plugins import (
    TARGET_API_VERSION,
    BugSwitch,
    Deployment,
    KnownDifference,
    Option,
    Target,
    TargetSettings,
    override,
)
from harness.vocabularies.members import AddMaster, RemoveMaster
from targets.apache_kudu.javaclient.choice import JAVA, JAVA_DOC, NATIVE, check_bundled
from targets.kudu.bugs import BUGS, PROFILES, Bug
from targets.kudu.differences import DIFFERENCES
from targets.kudu.flags import draw_flags
from targets.kudu.hms.deployment import configured
from targets.kudu.pages import MASTER_PAGES_PORT, TSERVER_PAGES_PORT
from targets.kudu.permits import permits_of_profile
from targets.kudu.rpc import frame_name
from targets.kudu.system import (
    AS,
    CATALOG,
    CHANGED,
    LOSE_NAME,
    MASTER_PORT,
    STEP_DOWN,
    TSERVER_PORT,
    KuduSystem,
    Layout,
)
from targets.switches import switches_of

TSERVERS_MAX: Final = 99
POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "election": ("candidate group=master", "voted group=master", "leader group=master"),
    "commit": ("appended group=master", "committed group=master", "overwrote", "catalog-ready"),
    "snapshot": (
        "snapshot-saved group=master", "snapshot-received", "snapshot-installed",
        "row-files-written", "snapshot-saved",
    ),
    "tablet": ("superblock-written", "voted", "leader", "appended", "committed"),
    "report": ("report-sent what=incremental", "report-sent what=full", "catalog-ready"),
    "replacement": (
        "replica-change", "config-appended", "config-committed", "tablet-copy-started",
        "tablet-copy-done", "tombstoned", "superblock-written state=COPYING",
    ),
}  # fmt: skip
"""The points of the code at which faults can strike, in groups of related points."""
SIZES: Final[Mapping[str, Sequence[int]]] = {"masters": (3, 3, 3, 3, 5), "tservers": (3, 3, 3, 4)}
"""Cluster sizes that soaks draw; a fourth tablet server can replace a server that is down."""


class KuduTarget(
    Target,
    nemeses=(
        "partition-leader",
        "partition-halves",
        "partition-random-node",
        "kill-leader",
        "kill-tserver",
        "kill-random",
        "kill-all",
        "pause-leader",
        "pause-random",
        "power-cut-leader",
        "power-cut-all",
    ),
    extras=(
        *("at-points",) * 6,
        "slow-disk",
        "slow-disks",
        "disk",
        "bit-rot",
        "clock",
        "slow-links",
        "partition-one-way",
        "partition-flapping",
        "crash-loop",
        "restart-random",
        "slow-cpu",
    ),
    workloads=(*("ddl",) * 6, "mixed", "members", "move", "rows"),
    points=POINTS,
    groups=(CATALOG,),
    operations=(STEP_DOWN, LOSE_NAME, AddMaster.f, RemoveMaster.f),
    checkers=("bounds",),
    larger=({"hms": True},),
    tools=tuple(
        f"harness kudu --cluster CLUSTER {action}"
        for action in ("ksck", "table create metrics", "table list --tablets")
    ),
    state_pages=("/", "/dump-entities", "/tablets"),
    original="apache-kudu",
    clients={
        NATIVE: "the harness's own, over the bundled RPC",
        JAVA: JAVA_DOC,
    },
):
    """The target plug-in of the bundled Kudu: masters with a catalog, and tablet servers."""

    api_version = TARGET_API_VERSION
    name = "kudu"
    doc = "the bundled re-creation of Apache Kudu's masters and tablet servers"
    vocabularies = frozenset(
        {"ddl", "ranges", "append", "rows", "follower-reads", "mixed", "kudu-hms"}
    )
    profiles = tuple(PROFILES)
    bugs = BUGS
    options = (
        Option("masters", 3, "number of masters: 1, 3, 5 or 7"),
        Option("spare-masters", 0, "masters that a run may add later", within=(0, 4)),
        Option("told-spares", True, "tablet servers and clients also know the spare masters"),
        Option(
            "named-twice",
            "",
            "masters that appear twice in the lists of tablet servers, such as m1",
        ),
        Option("tservers", 3, "number of tablet servers", within=(1, TSERVERS_MAX)),
        Option(
            "resend",
            30,
            "percentage of clients that resend mutations",
            within=(0, 100),
        ),
        Option(
            "changed-flag",
            "",
            "flags of the variant `changed`: --fault 'do rolling-restart on all variant=changed'",
        ),
        Option(
            "changed-masters",
            "",
            "masters that nodes of the variant `changed` start with, such as m1,m4,m5",
        ),
        Option("kudu-flag", "", "Kudu flags as NAME=VALUE,NAME=VALUE"),
        Option("hms", False, "run two metastores and their database with the masters"),
        Option(
            "hms-poll-ms", 1000, "interval at which leaders poll the metastore's log", (10, 60_000)
        ),
    )

    # --- declaration -------------------------------------------------------------------------

    @override
    def configured(self, options: Mapping[str, Any]) -> Target:
        return configured(self, options)

    def nodes(self, settings: TargetSettings) -> Sequence[NodeSpec]:
        """Declare masters, then tablet servers; raises `UsageError` for impossible settings."""
        layout = Layout(settings)
        if settings.options.get("client") == JAVA:
            check_bundled(settings)
            _java()

        def spec(name: str, address: str, role: str, port: int, pages: int) -> NodeSpec:
            flags, masters = layout.flags, list(layout.masters.values())
            if role == "tserver":
                masters = [*layout.start_list, *layout.named_twice]
            elif name not in layout.masters:
                # An operation adds the spare to the cluster, so the spare must not join on its own.
                masters.append(address)
                flags = msgspec.structs.replace(flags, master_auto_join_cluster=False)
            config = {
                "masters": masters,
                "address": address,
                "flags": msgspec.to_builtins(flags),
                "profile": settings.profile,
                "bugs": sorted(settings.bugs),
            }
            if role == "master" and layout.hms is not None:
                config["hms"] = msgspec.to_builtins(layout.hms.masters)
            if role == "master" and Bug.STORED_LIST in PROFILES[settings.profile]:
                config["masters_kept"] = True
            variants = {}
            if role == "master" and name not in layout.masters:
                variants = _replacements(layout)
            if layout.changed is not None or layout.changed_list:
                changed = layout.changed or layout.flags
                if role == "master" and not flags.master_auto_join_cluster:
                    changed = msgspec.structs.replace(changed, master_auto_join_cluster=False)
                changed_list = [*(layout.changed_list or masters)]
                if role == "master" and address not in changed_list:
                    changed_list.append(address)
                other = {"flags": msgspec.to_builtins(changed), "masters": changed_list}
                if layout.changed_list and "masters_kept" in config:
                    # `--changed-masters` must replace the list of masters that the node has stored
                    other["masters_kept"] = False
                variants[CHANGED] = Variant(config=other)
            return NodeSpec(
                name=name,
                role=role,
                ports=(port,),
                pages=pages,
                entry=f"targets.kudu.{role}.node:main",
                config=config,
                variants=variants,
            )

        return [
            *(
                spec(name, address, "master", MASTER_PORT, MASTER_PAGES_PORT)
                for name, address in layout.all_masters.items()
            ),
            *(
                spec(name, address, "tserver", TSERVER_PORT, TSERVER_PAGES_PORT)
                for name, address in layout.tservers.items()
            ),
            *(() if layout.hms is None else layout.hms.nodes()),
        ]

    @override
    def switches(self) -> Sequence[BugSwitch]:
        return switches_of(Bug)

    @override
    def known_differences(self) -> Sequence[KnownDifference]:
        return DIFFERENCES

    @override
    def permits(self, settings: TargetSettings) -> Sequence[Permit]:
        return permits_of_profile(settings.profile, Layout(settings).flags)

    @override
    def message_name(self, frame: bytes) -> str:
        return frame_name(frame)

    @override
    def draw_options(self, rng: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
        """Draw the options for one seed of a soak; options in `given` are not drawn."""
        drawn = {name: choices[rng.randrange(len(choices))] for name, choices in SIZES.items()}
        flags = draw_flags(rng, str(given.get("kudu_flag", "")))
        return {**drawn, **given, "kudu_flag": flags}

    def open(self, deployment: Deployment) -> KuduSystem:
        layout = Layout(deployment.settings)
        if deployment.settings.options.get("client") != JAVA:
            return KuduSystem(deployment.env, layout)
        from targets.apache_kudu.gateway.system import JavaKuduSystem

        return JavaKuduSystem(deployment.env, layout, _java())


def _java() -> tuple[str, str]:
    from targets.apache_kudu.javaclient.fetching import require

    return require()


def _replacements(layout: Layout) -> dict[str, Variant]:
    """Return a spare master's variants, one for each initial master whose name it may take.

    In such a variant, the spare joins the masters on its own, after the lost master was removed.
    """
    usual = {
        "masters": [*layout.masters.values()],
        "flags": msgspec.to_builtins(layout.flags),
    }
    return {
        f"{AS}-{name}": Variant(config={**usual, "address": address})
        for name, address in layout.masters.items()
    }
