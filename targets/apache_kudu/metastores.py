"""Real Hive Metastores for real Kudu (`--hms`): their declaration, inspection and permits.

The deployment is that of the target `apache-hive`, with Hive 3.1.3. No RPC and no page shows which
event a master applied last. The harness therefore asks the leader to drop a table that does not
exist: the leader answers "not found" only after it has applied all earlier events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from harness.cluster import NodeSpec
from harness.env import ClientEnv
from harness.permits import Permit
from harness.plugins import TargetSettings, override
from targets.apache_hive.artefacts import HIVE3
from targets.apache_hive.connection import ThriftDoor, make_databases
from targets.apache_hive.database import database_node
from targets.apache_hive.metastore import event_settings, metastore_node
from targets.apache_hive.target import (
    START_WITHOUT_DATABASE,
    USUAL,
    require_libraries,
    whole_seconds,
)
from targets.apache_kudu.wire import WireRpc
from targets.apache_kudu.wire.administration import applies_events
from targets.hive import api
from targets.hive.bugs import Bug as HiveBug
from targets.hive.system import DATABASE_NODE
from targets.kudu.hms.deployment import METASTORES, PROFILE, HmsLayout, Metastores
from targets.kudu.rpc import RpcError

_CHECKER: Final = "kudu-hms"
_EVENTS_KEPT_S: Final = 3600
_CALL_S: Final = 5.0
_STAYS_S: Final = 12.0
"""Seconds after which a difference between the catalogs is no longer a change in progress.

This is about the time of two calls to a metastore (see the limits below), the most that a change
takes.
"""
_TIMES_S: Final = {"conn": 2, "send": 2, "recv": 3}
"""Time limits, in seconds, of the masters' calls to metastores. Kudu sets them to 60 s."""


class RealHms(HmsLayout):
    """The nodes of real metastores: `hms1`, `hms2` and their PostgreSQL `db`."""

    usual = MappingProxyType(
        {
            "metastores": METASTORES,
            **{name.replace("-", "_"): value for name, value in USUAL.items()},
        }
    )

    def __init__(self, settings: TargetSettings) -> None:
        """Derive the layout. Raises `UsageError` for impossible settings."""
        super().__init__(msgspec.structs.replace(settings, profile=PROFILE, bugs=()))
        self.repairs = False
        self.members_change = settings.options["spare_masters"] > 0
        self.poll_s = whole_seconds(settings, "hms-poll-ms", "masters")

    @override
    def nodes(self) -> Iterator[NodeSpec]:
        """Declare the metastores; raises `UsageError` if artefacts or libraries are missing."""
        require_libraries("--hms with the target 'apache-kudu'")
        place, before = HIVE3.require(), DATABASE_NODE
        for address in self.hive.metastores:
            events = event_settings(_EVENTS_KEPT_S)
            yield metastore_node(address.node, (before,), place, events, release=HIVE3)
            before = address.node
        yield database_node(place, HIVE3)

    def before(self, server: NodeSpec) -> NodeSpec:
        """Return the declaration of a server. Masters start once the metastores are ready."""
        names = tuple(address.node for address in self.hive.metastores)
        after = names if server.role == "master" else ()
        return msgspec.structs.replace(server, after=after)

    def flags(self) -> dict[str, str]:
        """Return the masters' flags."""
        uris = [f"thrift://{{peer:{node}:{port}}}" for node, port in self.hive.metastores]
        times = {f"hive_metastore_{kind}_timeout_seconds": s for kind, s in _TIMES_S.items()}
        poll = "hive_metastore_notification_log_poll_period_seconds"
        numbers = {poll: self.poll_s, **times}
        return {"hive_metastore_uris": ",".join(uris), **{k: str(v) for k, v in numbers.items()}}


