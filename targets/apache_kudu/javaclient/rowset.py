"""Operations of the vocabulary `rows` by the Java client, and what its answers prove.

The client sends the rows of a write in one batch per tablet, and resends a batch under the same
request id until it is answered. The results of rows therefore follow from all attempts of their
batch. If a row was refused after an attempt of unknown outcome, its result is unknown.

A read of the latest state is a snapshot at the leader's present time. It counts only if a majority
of the tablet's voters has no later term afterwards; `targets.apache_kudu.wire.tablets` explains
why. Scans read one tablet after another, each with one scanner. A snapshot excludes the writes at
its timestamp in the client, but includes them in the vocabulary, so their timestamps differ by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.ops import OpType
from harness.vocabularies.rows import Read, Scan, Write
from targets.apache_kudu.javaclient.attempts import (
    GOES_ON,
    MISSING,
    NO_ANSWER,
    Sent,
    effect_at_tablet,
    outcome_of,
)
from targets.apache_kudu.javaclient.catalog import NO_TERM, Judged
from targets.apache_kudu.javaclient.program import Reply
from targets.kudu.client.classify import Effect

WRITE: Final = "Write"
SCAN: Final = "Scan"
_SNAPSHOT, _LATEST = "READ_AT_SNAPSHOT", "READ_LATEST"
_MODES: Final = {
    ("latest", "leader"): _SNAPSHOT,
    ("latest", "any"): _LATEST,
    ("snapshot", "leader"): _SNAPSHOT,
    ("snapshot", "any"): _SNAPSHOT,
    ("read-your-writes", "leader"): "READ_YOUR_WRITES",
    ("read-your-writes", "any"): "READ_YOUR_WRITES",
}
_REPLICAS: Final = {"leader": "LEADER_ONLY", "any": "CLOSEST_REPLICA"}
_RESULTS: Final[Mapping[str, str]] = {
    "ALREADY_PRESENT": "already-present",
    "NOT_FOUND": "not-found",
    "INVALID_ARGUMENT": "invalid",
}
_OTHER_PARTITION: Final = "not in tablet partition"


def line_of(call: Write | Read | Scan) -> dict[str, Any]:
    """Convert an operation to a line for the program."""
    match call:
        case Write():
            rows = [list(row) for row in call.rows]
            return {"f": "write", "name": call.table, "rows": rows}
        case Read():
            return _scan_line(call.table, _SNAPSHOT, "leader", key=call.key)
        case Scan():
            return _scan_line(
                call.table,
                _MODES[call.mode, call.replica],
                call.replica,
                at=None if call.at is None else call.at + 1,
                one_time=call.mode != "latest",
                start=call.start,
                end=call.end,
            )


def _scan_line(
    table: str,
    mode: str,
    replica: str,
    *,
    key: str | None = None,
    at: int | None = None,
    one_time: bool = False,
    start: str | None = None,
    end: str | None = None,
) -> dict[str, Any]:
    return {
        "f": "scan",
        "name": table,
        "mode": mode,
        "replica": _REPLICAS[replica],
        "key": key,
        "at": at,
        "one_time": one_time,
        "start": start,
        "end": end,
    }


def unanswered(call: Write | Read | Scan, reply: Reply) -> Judged:
    """Decide the outcome of an operation that failed as a whole."""
    assert reply.error is not None, "there is neither an answer nor an error"
    code, text = reply.error
    error = f"{code}: {text}"
    is_write = isinstance(call, Write)
    if MISSING in text:
        return Judged(OpType.FAIL if is_write else OpType.OK, {"result": "not-found"}, None)
    lost = is_write and reply.begun
    return Judged(OpType.INFO if lost else OpType.FAIL, None, error)


# --- writes -----------------------------------------------------------------------------------


def written(
    answer: Mapping[str, Any],
    sent: Sequence[Sent],
    nodes: Mapping[str, str],
    terms: Mapping[str, int],
    *,
    truncated: bool,
) -> Judged:
    """Decide the outcome of a write.

    For each tablet, `nodes` has the name of the server that answered. `terms` has the term of the
    answer, if that is certain.
    """
    results: list[str | None] = [None] * len(answer["rows"])
    parts: list[dict[str, Any]] = []
    for tablet in dict.fromkeys(row["tablet"] for row in answer["rows"]):
        places = [place for place, row in enumerate(answer["rows"]) if row["tablet"] == tablet]
        batch = [each for each in sent if each.method == WRITE and each.tablet == tablet]
        codes = {answer["rows"][place]["code"] for place in places}
        goes_on = truncated or not codes.isdisjoint({*GOES_ON, NO_ANSWER})
        _, effect, lost = outcome_of(batch, effect_at_tablet, may_go_on=goes_on)
        done = effect is Effect.DONE and tablet in terms
        for place in places:
            if done:
                results[place] = _row_result(answer["rows"][place], lost=lost)
            elif effect is not Effect.DONE and not lost:
                results[place] = "failed"
        stamp = answer["rows"][places[0]]["timestamp"]
        parts.append(
            {
                "tablet": tablet,
                "node": nodes.get(tablet),
                "term": terms.get(tablet) if done else None,
                "timestamp": stamp if done and stamp > 0 else None,
                "rows": places,
            }
        )
    value = {"table_id": answer["table_id"], "rows": results, "parts": parts}
    if all(result == "failed" for result in results):
        return Judged(OpType.FAIL, value, _first_error(answer))
    if any(result in {None, "failed"} for result in results):
        return Judged(OpType.INFO, value, _first_error(answer) or NO_TERM)
    return Judged(OpType.OK, value, None)


def _row_result(row: Mapping[str, Any], *, lost: bool) -> str | None:
    if row["code"] == "OK":
        return "ok"
    if lost:
        return None  # an earlier attempt may have written the row and so caused the error
    if row["code"] == "NOT_FOUND" and _OTHER_PARTITION in row["text"]:
        return "invalid"
    return _RESULTS.get(row["code"])


def _first_error(answer: Mapping[str, Any]) -> str | None:
    errors = [f"{row['code']}: {row['text']}" for row in answer["rows"] if row["code"] != "OK"]
    return errors[0] if errors else None


# --- reads ------------------------------------------------------------------------------------


def needs_leader(call: Read | Scan) -> bool:
    """Whether the answer must come from a leader, in a term that is certain."""
    return isinstance(call, Read) or (call.mode == "latest" and call.replica == "leader")


def needs_proof(call: Read | Scan) -> bool:
    """Whether the answer's term must be certain. Latest scans of any replica are the exception."""
    return needs_leader(call) or (isinstance(call, Scan) and call.mode != "latest")


