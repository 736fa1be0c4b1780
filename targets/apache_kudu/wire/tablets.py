"""Requests for rows, as tablet servers of real Kudu execute them.

The bundled clients name columns by id. Real servers want names and types, which this client
remembers from the table's schema. A scan is read to its end within one call, so that its answer has
all rows of the tablet in key order.

**The latest state.** A real server answers READ_LATEST in any role, with the writes that it has
applied. A new leader may lack the last writes of its predecessor (for hundreds of milliseconds,
measured on 1.18.1). A read that wants the leader's answer is therefore a snapshot at the leader's
present time, which waits for these writes. The answer is refused as NOT_THE_LEADER unless the
server leads before and after the read, in the same term.

**Deposed leaders.** Without leases, a deposed leader that does not know it also answers snapshots
of the present. They lack the writes of the next leader, so they are not repeatable
(`consensus/time_manager.h`; measured on 1.18.1 for as long as the leader was cut off). No permit
covers this. An answer from a leader therefore counts only if a majority of the tablet's voters has
no later term afterwards (`is_confirmed`). Otherwise the attempt is recorded as unconfirmed, and
another replica is asked. The same holds for a follower that still hears from such a leader. This
takes five voters, since the next leader needs a majority elsewhere.

**Timestamps.** Kudu's snapshot at a time has the writes before this time, while the bundled clients
mean the writes up to and including it. This client therefore adds or subtracts one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from targets.apache_kudu.wire import methods as w
from targets.apache_kudu.wire.connection import Reply
from targets.apache_kudu.wire.errors import RpcCode, RpcLayerError, row_error, tablet_error
from targets.apache_kudu.wire.frames import RowsId
from targets.apache_kudu.wire.protobuf import Values, WireFormatError
from targets.apache_kudu.wire.rows import pack, unpack
from targets.apache_kudu.wire.session import Lead, Session, remember
from targets.apache_kudu.wire.tables import ROLES, UNSTATED, column_values, read_schema
from targets.kudu import messages as m
from targets.kudu.rpc import RpcConnectionError, RpcError

Peer = Callable[[str], Awaitable[Session]]
"""A function that opens a session with the server at "node:port", within the same deadline."""
PAGES_MAX: Final = 10_000
_VOTER: Final = 1
_STALE_FOLLOWER_VOTERS: Final = 5
"""The minimum size of a group in which a follower may still hear from a deposed leader."""
_BATCH_BYTES: Final = 4 * 1024 * 1024
TABLET_STATES: Final = {
    0: "BOOTSTRAPPING",
    1: "RUNNING",
    2: "FAILED",
    3: "STOPPING",
    4: "SHUTDOWN",
    5: "INITIALIZED",
    6: "NOT_INITIALIZED",
    7: "STOPPED",
}
DATA_STATES: Final = {0: "COPYING", 1: "READY", 2: "DELETED", 3: "TOMBSTONED"}


# --- writes -----------------------------------------------------------------------------------


async def write(
    s: Session, request: m.WriteRequest, attempt_no: int, client: str
) -> m.WriteResponse:
    """Write rows under the request's id. The id of `client` makes it unique across runs."""
    columns = s.memory.columns_of(request.tablet_id)
    try:
        packed = pack(columns, request.operations)
    except WireFormatError as error:
        return m.WriteResponse(m.TabletError(m.TabletErrorCode.MISMATCHED_SCHEMA, str(error)))
    values: Values = {
        "tablet_id": request.tablet_id,
        "schema": {"columns": [column_values(column) for column in columns]},
        "row_operations": packed._asdict(),
        "propagated_timestamp": request.propagated_timestamp or None,
    }
    identity = request.request_id
    rows_id = RowsId(
        f"{identity.client_id}-{client}",
        identity.seq_no,
        identity.first_incomplete_seq_no,
        attempt_no,
    )

    async def ask() -> m.WriteResponse:
        try:
            return _written(await s.ask(w.WRITE, values, rows_id=rows_id))
        except RpcLayerError as error:
            if error.code != RpcCode.REQUEST_STALE:
                raise
            stale = m.TabletErrorCode.REQUEST_STALE
            return m.WriteResponse(m.TabletError(stale, str(error), indeterminate=True))

    response, lead = await s.in_one_term(ask, request.tablet_id)
    if _is_mismatch(response):
        with contextlib.suppress(RpcError):  # only the next request needs the result
            await _learn_applied(s, request.tablet_id)
    return msgspec.structs.replace(response, term=lead.term)


