"""The metastores of a deployment of Kudu, and their database: declared and inspected here."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from harness.cluster import NodeSpec
from harness.env import Address, ClientEnv
from harness.errors import UsageError
from harness.plugins import Target, TargetSettings
from harness.plugins.options import default_values
from targets.hive import api
from targets.hive.bugs import Bug as HiveBug
from targets.hive.client import MetastoreClient
from targets.hive.client.connection import Connect, Door, ask_once
from targets.hive.metastore import kudu_rules as rules
from targets.hive.system import DATABASE_NODE
from targets.hive.system import Layout as HiveLayout
from targets.hive.target import HiveTarget
from targets.kudu import messages as m
from targets.kudu.bugs import Bug, bugs_of
from targets.kudu.hms.client import HaClient, HmsSettings
from targets.kudu.hms.entries import HmsCatalog, tables_of
from targets.kudu.tools.admin import Admin
from targets.kudu.tools.hms import Metastore

METASTORES: Final = 2
PROFILE: Final = "strict"
"""The profile that clusters with metastores require: no other profile has permits for them."""
WORKLOAD: Final = "kudu-hms"
"""The workload that clusters with metastores require, and its vocabulary.

Tables of other workloads have names without a database, which masters refuse.
"""


def configured(target: Target, options: Mapping[str, Any]) -> Target:
    """Return the target for these options: with metastores, it runs only one workload."""
    if not options.get("hms"):
        return target
    target = type(target)()
    target.vocabularies, target.workload, target.workloads = frozenset({WORKLOAD}), WORKLOAD, ()
    return target


class _SilentError(Exception):
    """A metastore gave no answer to a call, or refused the call."""


class HmsLayout:
    """The nodes of the metastores, and the masters' settings for them."""

    usual: Mapping[str, Any] = MappingProxyType({"metastores": METASTORES})
    """Options of the metastores whose values differ from the defaults of the target `hive`."""

    def __init__(self, settings: TargetSettings) -> None:
        """Derive the layout. Raises `UsageError` for impossible settings."""
        options = {**default_values(HiveTarget.options), **self.usual}
        if settings.profile != PROFILE:
            raise UsageError(
                f"--hms with --profile {settings.profile}: metastores need the profile {PROFILE}; "
                "use switches (--bug) for Kudu's own behaviour"
            )
        self._settings = TargetSettings(
            profile=PROFILE, bugs=(), options=options, environment=settings.environment
        )
        self.hive = HiveLayout(self._settings)
        bugs = bugs_of(settings.profile, settings.bugs)
        self.repairs = not {Bug.HMS_ORPHAN, Bug.HMS_CREATE_RETRY, Bug.STALE_MASTER_ADDRS} & bugs
        """Whether the leading master corrects the metastore's entries and reports its success."""
        self.masters = HmsSettings(
            addresses=tuple(f"{store.node}:{store.port}" for store in self.hive.metastores),
            poll_period_s=settings.options["hms_poll_ms"] / 1000,
        )

    def nodes(self) -> Iterator[NodeSpec]:
        for spec in HiveTarget().nodes(self._settings):
            plugin = {"kudu": True} if spec.role == "hms" else {}
            yield msgspec.structs.replace(spec, config={**spec.config, **plugin})


class Metastores:
    """Queries to the metastores of one deployment."""

    ask_s = 1.0
    bugs: frozenset[HiveBug] = frozenset()
    """Defects of the metastores' clients, in addition to the layout's defects."""

    def __init__(
        self, env: ClientEnv, layout: HmsLayout, *, connect: Connect | None = None
    ) -> None:
        """Query the metastores over `connect`; by default, they are bundled metastores."""
        self._env = env
        self._layout = layout
        self._connect: Connect = connect or Door(env)
        self._tool = HaClient(env, layout.masters)

    def client(self, process: int) -> MetastoreClient:
        hive = self._layout.hive
        return MetastoreClient(
            self._env,
            hive.metastores,
            hive.client,
            process=process,
            bugs=hive.bugs | self.bugs,
            connect=self._connect,
        )

    def core(self, rng: random.Random) -> list[str]:
        """Draw enough nodes to serve: one metastore, which clients can find, and the database."""
        return [rng.choice(self._layout.hive.metastores).node, DATABASE_NODE]

    async def metastore(self, masters: Sequence[str], admin: Admin) -> Metastore:
        """Open Kudu's and Hive's catalogs for `kudu hms`; entries are written with these `masters`.

        Raises `ToolError` if no master leads.
        """
        cluster_id = (await admin.ask_leader(m.ConnectToMasterRequest())).cluster_id
        catalog = HmsCatalog(
            self._tool,
            cluster_id=lambda: cluster_id,
            addresses=lambda: masters,
            new_id=lambda: f"{self._env.random.getrandbits(128):032x}",
        )
        return Metastore(admin, catalog, cluster_id)

    async def pending(self) -> tuple[str, ...]:
        """Return the metastores that cannot reach their database, one sentence each."""
        every = self._layout.hive.metastores
        answers = await asyncio.gather(
            *(self._ask(address, api.GetCurrentEventId()) for address in every)
        )
        return tuple(
            f"{address.node} does not answer"
            for address, answer in zip(every, answers, strict=True)
            if answer is None
        )

    async def snapshot(self) -> dict[str, Any] | None:
        """Read the newest event's id and all entries, as `[name, table id, masters, cluster id]`.

        Returns `None` if no metastore answers.
        """
        for address in self._layout.hive.metastores:
            snapshot = await self._entries(address)
            if snapshot is not None:
                return snapshot
        return None

    async def _entries(self, address: Address) -> dict[str, Any] | None:
        async def ask(call: api.ApiCall) -> Any:
            answer = await self._ask(address, call)
            if answer is None:
                raise _SilentError
            return answer

        try:
            event = await ask(api.GetCurrentEventId())
            return {"event": event, "entries": sorted(map(_row, await tables_of(ask)))}
        except _SilentError:
            return None

    def open_work(
        self, masters: Mapping[str, Any], leader: Any, seen: Mapping[str, Any] | None
    ) -> Iterator[str]:
        """Yield the reasons why the two catalogs are not at rest, one sentence each."""
        if seen is None:
            yield "no metastore answers"
            return
        for name, dump in masters.items():
            if dump is not None and dump["hms"]["changing"]:
                yield f"{name} has {dump['hms']['changing']} pending changes in the metastore"
        if leader is None:
            return
        hms = leader["hms"]
        if hms["last_event"] < seen["event"]:
            yield (
                f"the leader applied events up to {hms['last_event']}, the metastore has "
                f"{seen['event']}"
            )
        elif self._layout.repairs and (hms["checked_event"] or -1) < seen["event"]:
            yield "the metastore's entries have not been compared since the last event"
        elif self._layout.repairs and hms["checked_masters"] != hms["masters"]:
            yield "the metastore's entries have not been compared since the masters changed"

    async def _ask(self, address: Address, call: api.ApiCall) -> Any:
        reply = await ask_once(self._connect, address, call, timeout_s=self.ask_s)
        return None if reply is None or reply.error else reply.result


def _row(table: api.MetaTable) -> list[Any]:
    parameters = table.parameters
    masters = parameters.get(rules.MASTER_ADDRESSES, "")
    return [
        table.full_name,
        parameters.get(rules.TABLE_ID, ""),
        masters.split(",") if masters else [],
        parameters.get(rules.CLUSTER_ID, ""),
    ]
