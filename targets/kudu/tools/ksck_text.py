"""A cluster check as a plain report, in the order and with the words of Kudu's `ksck`.

`concise` omits healthy tablets, and tables of configurations that agree; `full` includes them. The
last line is OK or FAILED.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence

from targets.kudu.tools.data_table import data_table
from targets.kudu.tools.ksck_results import (
    ChecksumResults,
    ConfigType,
    ConsensusState,
    Health,
    KsckResults,
    ReplicaSummary,
    ServerHealth,
    ServerSummary,
    TabletSummary,
)

_HEALTH_WORDS = {
    Health.UNDER_REPLICATED: "UNDER-REPLICATED",
    Health.CONSENSUS_MISMATCH: "UNAVAILABLE",
}
_RULE = "=" * 18


_USUAL_STATE = "NONE"


def plain_report(
    results: KsckResults, *, tserver_states: Mapping[str, str] | None = None, full: bool = False
) -> str:
    """Return the whole report. `tserver_states` maps uuids to maintenance states."""
    parts = [
        _masters(results, full=full),
        _states(tserver_states or {}),
        _servers("Tablet Server", results.tserver_summaries),
        _versions(results),
        _tablets(results, full=full),
        _tables(results),
        _replica_counts(results),
        _checksums(results.checksum_results),
        _totals(results),
        _ending(results),
    ]
    return "\n".join(
        text for text in ("\n".join(part) + "\n" for part in map(list, parts)) if text.strip()
    )


def _masters(results: KsckResults, *, full: bool) -> Iterator[str]:
    yield from _servers("Master", results.master_summaries)
    if full or results.master_consensus_conflict:
        states = {state.uuid: state.consensus_state for state in results.master_consensus_states}
        yield from _matrix(results.master_uuids, None, states)


def _servers(kind: str, servers: Sequence[ServerSummary]) -> Iterator[str]:
    if not servers and kind != "Master":
        return
    yield f"{kind} Summary"
    headings = ["UUID", "Address", "Status"]
    rows = [[s.uuid, s.address, s.health.value] for s in servers]
    if kind != "Master":
        headings.append("Location")
        rows = [[*row, s.location or "<none>"] for row, s in zip(rows, servers, strict=True)]
    yield from data_table(headings, rows)
    for server in servers:
        if server.health is not ServerHealth.HEALTHY:
            yield f"Error from {server.address}: {server.status} ({server.health})"


def _states(states: Mapping[str, str]) -> Iterator[str]:
    rows = [[uuid, state] for uuid, state in sorted(states.items()) if state != _USUAL_STATE]
    if rows:
        yield "Tablet Server States"
        yield from data_table(["Server", "State"], rows)


def _versions(results: KsckResults) -> Iterator[str]:
    if results.version_summaries:
        yield "Version Summary"
        total = sum(len(version.servers) for version in results.version_summaries)
        rows = [
            [
                version.version,
                f"all {total} server(s) checked"
                if len(version.servers) == total
                else ", ".join(version.servers),
            ]
            for version in results.version_summaries
        ]
        yield from data_table(["Version", "Servers"], rows)


def _tablets(results: KsckResults, *, full: bool) -> Iterator[str]:
    for tablet in results.tablet_summaries:
        if full or tablet.health is not Health.HEALTHY:
            yield from _tablet(tablet)


def _tablet(tablet: TabletSummary) -> Iterator[str]:
    yield tablet.status
    for replica in tablet.replica_infos:
        where = replica.ts_uuid + (f" ({replica.ts_address})" if replica.ts_address else "")
        role = " [LEADER]" if replica.is_leader else "" if replica.is_voter else " [NONVOTER]"
        yield f"  {where}: {_replica_state(replica)}{role}"
        if replica.ts_healthy and replica.state not in (None, "RUNNING"):
            yield f"    State:       {replica.state}"
            yield f"    Data state:  {replica.data_state}"
    states = {r.ts_uuid: r.consensus_state for r in tablet.replica_infos if r.consensus_state}
    uuids = [replica.ts_uuid for replica in tablet.replica_infos]
    yield from _matrix(uuids, tablet.master_cstate, states)


def _replica_state(replica: ReplicaSummary) -> str:
    if not replica.ts_healthy:
        return "TS unavailable"
    if replica.state is None:
        return "missing"
    return "RUNNING" if replica.state == "RUNNING" else "not running"


def _matrix(
    uuids: Sequence[str], master: ConsensusState | None, states: Mapping[str, ConsensusState]
) -> Iterator[str]:
    others = sorted(
        {uuid for state in states.values() for uuid in (*state.voter_uuids, *state.non_voter_uuids)}
    )
    letters = string.ascii_uppercase
    ordered = list(dict.fromkeys([*uuids, *others]))
    labels = {uuid: letters[i % len(letters)] for i, uuid in enumerate(ordered)}
    yield "All reported replicas are:"
    yield from (f"  {label} = {uuid}" for uuid, label in labels.items())
    yield "The consensus matrix is:"
    rows = [] if master is None else [_matrix_row("master", master, labels)]
    for uuid in uuids:
        state = states.get(uuid)
        if state is None:
            rows.append([labels[uuid], "[config not available]", "", "", ""])
        else:
            rows.append(_matrix_row(labels[uuid], state, labels))
    headings = ["Config source", "Replicas", "Current term", "Config index", "Committed?"]
    yield from data_table(headings, rows)


def _matrix_row(label: str, state: ConsensusState, labels: Mapping[str, str]) -> list[str]:
    def cell(uuid: str) -> str:
        if uuid not in state.voter_uuids and uuid not in state.non_voter_uuids:
            return ""
        mark = "*" if uuid == state.leader_uuid else "~" if uuid in state.non_voter_uuids else ""
        return labels[uuid] + mark

    replicas = "".join(f"{cell(uuid):4}" for uuid in labels)
    term = "" if state.term is None else str(state.term)
    index = "" if state.opid_index is None else str(state.opid_index)
    return [label, replicas, term, index, "No" if state.type is ConfigType.PENDING else "Yes"]


def _tables(results: KsckResults) -> Iterator[str]:
    if results.count_summaries and not results.table_summaries:
        yield "The cluster doesn't have any matching tables"
    if not results.table_summaries:
        return
    yield "Summary by table"
    headings = ["Name", "RF", "Status", "Total Tablets", "Healthy", "Recovering",
                "Under-replicated", "Unavailable"]  # fmt: skip
    rows = [
        [
            table.name,
            str(table.replication_factor),
            _HEALTH_WORDS.get(table.health, table.health.value),
            str(table.total_tablets),
            str(table.healthy_tablets),
            str(table.recovering_tablets),
            str(table.underreplicated_tablets),
            str(table.unavailable_tablets + table.consensus_mismatch_tablets),
        ]
        for table in results.table_summaries
    ]
    yield from data_table(headings, rows)


def _replica_counts(results: KsckResults) -> Iterator[str]:
    counts = dict.fromkeys((server.uuid for server in results.tserver_summaries), 0)
    for tablet in results.tablet_summaries:
        for replica in tablet.replica_infos:
            counts[replica.ts_uuid] = counts.get(replica.ts_uuid, 0) + 1
    if not counts or not results.tablet_summaries:
        return
    ordered = sorted(counts.values())
    yield "Tablet Replica Count Summary"
    quantiles = [("Minimum", 0.0), ("First Quartile", 0.25), ("Median", 0.5),
                 ("Third Quartile", 0.75), ("Maximum", 1.0)]  # fmt: skip
    rows = [[name, str(ordered[int(share * (len(ordered) - 1))])] for name, share in quantiles]
    yield from data_table(["Statistic", "Replica Count"], rows)


def _checksums(checksums: ChecksumResults | None) -> Iterator[str]:
    if checksums is None or not checksums.tables:
        return
    yield "Checksum Summary"
    if checksums.snapshot_timestamp is not None:
        yield f"Using snapshot timestamp: {checksums.snapshot_timestamp}"
    for name, tablets in checksums.tables.items():
        yield from ("-" * 23, name, "-" * 23)
        for tablet in tablets:
            for replica in tablet.replica_checksums:
                text = f"Error: {replica.status}"
                if replica.checksum is not None:
                    text = f"Checksum: {replica.checksum}"
                yield f"T {tablet.tablet_id} P {replica.ts_uuid} ({replica.ts_address}): {text}"
            if tablet.mismatch:
                yield f">> Mismatch found in table {name} tablet {tablet.tablet_id}"


def _totals(results: KsckResults) -> Iterator[str]:
    if not results.table_summaries:
        return
    yield "Total Count"
    rows = [
        [name.capitalize(), str(getattr(counts, name.replace(" ", "_")))]
        for counts in results.count_summaries
        for name in ("masters", "tservers", "tables", "tablets", "replicas")
    ]
    words = {"Tservers": "Tablet Servers"}
    yield from data_table(["", "Total Count"], [[words.get(n, n), count] for n, count in rows])


def _ending(results: KsckResults) -> Iterator[str]:
    for title, lines in (("Warnings:", results.warnings), ("Errors:", results.errors)):
        if lines:
            yield from (_RULE, title, _RULE, *lines, "")
    yield "OK" if results.ok else "FAILED"