def _is_mismatch(response: m.TabletResponse) -> bool:
    error = response.error
    return error is not None and error.code is m.TabletErrorCode.MISMATCHED_SCHEMA


async def _learn_applied(s: Session, tablet_id: str) -> None:
    reply = await s.ask(w.LIST_TABLETS, {"need_schema_info": True})
    for each in reply["tablets"]:
        if each["status"]["tablet_id"] == tablet_id and "schema" in each:
            remember(s.memory.applied, tablet_id, read_schema(each["schema"]).columns)


def _written(reply: Reply) -> m.WriteResponse:
    error = tablet_error(reply)
    if error is not None:
        return m.WriteResponse(error)
    refused: list[Values] = reply["per_row_errors"]
    errors = [row_error(each["row_index"], each.get("error", {})) for each in refused]
    listed = tuple(each for each in errors if each is not None)
    if len(listed) < len(errors):
        text = f"rows were refused for reasons that are not known: {refused}"
        unknown = m.TabletErrorCode.UNKNOWN_ERROR
        return m.WriteResponse(m.TabletError(unknown, text, indeterminate=True))
    timestamp = reply.get("timestamp", 0)
    return m.WriteResponse(None, timestamp, listed, timestamp)


# --- reads ------------------------------------------------------------------------------------


async def scan(s: Session, request: m.ScanRequest, peer: Peer) -> m.ScanResponse:
    """Read all rows of a tablet that are in the range."""
    if request.allow_followers and request.mode is m.ReadMode.READ_LATEST:
        return await _scan(s, request)
    if request.mode is not m.ReadMode.READ_LATEST:
        return await _snapshot(s, request, peer)
    lead = await s.last_lead(request.tablet_id)
    if not lead.leads:
        return _not_leading(s, lead)
    now = msgspec.structs.replace(request, mode=m.ReadMode.READ_AT_SNAPSHOT)

    async def ask() -> m.ScanResponse:
        return await _scan(s, now)

    response, lead = await s.in_one_term(ask, request.tablet_id)
    if response.error is not None:
        return response
    if not lead.leads:
        return _not_leading(s, lead)
    replica = m.ReplicaInfo(s.uuid, "LEADER", lead.term)
    return msgspec.structs.replace(response, replica=replica, snap_timestamp=0)


async def _snapshot(s: Session, request: m.ScanRequest, peer: Peer) -> m.ScanResponse:
    async def ask() -> m.ScanResponse:
        return await _scan(s, request)

    tablet_id = request.tablet_id
    response, lead = await s.in_one_term(ask, tablet_id)
    if response.error is not None or await is_confirmed(s, tablet_id, lead, peer):
        return response
    text = f"UNCONFIRMED: {s.connection.address} answered in term {lead.term}, which may be over"
    return m.ScanResponse(m.TabletError(m.TabletErrorCode.NOT_THE_LEADER, text))


async def is_confirmed(s: Session, tablet_id: str, lead: Lead, peer: Peer) -> bool:
    """Whether a majority of the voters has no later term, so that no later leader was elected.

    Followers of groups with fewer than `_STALE_FOLLOWER_VOTERS` voters need no majority.
    """
    state = await s.consensus(tablet_id)
    config = state.get("pending_config") or state.get("committed_config") or {"peers": ()}
    voters = [p.get("uuid", "") for p in config["peers"] if p.get("member_type") == _VOTER]
    if not lead.leads and len(voters) < _STALE_FOLLOWER_VOTERS:
        return True
    names = [name for uuid in voters if uuid != s.uuid and (name := s.known_name(uuid))]
    needed = len(voters) // 2 + 1 - (state.get("current_term") == lead.term)
    asked = [asyncio.create_task(_term_at(peer, name, tablet_id)) for name in names]
    waiting = set(asked)
    try:
        while waiting and needed > 0:
            done, waiting = await asyncio.wait(  # determinism: not simulated
                waiting, return_when=asyncio.FIRST_COMPLETED
            )
            needed -= sum(0 < task.result() <= lead.term for task in done)
    finally:
        for task in asked:
            task.cancel()
    return bool(voters) and needed <= 0


async def _term_at(peer: Peer, address: str, tablet_id: str) -> int:
    try:
        return (await (await peer(address)).lead(tablet_id)).term
    except RpcError:
        return 0


def _not_leading(s: Session, lead: Lead) -> m.ScanResponse:
    text = f"{s.connection.address} does not lead the tablet in term {lead.term}"
    return m.ScanResponse(m.TabletError(m.TabletErrorCode.NOT_THE_LEADER, text))


