"""Translates an operation into a call of the metastore, and the call's answer into a completion."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.vocabularies import hms, hms_tokens
from targets.hive import api

NONCE: Final = "harness.nonce"
"""The table parameter that holds the nonce of the last change."""
COLUMNS: Final = ("v0", "v1")
_STRINGS: Final = list[tuple[str, str]]


ClientCall = hms.HmsCall | hms_tokens.TokenCall


def call_of(f: str, value: Any) -> ClientCall:
    """Decode an operation of the vocabulary `hms` or `hms_tokens`, or raise `UsageError`."""
    return hms_tokens.call_of(f, value) if f in hms_tokens.BY_NAME else hms.call_of(f, value)


def _table(database: str, name: str, nonce: str) -> api.MetaTable:
    return api.MetaTable(database, name, COLUMNS, {NONCE: nonce})


def plan(call: ClientCall, request_id: str) -> api.ApiCall:
    """Return the metastore call for an operation. For a poll, return the first of several calls."""
    match call:
        case hms_tokens.Issue(owner, renewer):
            return api.GetDelegationToken(owner, renewer)
        case hms_tokens.Renew(token, user):
            return api.RenewDelegationToken(token, user)
        case hms_tokens.Cancel(token):
            return api.CancelDelegationToken(token)
        case hms_tokens.Verify(token):
            return api.Authenticate(token)
        case hms.Create(database, name, nonce):
            return api.CreateTable(_table(database, name, nonce), request_id)
        case hms.Alter(database, name, nonce):
            return api.AlterTable(database, name, _table(database, name, nonce), request_id)
        case hms.Rename():
            table = _table(call.new_database, call.new_name, call.nonce)
            return api.AlterTable(call.database, call.name, table, request_id)
        case hms.Drop(database, name):
            return api.DropTable(database, name, request_id)
        case hms.Get(database, name):
            return api.GetTable(database, name)
        case hms.List():
            return api.GetTableMeta()
        case hms.Poll():
            return api.GetCurrentEventId()


def read_answer(call: ClientCall, result: Any) -> dict[str, Any]:
    """Build the value of an `ok` completion from the metastore's result."""
    value: dict[str, Any] = {"result": "ok"}
    if isinstance(call, hms.Get):
        table = msgspec.convert(result, api.MetaTable)
        value["nonce"] = table.parameters.get(NONCE)
        value["table_id"] = table.ident
        if not table.directory:
            value["directory"] = "gone"
    elif isinstance(call, hms.List):
        names = msgspec.convert(result, _STRINGS)
        value["tables"] = [hms.full_name(*name) for name in names]
    elif isinstance(call, hms_tokens.Issue):
        value["token"] = result
    elif isinstance(call, hms_tokens.Verify):
        value["owner"] = result
    return value


def event_row(event: api.Event) -> list[Any]:
    """Convert an event into its row in the answer to `hms.Poll`."""
    sides = (event.before, event.after)
    return [
        event.ident,
        event.time_ms,
        event.kind,
        *(None if side is None else side.full_name for side in sides),
        *(None if side is None else side.parameters.get(NONCE) for side in sides),
    ]