def scanned(
    call: Read | Scan,
    answer: Mapping[str, Any],
    nodes: Mapping[str, str],
    terms: Mapping[str, int],
) -> Judged:
    """Decide the outcome of a read or scan whose answers have the proof that they need."""
    is_snapshot = isinstance(call, Scan) and call.mode != "latest"
    parts = [
        {
            "tablet": part["tablet"],
            "node": nodes.get(part["tablet"]),
            "term": terms.get(part["tablet"]) if needs_leader(call) else None,
            "timestamp": part["timestamp"] - 1 if is_snapshot and part["timestamp"] > 1 else None,
            "rows": sorted((list(row) for row in part["rows"]), key=lambda row: str(row[0])),
        }
        for part in answer["parts"]
    ]
    if isinstance(call, Read):
        if len(parts) != 1:
            return Judged(OpType.FAIL, None, f"the client read {len(parts)} tablets for one key")
        (part,) = parts
        cells = dict(part["rows"])
        value = {
            "table_id": answer["table_id"],
            **{name: part[name] for name in ("tablet", "term", "timestamp")},
            "row": cells.get(call.key),
        }
        return Judged(OpType.OK, value, None)
    stamps = {part["timestamp"] for part in parts}
    value = {
        "table_id": answer["table_id"],
        "timestamp": parts[0]["timestamp"] if len(stamps) == 1 else None,
        "parts": parts,
    }
    return Judged(OpType.OK, value, None)