async def _scan(s: Session, request: m.ScanRequest) -> m.ScanResponse:
    """Scan with the known columns. If they do not fit, scan again with the server's columns."""
    response = await _scan_once(s, request)
    if not _is_mismatch(response):
        return response
    await _learn_applied(s, request.tablet_id)
    return await _scan_once(s, request)


async def _scan_once(s: Session, request: m.ScanRequest) -> m.ScanResponse:
    columns = s.memory.columns_of(request.tablet_id)
    new: Values = {
        "tablet_id": request.tablet_id,
        "projected_columns": [column_values(column) for column in columns],
        "read_mode": int(request.mode),
        "snap_timestamp": request.snapshot_timestamp + 1 if request.snapshot_timestamp else None,
        "propagated_timestamp": request.propagated_timestamp or None,
        "start_primary_key": request.key_start or None,
        "stop_primary_key": request.key_end or None,
    }
    pages = await _pages(s, new)
    error = tablet_error(pages[-1])
    if error is not None:
        return m.ScanResponse(error)
    rows = [row for page in pages for row in _page(columns, page)]
    keys = [position for position, column in enumerate(columns) if column.is_key]
    rows.sort(key=lambda row: tuple(row[position] for position in keys))
    return m.ScanResponse(
        None,
        tuple(column.id for column in columns),
        tuple(rows),
        snap_timestamp=max(0, pages[0].get("snap_timestamp", 0) - 1),
        propagated_timestamp=max(page.get("propagated_timestamp", 0) for page in pages),
        replica=m.ReplicaInfo(s.uuid),
    )


async def _pages(s: Session, new: Values) -> list[Reply]:
    values: Values = {"new_scan_request": new, "call_seq_id": 0, "batch_size_bytes": _BATCH_BYTES}
    pages: list[Reply] = []
    while len(pages) < PAGES_MAX:
        reply = await s.ask(w.SCAN, values)
        pages.append(reply)
        if "error" in reply or not reply.get("has_more_results", False):
            return pages
        scanner = {"scanner_id": reply["scanner_id"], "call_seq_id": len(pages)}
        values = {**scanner, "batch_size_bytes": _BATCH_BYTES}
    raise RpcConnectionError(f"the tablet has more than {PAGES_MAX} pages", sent=True)


def _page(columns: tuple[m.Column, ...], reply: Reply) -> list[tuple[m.Value, ...]]:
    block = reply.get("data", {})
    count = block.get("num_rows", 0)
    if not count:
        return []
    rows, texts = block["rows_sidecar"], block.get("indirect_data_sidecar")
    last = max(rows, texts or 0)
    if last >= len(reply.sidecars):
        raise WireFormatError(f"the answer has {len(reply.sidecars)} sidecars; {last} is missing")
    behind = b"" if texts is None else reply.sidecars[texts]
    return unpack(columns, count, reply.sidecars[rows], behind)


async def list_tablets(s: Session, request: m.ListTabletsRequest) -> m.ListTabletsResponse:
    """Ask a tablet server for its replicas, and for the terms and leaders that they know."""
    del request
    reply = await s.ask(w.LIST_TABLETS, {"need_schema_info": True})
    groups = await s.ask(w.GET_CONSENSUS_STATE, {"dest_uuid": s.uuid})
    states = {group["tablet_id"]: group.get("state", {}) for group in groups["tablets"]}
    tablets = [_hosted(s, each, states) for each in reply["tablets"]]
    by_id = sorted(tablets, key=lambda tablet: tablet.tablet_id)
    return m.ListTabletsResponse(s.uuid, tuple(by_id))


def _hosted(s: Session, each: Values, states: Mapping[str, Values]) -> m.HostedTablet:
    status, part = each["status"], each["status"].get("partition", {})
    tablet_id: str = status["tablet_id"]
    state = states.get(tablet_id, {})
    return m.HostedTablet(
        tablet_id,
        status.get("table_id") or s.memory.tables.get(tablet_id, ""),
        status.get("table_name", ""),
        TABLET_STATES.get(status.get("state", -1), "UNKNOWN"),
        DATA_STATES.get(status.get("data_state", -1), "UNKNOWN"),
        ROLES.get(each.get("role", -1), "UNKNOWN_ROLE"),
        state.get("current_term", 0),
        state.get("leader_uuid") or None,
        m.Partition(part.get("start", b""), part.get("end", b"")),
        each.get("schema_version", UNSTATED),
        UNSTATED,
    )