class RealMetastores(Metastores):
    """Queries to the real metastores of one deployment, and to the masters that follow them."""

    ask_s = 5.0
    bugs = frozenset({HiveBug.NO_REQUEST_IDS})

    def __init__(self, env: ClientEnv, layout: RealHms, rpc: WireRpc) -> None:
        super().__init__(env, layout, connect=ThriftDoor(env))
        self._rpc = rpc
        self._has_databases = False
        self._names: dict[str, str] = {}
        """Maps a master's advertised address, which entries contain, to its name ("m1:7051")."""
        self._differ: dict[str, float] = {}
        """The time at which each difference between the catalogs was first seen."""

    @override
    async def pending(self) -> tuple[str, ...]:
        """Create the workload's databases if they are missing, then ask all metastores."""
        if not self._has_databases:
            hive = self._layout.hive
            first, names = hive.metastores[0], hive.databases
            made = await make_databases(self._connect, first, names, timeout_s=self.ask_s)
            self._has_databases = made
        more = () if self._has_databases else ("the metastore's databases do not exist yet",)
        return (*await super().pending(), *more)

    async def applied(self, leader: str) -> int | None:
        """Return the id of an event up to which the leader has applied all events, if known."""
        events = [
            await self._ask(address, api.GetCurrentEventId())
            for address in self._layout.hive.metastores
        ]
        newest = [int(event) for event in events if event is not None]
        if not newest:
            return None
        try:
            done = await self._rpc.administer(leader, applies_events, timeout_s=_CALL_S)
        except RpcError:
            return None
        return min(newest) if done else None

    async def learn_names(self, masters: Iterable[str]) -> None:
        """Ask for the addresses that masters advertise, if they are still unknown."""
        await self._rpc.learn_advertised(masters, self._names, timeout_s=_CALL_S)

    @override
    async def snapshot(self) -> dict[str, Any] | None:
        """Read the newest event's id and all entries, as `[name, table id, masters, cluster id]`.

        Known addresses of masters are replaced by the names of their nodes.
        """
        seen = await super().snapshot()
        if seen is None:
            return None
        entries = [
            [name, ident, [self._names.get(each, each) for each in masters], cluster]
            for name, ident, masters, cluster in seen["entries"]
        ]
        return {**seen, "entries": entries}

    @override
    def open_work(
        self, masters: Mapping[str, Any], leader: Any, seen: Mapping[str, Any] | None
    ) -> Iterator[str]:
        """Yield the reasons why the two catalogs are not at rest, one sentence each.

        Kudu never repairs a difference. A difference that has lasted is therefore not worth waiting
        for; the checker judges it.
        """
        del masters
        if seen is None:
            yield "no metastore answers"
        elif leader is not None and "hms" not in leader:
            yield "events of the metastore wait for the leading master"
        elif leader is not None:
            last = leader["hms"]["last_event"]
            if last < seen["event"]:
                yield f"the leader applied events up to {last}, the metastore has {seen['event']}"
            yield from self._fresh(_differences(leader, seen))

    def _fresh(self, differences: list[str]) -> list[str]:
        now_s = self._env.clock.monotonic_ns() / 1e9
        self._differ = {text: self._differ.get(text, now_s) for text in differences}
        return [text for text, at_s in self._differ.items() if now_s - at_s < _STAYS_S]


def _differences(leader: Mapping[str, Any], seen: Mapping[str, Any]) -> list[str]:
    tables = {(table["name"], table["id"]) for table in leader["tables"]}
    entries = {(name, ident) for name, ident, _, _ in seen["entries"]}
    ours = [f"only Kudu has {name} ({ident})" for name, ident in sorted(tables - entries)]
    return ours + [f"only Hive has {name} ({ident})" for name, ident in sorted(entries - tables)]


def hms_permits(layout: RealHms) -> list[Permit]:
    """Return the permits for deviations of real Kudu from the bundled profile `strict`."""
    permits = [
        START_WITHOUT_DATABASE,
        Permit(
            name="hms-orphan",
            why="a master that dies or loses its leadership during a create, or resends one, may "
            "leave an entry without a table (kudu hms fix drops it)",
            rules={_CHECKER: ("orphan",)},
        ),
        Permit(
            name="hms-event-skipped",
            why="masters skip an event that they cannot apply (KUDU-2475)",
            rules={_CHECKER: ("names", "no-entry")},
        ),
    ]
    if layout.members_change:
        permits.append(
            Permit(
                name="hms-stale-masters",
                why="a leader writes entries with the list of masters with which it was started; "
                "kudu hms fix corrects them once all masters have been restarted",
                rules={_CHECKER: ("addresses",)},
            )
        )
    return permits
