"""Calls of Kudu's `TabletServerService`, as bundled tablet servers answer them.

Kudu's clients name columns, whereas bundled servers number them. Before each write and scan, the
gateway therefore asks the server for the columns of its tablet. If the columns change afterwards,
the server refuses the request because of its column numbers.

A snapshot at a timestamp excludes the writes at this timestamp in Kudu, but includes them in
bundled servers. The gateway therefore adds or subtracts one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from targets.apache_kudu.gateway.errors import (
    INVALID_MUTATION,
    INVALID_SCAN_CALL,
    SCANNER_EXPIRED,
    error_values,
    mismatched,
    row_error,
    tablet_error,
)
from targets.apache_kudu.gateway.link import CallError, Handler, Link, Request, Scanner
from targets.apache_kudu.gateway.masters import ping
from targets.apache_kudu.wire import methods as w
from targets.apache_kudu.wire.connection import Reply
from targets.apache_kudu.wire.errors import RpcCode
from targets.apache_kudu.wire.methods import Method
from targets.apache_kudu.wire.protobuf import Values, WireFormatError
from targets.apache_kudu.wire.rows import pack_rows, read_cell, read_operations
from targets.apache_kudu.wire.tables import ROLE_NUMBERS, read_schema, stored_schema
from targets.apache_kudu.wire.tablets import DATA_STATES, TABLET_STATES
from targets.kudu import messages as m
from targets.kudu.messages import AppStatus, TabletErrorCode
from targets.kudu.tserver.write_op import ROWS_MAX

_UNTRANSLATED: Final = ("last_primary_key", "row_format_flags", "snap_start_timestamp")
_NO_LIMIT: Final = 2**63 - 1
_STATE_NUMBERS: Final = {name: number for number, name in TABLET_STATES.items()}
_DATA_STATE_NUMBERS: Final = {name: number for number, name in DATA_STATES.items()}


class _MismatchError(Exception):
    """The request does not fit the columns of the tablet."""


async def _columns(link: Link, request: Request, tablet_id: str) -> dict[str, m.Column]:
    answer = await link.ask(m.ListTabletsRequest(), request)
    for tablet in answer.tablets:
        if tablet.tablet_id == tablet_id:
            return {column.name: column for column in tablet.columns}
    return {}


def _known(columns: Mapping[str, m.Column], asked: Sequence[Values]) -> tuple[m.Column, ...]:
    names = [column["name"] for column in asked]
    unknown = [name for name in names if name not in columns]
    if unknown:
        text = f"Some columns are not present in the current schema: {', '.join(unknown)}"
        raise _MismatchError(text)
    return tuple(columns[name] for name in names)


# --- writes -----------------------------------------------------------------------------------


async def _write(link: Link, request: Request) -> Values:
    values, identity = request.values, request.rows_id
    if identity is None:
        raise CallError(RpcCode.INVALID_REQUEST, "a write without a request id")
    tablet_id = values.get("tablet_id", "")
    columns = await _columns(link, request, tablet_id)
    if not columns:
        return _not_here(tablet_id)
    try:
        operations = _operations(columns, values)
    except _MismatchError as error:
        return mismatched(str(error))
    except WireFormatError as error:
        return error_values(INVALID_MUTATION, AppStatus.INVALID_ARGUMENT, str(error))
    write = m.WriteRequest(
        tablet_id,
        m.RowRequestId(identity.client_id, identity.seq_no, identity.first_incomplete),
        operations,
        values.get("propagated_timestamp", 0),
    )
    answer = await link.ask(write, request)
    return tablet_error(answer) or {
        "per_row_errors": [row_error(error) for error in answer.row_errors],
        "timestamp": answer.timestamp,
    }


def _operations(columns: Mapping[str, m.Column], values: Values) -> tuple[m.RowOperation, ...]:
    asked = values.get("schema", {}).get("columns", [])
    theirs = read_schema({"columns": asked}).columns
    current = _known(columns, asked)
    if any(ours.type != their.type for ours, their in zip(current, theirs, strict=True)):
        raise _MismatchError("The type of a column is not the one in the current schema")
    # Rows are packed by the client's columns, so decode them by these, but with the server's ids.
    numbered = [
        msgspec.structs.replace(their, id=ours.id)
        for ours, their in zip(current, theirs, strict=True)
    ]
    rows = values.get("row_operations", {})
    return read_operations(
        numbered, rows.get("rows", b""), rows.get("indirect_data", b""), rows_max=ROWS_MAX
    )


def _not_here(tablet_id: str) -> Values:
    text = f"Tablet not found: {tablet_id}"
    return error_values(TabletErrorCode.TABLET_NOT_FOUND, AppStatus.NOT_FOUND, text)


# --- scans ------------------------------------------------------------------------------------


async def _scan(link: Link, request: Request) -> Values:
    new = request.values.get("new_scan_request")
    if new is None:
        return await _continue(link, request)
    columns = await _columns(link, request, new.get("tablet_id", ""))
    if not columns:
        return _not_here(new.get("tablet_id", ""))
    unknown = [name for name in _UNTRANSLATED if new.get(name)]
    if new.get("limit", _NO_LIMIT) < _NO_LIMIT:
        unknown.append("limit")
    if unknown:
        return _bad_scan(f"the bundled servers have no scans with {', '.join(unknown)}")
    try:
        scanner = _scanner(columns, new)
    except _MismatchError as error:
        return mismatched(str(error))
    except (ValueError, KeyError) as error:
        return _bad_scan(f"the scan is not readable: {error}")
    return await _next_page(link, request, scanner)


async def _continue(link: Link, request: Request) -> Values:
    values = request.values
    scanner = link.take_scanner(values.get("scanner_id", b""))
    if scanner is None:
        return error_values(SCANNER_EXPIRED, AppStatus.NOT_FOUND, "Scanner not found")
    if values.get("call_seq_id", 0) != scanner.next_call:
        text = "Invalid call sequence ID in scan request"
        return error_values(INVALID_SCAN_CALL, AppStatus.INVALID_ARGUMENT, text)
    if values.get("close_scanner") and not values.get("batch_size_bytes"):
        return {"has_more_results": False}
    return await _next_page(link, request, scanner)


def _bad_scan(text: str) -> Values:
    return error_values(TabletErrorCode.INVALID_SCAN_SPEC, AppStatus.INVALID_ARGUMENT, text)


def _scanner(columns: Mapping[str, m.Column], new: Values) -> Scanner:
    projected = _known(columns, new["projected_columns"])
    compared, wanted = list(projected), {}
    for predicate in new["column_predicates"]:
        (column,) = _known(columns, [{"name": predicate["column"]}])
        if "equality" not in predicate:
            raise ValueError(f"column {column.name}: only predicates for equality are supported")
        if column not in compared:
            compared.append(column)
        wanted[compared.index(column)] = read_cell(column, predicate["equality"]["value"])
    stamp = new.get("snap_timestamp", 0)
    scan = m.ScanRequest(
        new["tablet_id"],
        m.ReadMode(new.get("read_mode", m.ReadMode.READ_LATEST)),
        max(0, stamp - 1),
        new.get("propagated_timestamp", 0),
        tuple(column.id for column in compared),
        new.get("start_primary_key", b""),
        new.get("stop_primary_key", b""),
        allow_followers=True,  # like real servers, bundled servers then answer in any role
    )
    return Scanner(scan, tuple(compared), wanted, len(projected), 0)


async def _next_page(link: Link, request: Request, scanner: Scanner) -> Values:
    limit_ms = max(1, int(request.timeout_s * 1000))
    scan = msgspec.structs.replace(scanner.scan, timeout_ms=limit_ms)
    answer = await link.ask(scan, request)
    error = tablet_error(answer)
    if error is not None:
        return error
    width = scanner.width
    rows = [
        row[:width]
        for row in answer.rows
        if all(row[place] == value for place, value in scanner.wanted.items())
    ]
    packed = pack_rows(scanner.columns[:width], rows)
    more = bool(answer.page_token) and not request.values.get("close_scanner")
    reply = Reply(
        data={"num_rows": len(rows), "rows_sidecar": 0, "indirect_data_sidecar": 1},
        has_more_results=more,
        propagated_timestamp=answer.propagated_timestamp,
    )
    reply.sidecars = packed
    if scan.mode is not m.ReadMode.READ_LATEST:
        reply["snap_timestamp"] = answer.snap_timestamp + 1
    if more:
        scan = msgspec.structs.replace(scan, page_token=answer.page_token)
        later = scanner._replace(scan=scan, next_call=scanner.next_call + 1)
        reply["scanner_id"] = link.keep_scanner(later, request.values.get("scanner_id"))
    return reply


# --- replicas ---------------------------------------------------------------------------------


async def _list_tablets(link: Link, request: Request) -> Values:
    answer = await link.ask(m.ListTabletsRequest(), request)
    return {"tablets": [_listed(tablet) for tablet in answer.tablets]}


def _listed(tablet: m.HostedTablet) -> dict[str, Any]:
    return {
        "status": {
            "tablet_id": tablet.tablet_id,
            "table_name": tablet.table_name,
            "state": _STATE_NUMBERS.get(tablet.state),
            "data_state": _DATA_STATE_NUMBERS.get(tablet.data_state),
            "partition": {"start": tablet.partition.start, "end": tablet.partition.end},
            "table_id": tablet.table_id,
        },
        "schema": stored_schema(tablet.columns),
        "schema_version": tablet.schema_version,
        "role": ROLE_NUMBERS.get(tablet.role),
    }


TSERVER_CALLS: Final[Mapping[Method, Handler]] = {
    w.WRITE: _write,
    w.SCAN: _scan,
    w.LIST_TABLETS: _list_tablets,
    w.PING_TSERVER: ping,
}
