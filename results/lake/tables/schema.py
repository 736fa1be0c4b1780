"""The tables of a lake, with the type, unit and meaning of every column.

A test checks `docs/lake-tables.md` against this file. All tables begin with the partition columns
of a lake (`PARTITION`) and the `run`. Times are int64 ns since the start of the run; only
`runs.started` is a time of day. Absent values are null.

**Versions.** Every change increases `SCHEMA_VERSION`. A lake of another version is refused, so
users rebuild an older lake from its stores.

Fields of requests and answers that have a type in the vocabularies (`harness.vocabularies`) are in
typed columns. All others are JSON in `asked_rest` and `answer_rest`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final, NamedTuple

import pyarrow as pa

SCHEMA_VERSION: Final = 3
PARTITION: Final = ("target", "label", "day")
REST: Final = "rest"


class Column(NamedTuple):
    """One column of a table. `unit` is empty for values without a unit."""

    name: str
    type: str
    unit: str
    meaning: str


TEXTS: Final = "list<string>"
NUMBERS: Final = "list<int64>"
STEPS: Final = "list<list<string>>"

ASKED: Final[Mapping[str, tuple[str, str]]] = {
    "name": ("string", "ddl: the table"),
    "nonce": ("string", "ddl, rows: unique to this change"),
    "columns": (TEXTS, "ddl: columns of a new table"),
    "partitions": ("int64", "ddl: number of tablets of a new table"),
    "replicas": ("int64", "ddl: replicas per tablet"),
    "steps": (STEPS, "ddl: steps of an alter"),
    "new_name": ("string", "ddl: new name in a rename"),
    "max_staleness_ms": ("int64", "follower-reads: maximum age of the answer, ms"),
    "node": ("string", "members: the master"),
    "table": ("string", "members, rows: the table"),
    "key": ("string", "rows: the row"),
    "mode": ("string", "rows: mode of a scan"),
    "replica": ("string", "rows: leader or any"),
    "at": ("int64", "rows: timestamp of a snapshot read"),
    "start": ("string", "rows: first key of a scan"),
    "end": ("string", "rows: end key of a scan (exclusive)"),
}
"""Fields of requests in the vocabularies, with type and meaning. Their columns are `asked_FIELD`.
"""

ANSWER: Final[Mapping[str, tuple[str, str]]] = {
    "result": ("string", "ok, or the observation that contradicts it"),
    "revision": ("int64", "ddl: revision of the catalog that answered"),
    "term": ("int64", "term of the node that answered"),
    "table_id": ("string", "id of the table"),
    "schema_version": ("int64", "ddl: schema version of the table"),
    "done": ("bool", "ddl: answer of is-create-done and is-alter-done"),
    "columns": (TEXTS, "ddl: answer of get"),
    "column_ids": (NUMBERS, "ddl: answer of get"),
    "comment": ("string", "ddl: nonce of the create of this table"),
    "applied_schema_version": ("int64", "ddl: schema version that all tablets have applied"),
    "bound_ns": ("int64", "follower-reads: maximum age of the state, ns"),
    "timestamp": ("int64", "rows: timestamp of the state that was read"),
    "tablet": ("string", "rows, members: the tablet"),
    "source": ("string", "members: server that the replica moves from"),
    "target": ("string", "members: server that the replica moves to"),
}
"""Fields of answers. Their columns are `answer_FIELD`."""

EVENT: Final[Mapping[str, tuple[str, str]]] = {
    "phase": ("string", "phase that begins"),
    "node": ("string", "leader, node-exit, infrastructure: the node"),
    "term": ("int64", "leader: term of the leader"),
    "code": ("int64", "node-exit: exit code of the process"),
    "expected": ("bool", "node-exit: whether the harness ended the process"),
    "by": ("string", "node-exit: cause of the exit"),
    "ok": ("bool", "live, converged: whether the bound was met"),
    "took_s": ("double", "live, converged: time taken"),
    "bound_s": ("double", "live, converged: the bound"),
}
"""Fields of the harness's notes. Their columns are `value_FIELD`."""


def _typed(prefix: str, fields: Mapping[str, tuple[str, str]]) -> tuple[Column, ...]:
    return tuple(
        Column(f"{prefix}_{name}", kind, _unit(name), meaning)
        for name, (kind, meaning) in fields.items()
    )


def _unit(name: str) -> str:
    last = name.rpartition("_")[2]
    return last if last in {"ns", "ms", "s"} else ""


