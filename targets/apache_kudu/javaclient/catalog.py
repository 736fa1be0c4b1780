"""Operations of the vocabulary `ddl` by the Java client, and what its answers prove.

The client reports neither terms nor versions of schemas. It reports "already present" even if an
earlier attempt of its own made the change. The harness therefore sends extra requests to the master
that answered (*looks*, `targets.apache_kudu.wire.looks`) to learn terms and versions. Outcomes
follow from all attempts (`attempts`). An answer whose term is uncertain proves nothing: a change is
then `info`, and a read fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.errors import UsageError
from harness.ops import OpType
from harness.vocabularies import ddl
from targets.apache_kudu.javaclient.attempts import (
    GOES_ON,
    MISSING,
    OK,
    Sent,
    effect_at_master,
    outcome_of,
    outcome_text,
)
from targets.apache_kudu.javaclient.program import Reply
from targets.apache_kudu.wire.tables import UNSTATED, Version, shown_versions, states_ends
from targets.kudu.client.classify import Effect

METHODS: Final[Mapping[str, str]] = {
    "create": "CreateTable",
    "alter": "AlterTable",
    "rename": "AlterTable",
    "delete": "DeleteTable",
    "get": "GetTableSchema",
    "list": "ListTables",
    "locate": "GetTableSchema",
    "is-create-done": "IsCreateTableDone",
    "is-alter-done": "IsAlterTableDone",
}
"""The RPC that carries out each operation.

For `locate`, this is the lookup of the table by name, with which the client begins. It shows
whether the table exists.
"""
VERSIONED: Final = frozenset({"alter", "rename", "get"})
"""Operations whose answers get a version, which requires a look before and a look after."""
_STEPS: Final = ("add", "drop", "rename")
_EXISTS: Final = re.compile(r"table .* already exists with id")
_COLUMN: Final = ("The column already exists", "The specified column does not exist")
NO_TERM: Final = "NO_TERM: the answer came, but not the term in which it was given"


class Looks(NamedTuple):
    """The term of a master's answer, and the table's versions before and after it.

    `term` is `None` if it is uncertain.
    """

    term: int | None = None
    before: Version | None = None
    after: Version | None = None


class Judged(NamedTuple):
    """The outcome of an operation, without its attempts."""

    type: OpType
    value: Any
    error: str | None


def line_of(call: ddl.DdlCall) -> dict[str, Any]:
    """Convert an operation to a line for the program. Raises `UsageError` for ranges of tables."""
    ranged = isinstance(call, ddl.Create) and call.ranges
    steps = call.steps if isinstance(call, ddl.Alter) else []
    if ranged or any(step[0] not in _STEPS for step in steps):
        raise UsageError("the Java client cannot create or alter ranges; use --target kudu")
    return {"f": call.f, **call.asked()} if isinstance(call.asked(), dict) else {"f": call.f}


def answering(f: str, sent: Sequence[Sent]) -> Sent | None:
    """Return the last answered attempt of the operation's own RPC, if there is one."""
    answered = [each for each in sent if each.method == METHODS[f] and each.end_ns is not None]
    return answered[-1] if answered else None


def judge(
    call: ddl.DdlCall, reply: Reply, sent: Sequence[Sent], looks: Looks, *, truncated: bool
) -> Judged:
    """Decide the outcome of an operation."""
    main = [each for each in sent if each.method == METHODS[call.f]]
    if call.mutates:
        return _change(call, reply, main, looks, truncated=truncated)
    return _read(call, reply, main, looks)


def _change(
    call: ddl.DdlCall, reply: Reply, main: Sequence[Sent], looks: Looks, *, truncated: bool
) -> Judged:
    goes_on = truncated or (reply.error is not None and reply.error[0] in GOES_ON)
    last, effect, lost = outcome_of(main, effect_at_master, may_go_on=goes_on)
    if effect is Effect.DONE:
        if reply.answer is None:
            return Judged(OpType.INFO, None, f"{_error(reply)}, after the change was acknowledged")
        if looks.term is None:
            return Judged(OpType.INFO, None, NO_TERM)
        return Judged(OpType.OK, _changed(reply.answer, looks), None)
    error = _error(reply)
    if lost:
        return Judged(OpType.INFO, None, error)
    if effect is Effect.REFUSED and last is not None:
        return Judged(OpType.FAIL, _refused(call, last, looks), outcome_text(last))
    return Judged(OpType.FAIL, None, error)


