"""The target plug-in of real Kudu: masters `m1`..`mN` and tablet servers `t1`..`tN`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.cluster import NodeSpec
from harness.errors import UsageError
from harness.permits import ORPHAN_REPLICAS, Permit
from harness.plugins import TARGET_API_VERSION, Deployment, Option, Target, TargetSettings, override
from harness.plugins.options import default_values
from harness.vocabularies.members import AddMaster, RemoveMaster
from targets.apache_kudu.fetching import VERSIONS, require, require_libraries
from targets.apache_kudu.flags import FLAG_FAULTS
from targets.apache_kudu.javaclient.choice import JAVA, JAVA_DOC, NATIVE, check_real
from targets.apache_kudu.javaclient.fetching import require as require_java
from targets.apache_kudu.metastores import RealHms, hms_permits
from targets.apache_kudu.servers import UPGRADED, parse_flags, server_nodes
from targets.apache_kudu.upgrade import UPGRADE
from targets.kudu.hms.deployment import configured
from targets.kudu.permits import permits_of_profile
from targets.kudu.system import CATALOG, STEP_DOWN, Layout
from targets.kudu.target import KuduTarget

if TYPE_CHECKING:
    from targets.apache_kudu.system import ApacheKuduSystem

_OPTIONS: Final = ("masters", "spare-masters", "tservers", "kudu-flag", "hms", "hms-poll-ms")


_REAL: Final = (
    Permit(
        name=ORPHAN_REPLICAS,
        # First case: a DeleteTablet arrives before the tablet's CreateTablet has started, and the
        # server answers "not found", which the master takes for a success. When the server later
        # reports the replica, the master skips the deletion because one is pending, and the server
        # does not report the replica again. Second case: masters delete a replica outside its group
        # only if its configuration is older than the group's. If another leader undid the ADD_PEER
        # of a copy, the copy has the group's own configuration.
        why="a table that is deleted while it is being created may leave replicas behind, and a "
        "leader that dies while it adds a server may leave the copy there",
    ),
)
"""Permits for behaviour that only real servers show, not bundled ones with `modern`."""


class ApacheKuduTarget(
    Target,
    workload="ddl",
    usual={"profile": "modern"},
    groups=(CATALOG,),
    operations=(STEP_DOWN, AddMaster.f, RemoveMaster.f, UPGRADE, *FLAG_FAULTS),
    variant_of={UPGRADE: UPGRADED},
    extras=("set-flag",),
    larger=(
        {"kudu_version": VERSIONS[1], "upgrade_to": VERSIONS[0]},
        {"spare_masters": 2},
        {"hms": True},
    ),
    nemeses=(
        "partition-leader",
        "partition-halves",
        "partition-random-node",
        "kill-leader",
        "kill-tserver",
        "kill-random",
        "pause-leader",
        "pause-random",
    ),
    clients={
        NATIVE: "the harness's own, over Kudu's RPC",
        JAVA: JAVA_DOC,
    },
):
    """The target plug-in of real Kudu. Its native client is that of `kudu`, over Kudu's RPCs."""

    api_version = TARGET_API_VERSION
    name = "apache-kudu"
    doc = "real Kudu: masters and tablet servers (harness fetch kudu)"
    vocabularies = frozenset({"ddl", "rows", "mixed", "kudu-hms"})
    profiles = ("modern",)
    bugs: dict[str, str] = {}  # noqa: RUF012 - nothing changes it
    options = (
        Option("kudu-version", VERSIONS[0], f"the release: {', '.join(VERSIONS)}"),
        Option("upgrade-to", "", "the release to which the nemesis rolling-upgrade upgrades"),
        *(option for option in KuduTarget.options if option.name in _OPTIONS),
    )

    @override
    def configured(self, options: Mapping[str, Any]) -> Target:
        return configured(self, options)

    def nodes(self, settings: TargetSettings) -> Sequence[NodeSpec]:
        """Declare the servers. Raises `UsageError` if their programs or libraries are missing."""
        version, newer = settings.options["kudu_version"], settings.options["upgrade_to"]
        for option, chosen in (("kudu-version", version), ("upgrade-to", newer or version)):
            if chosen not in VERSIONS:
                raise UsageError(
                    f"--{option} is {chosen!r}; it must be one of {', '.join(VERSIONS)}"
                )
        if newer and VERSIONS.index(newer) >= VERSIONS.index(version):
            raise UsageError(
                f"--upgrade-to is {newer!r}, which is not later than --kudu-version {version!r}; "
                "give a later release, since Kudu cannot read data that a later release has written"
            )
        place, later = require(version), require(newer) if newer else None
        image = settings.environment == "docker"
        if settings.options["client"] == JAVA:
            check_real(settings)
            require_java()
        for each in filter(None, (place, later) if not image else ()):
            require_libraries(each)
        layout = layout_of(settings)
        flags = parse_flags(settings.options["kudu_flag"])
        spares = [name for name in layout.all_masters if name not in layout.masters]
        hms = layout.hms if isinstance(layout.hms, RealHms) else None
        servers = server_nodes(
            place,
            [*layout.masters],
            [*layout.tservers],
            flags,
            spares=spares,
            members_change=len(layout.all_masters) > 1,
            image=image,
            newer=later,
            master_flags={} if hms is None else hms.flags(),
        )
        return servers if hms is None else [*map(hms.before, servers), *hms.nodes()]

    @override
    def permits(self, settings: TargetSettings) -> Sequence[Permit]:
        layout = layout_of(settings)
        hms = hms_permits(layout.hms) if isinstance(layout.hms, RealHms) else ()
        return [*permits_of_profile(settings.profile, layout.flags), *_REAL, *hms]

    def open(self, deployment: Deployment) -> ApacheKuduSystem:
        from targets.apache_kudu.system import ApacheKuduSystem

        settings = deployment.settings
        java = require_java() if settings.options["client"] == JAVA else None
        return ApacheKuduSystem(deployment.env, layout_of(settings), java=java)


def layout_of(settings: TargetSettings) -> Layout:
    """Build the layout. Options that only bundled servers have keep their defaults."""
    theirs = default_values(KuduTarget.options)
    chosen = {name: settings.options[name] for name in ("masters", "spare_masters", "tservers")}
    layout = Layout(msgspec.structs.replace(settings, options={**theirs, **chosen}))
    if settings.options["hms"]:
        layout.hms = RealHms(settings)
    return layout