_HEAD: Final = (
    Column("target", "string", "", "system under test; partition column"),
    Column("label", "string", "", "--label of the run; null: none; partition column"),
    Column("day", "date", "", "UTC day on which the run started; null: unknown; partition column"),
    Column("run", "string", "", "key of the run: NAME/ID@ and a 12-digit hash"),
)
_BESIDE: Final[dict[str, tuple[Column, ...]]] = {
    "runs": (
        Column("name", "string", "", "first folder below the store"),
        Column("id", "string", "", "name of the run folder below name"),
        Column("seed", "int64", "", "seed of the case"),
        Column("environment", "string", "", "sim, process or docker; null if cut short"),
        Column("profile", "string", "", "consistency profile of the target"),
        Column("workload", "string", "", ""),
        Column("nemeses", "string", "", "nemeses of the case: sorted names joined by +"),
        Column("asked", "string", "", "nemeses asked for, before any draw"),
        Column("bugs", "string", "", "enabled bug switches: sorted names joined by +"),
        Column("checkers", "string", "", "checkers of the case, in its order, joined by +"),
        Column("setting", "string", "", "equal for cases that differ only in the seed"),
        Column("started", "timestamp", "", "start of the run, UTC; null if cut short"),
        Column("wall_s", "double", "s", "wall time of the run; null if cut short"),
        Column("simulated_s", "double", "s", "virtual time; null outside the simulation"),
        Column("length_ns", "int64", "ns", "time of the last line of the history"),
        Column("verdict", "string", "", "verdict recorded by the run; null unless finished"),
        Column("failure_checker", "string", "", "checker of the worst finding; null if valid"),
        Column("failure_reason", "string", "", "reason given by that checker"),
        Column(
            "signature", "string", "", "same text for similar failures (harness.verdict.signature)"
        ),
        Column("digest", "string", "", "SHA-256 of the history, hex"),
        Column("lines", "int64", "", "number of lines in the history"),
        Column("ops", "int64", "", "number of client operations"),
        Column("ok", "int64", "", "operations that were acknowledged"),
        Column("fail", "int64", "", "operations that certainly did not happen"),
        Column("info", "int64", "", "operations of unknown outcome or never completed"),
        Column("refused", "int64", "", "failed operations that the target itself refused"),
        Column("elections", "int64", "", "leaders seen after the first"),
        Column("faults", "int64", "", "faults injected, including those without a target"),
        Column("interrupted", "bool", "", "whether the user cut the workload short"),
        Column("finished", "bool", "", "whether the state is finished"),
        Column("key_ranges", NUMBERS, "", "operations per range of keys; empty: judged as a whole"),
        Column("versions", "string", "", "JSON: versions of harness, Python and target"),
        Column("warnings", TEXTS, "", "warnings of the run"),
        Column("case", "string", "", "JSON: the case, with its fault schedule"),
        Column("folder", "string", "", "lake folder with the run's page and logs; null: none"),
        Column("state", "string", "", "finished, torn, damaged or foreign, see lake.md"),
    ),
    "operations": (
        Column("index", "int64", "", "line of the invocation in the history"),
        Column(
            "lines",
            "int64",
            "",
            "lines from the invocation to the completion; null: never completed",
        ),
        Column("process", "int64", "", "client process"),
        Column("f", "string", "", "kind of operation"),
        Column("type", "string", "", "ok, fail or info"),
        Column("answered", "bool", "", "true if ok, or refused by the target itself"),
        Column("is_read", "bool", "", "whether the operation only reads"),
        Column("invoke_ns", "int64", "ns", "invocation time"),
        Column("latency_ns", "int64", "ns", "time to completion; null: never completed"),
        Column("phase", "string", "", "phase of the run at the invocation"),
        Column(
            "active", "string", "", "nemeses with an active fault at the invocation, joined by +"
        ),
        Column("node", "string", "", "node that answered last; null: none"),
        Column("error", "string", "", "CODE: text, as the target returned it"),
        Column("key", "string", "", "JSON: key of a value [key, ...]; null: not keyed"),
        Column("key_range", "int32", "", "range of keys, from 0; null: keys are not independent"),
        *_typed("asked", ASKED),
        Column("asked_rest", "string", "", "JSON: fields without a column; null: none"),
        *_typed("answer", ANSWER),
        Column("answer_rest", "string", "", "JSON: fields without a column; null: none"),
        Column("odd", "string", "", "JSON: rare fields of the line; null: none"),
    ),
    "attempts": (
        Column("index", "int64", "", "history line of the operation's invocation"),
        Column("number", "int32", "", "number of the attempt within the operation, from 0"),
        Column("node", "string", "", "node that the RPC was sent to"),
        Column("wait_ns", "int64", "ns", "from the operation's invocation to the start of the RPC"),
        Column("left_ns", "int64", "ns", "from the end of the RPC to the operation's completion"),
        Column("outcome", "string", "", "ok, or the error code that the client saw"),
        Column("text", "string", "", "error text; null: none, or the operation's error"),
        Column("key_range", "int32", "", "same as in operations"),
    ),
    "faults": (
        Column("fault", "string", "", "id of the fault in the case"),
        Column("nemesis", "string", "", "nemesis that injected the fault"),
        Column("kind", "string", "", "cut, kill, pause, ..."),
        Column("targets", TEXTS, "", "nodes hit; empty: none"),
        Column("start_ns", "int64", "ns", "injection time"),
        Column("end_ns", "int64", "ns", "heal time; null: never healed"),
        Column("bite", "int64", "", "measured effect, in the nemesis's unit; null: not measured"),
        Column("note", "string", "", "note by the nemesis"),
        Column("inject_index", "int64", "", "history line of the injection"),
        Column("inject_rest", "string", "", "JSON: other fields of the injection"),
        Column("heal_index", "int64", "", "history line of the heal; null: none"),
        Column("heal_rest", "string", "", "JSON: fields of the heal; null: no heal"),
    ),
    "events": (
        Column("index", "int64", "", "line in the history"),
        Column("time_ns", "int64", "ns", "time of the event"),
        Column("process", "int64", "", "-1: nemesis, -2: harness"),
        Column("type", "string", "", "info"),
        Column("f", "string", "", "kind of event (harness.ops)"),
        Column("error", "string", "", ""),
        *_typed("value", EVENT),
        Column("value_rest", "string", "", "JSON: fields without a column; null: none"),
        Column("odd", "string", "", "JSON: rare fields of the line; null: none"),
    ),
    "nodes": (
        Column("node", "string", "", ""),
        Column("terms_led", "int64", "", "terms in which the node was seen as leader"),
        Column("faults", "int64", "", "faults that hit the node"),
        Column("exits", "int64", "", "exits of the node's process"),
        Column("crashes", "int64", "", "exits by itself or of unknown cause"),
        Column("attempts", "int64", "", "RPCs that clients sent to the node"),
        Column("attempts_ok", "int64", "", "RPCs answered ok"),
        Column("memory_bytes", "int64", "bytes", "memory at the end; null: not measured"),
        Column("disk_bytes", "int64", "bytes", "disk space used at the end; null: not measured"),
        Column("written_bytes", "int64", "bytes", "bytes written in total; null: not measured"),
    ),
    "verdicts": (
        Column("checker", "string", "", ""),
        Column("key", "string", "", "key within the workload; null: the whole history"),
        Column("verdict", "string", "", "valid, permitted, unknown or invalid"),
        Column("rule", "string", "", "broken or permitted rule; null if valid"),
        Column("signature", "string", "", "same text for similar failures, or null"),
        Column("reason", "string", "", "one-line reason"),
        Column("permitted", "int64", "", "number of anomalies that the profile permits"),
        Column("n_ops", "int64", "", "operations checked; null: recorded by the run"),
        Column("configurations", "int64", "", "states explored by the search, or null"),
        Column("wall_ns", "int64", "ns", "wall time of the check; null: recorded by the run"),
        Column("cpu_ns", "int64", "ns", "CPU time of the check; null: recorded by the run"),
        Column("error", "string", "", "traceback, if the checker crashed"),
        Column("counterexample", "string", "", "JSON"),
        Column("result_id", "string", "", "id of the result; null: recorded by the run"),
    ),
    "findings": (
        Column("checker", "string", "", "checker whose verdict is unknown or invalid"),
        Column("verdict", "string", "", "verdict of this checker"),
        Column("rule", "string", "", "broken rule"),
        Column("signature", "string", "", "same text for similar failures"),
        Column("number", "int32", "", "position among the operations that the checker names"),
        Column("index", "int64", "", "history line of the operation; null: none named"),
        Column("reason", "string", "", "one-line reason"),
        Column("explanation", TEXTS, "", "the full explanation, as sentences"),
        Column("result_id", "string", "", "same as in verdicts"),
    ),
}
TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    name: (*_HEAD, *columns) for name, columns in _BESIDE.items()
}


@functools.cache
def schema(table: str) -> pa.Schema:
    """Return the Arrow schema of one of `TABLES`."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in TABLES[table]])


@functools.cache
def arrow_type(kind: str) -> pa.DataType:
    """Convert a column's `type` to an Arrow type."""
    return {
        "string": pa.string(),
        "int64": pa.int64(),
        "int32": pa.int32(),
        "bool": pa.bool_(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        TEXTS: pa.list_(pa.string()),
        NUMBERS: pa.list_(pa.int64()),
        STEPS: pa.list_(pa.list_(pa.string())),
    }[kind]


def schemas() -> dict[str, pa.Schema]:
    """Return the schemas of all tables."""
    return {name: schema(name) for name in TABLES}