def _changed(answer: Mapping[str, Any], looks: Looks) -> dict[str, Any]:
    table_id, version = answer.get("table_id"), None
    before, after = looks.before, looks.after
    if before is not None and after is not None and before.table_id == after.table_id == table_id:
        # Each change adds a version, so versions that differ by one exclude other changes.
        version = after.number if after.number == before.number + 1 else None
    return {
        "result": "ok",
        "table_id": table_id,
        "schema_version": version,
        "revision": None,
        "term": looks.term,
    }


def _refused(call: ddl.DdlCall, last: Sent, looks: Looks) -> dict[str, Any] | None:
    """Return what a refusal proves about the catalog, or `None` if it proves nothing."""
    result = None
    if MISSING in last.text:
        result = "not-found"
    elif last.code == "ALREADY_PRESENT" and _EXISTS.search(last.text):
        result = "exists"
    elif isinstance(call, ddl.Alter) and last.text.startswith(_COLUMN):
        result = "invalid"
    if result is None or looks.term is None:
        return None
    return {"result": result, "revision": None, "term": looks.term}


def _read(call: ddl.DdlCall, reply: Reply, main: Sequence[Sent], looks: Looks) -> Judged:
    last = main[-1] if main else None
    missing = reply.error is not None and last is not None and MISSING in last.text
    if reply.answer is None and not missing:
        return Judged(OpType.FAIL, None, _error(reply))
    if looks.term is None or (not missing and (last is None or last.code != OK)):
        return Judged(OpType.FAIL, None, NO_TERM)
    provenance = {"revision": None, "term": looks.term}
    if missing or reply.answer is None:
        return Judged(OpType.OK, {"result": "not-found", **provenance}, None)
    return Judged(
        OpType.OK, {"result": "ok", **_seen(call, reply.answer, looks), **provenance}, None
    )


def _seen(call: ddl.DdlCall, answer: Mapping[str, Any], looks: Looks) -> dict[str, Any]:
    table = {"table_id": answer.get("table_id"), "schema_version": None}
    match call:
        case ddl.List():
            lines = sorted((name, ident) for name, ident in answer["tables"])
            return {"tables": [[name, ident, None] for name, ident in lines]}
        case ddl.IsCreateDone() | ddl.IsAlterDone():
            return {**table, "done": answer["done"]}
        case ddl.Locate():
            return {**table, "tablets": unbounded(answer["tablets"])}
        case _:
            return {**table, **_columns(answer, looks), "comment": answer["comment"]}


def _columns(answer: Mapping[str, Any], looks: Looks) -> dict[str, Any]:
    before, after = looks.before, looks.after
    applied = committed = UNSTATED
    if before is not None and after is not None and after.table_id == answer["table_id"]:
        applied, committed = shown_versions(before, after)
    columns = {name: answer[name] for name in ("columns", "column_ids")}
    proven = {} if applied == UNSTATED else {"applied_schema_version": applied, **columns}
    return {"schema_version": None if committed == UNSTATED else committed, **proven}


def with_uuids(reply: Reply, uuids: Mapping[str, str]) -> Reply:
    """Replace the "host:port" of replicas with uuids; return an error if one is unknown."""
    if reply.answer is None:
        return reply
    try:
        tablets = [
            {
                **tablet,
                "leader": tablet["leader"] and uuids[tablet["leader"]],
                "replicas": [uuids[place] for place in tablet["replicas"]],
            }
            for tablet in reply.answer["tablets"]
        ]
    except KeyError as error:
        return reply._replace(answer=None, error=("NO_UUID", f"no server is known at {error}"))
    return reply._replace(answer={**reply.answer, "tablets": tablets})


def unbounded(tablets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Remove the bounds at both ends of the key space, which Kudu 1.17 and later report."""
    listed = [dict(tablet) for tablet in tablets]
    bounds = [(bytes.fromhex(each["start"]), bytes.fromhex(each["end"])) for each in listed]
    if states_ends(bounds):
        listed[0]["start"] = listed[-1]["end"] = ""
    return listed


def _error(reply: Reply) -> str:
    code, text = reply.error or ("NO_ERROR", "the client returned an answer without an attempt")
    return f"{code}: {text}"
