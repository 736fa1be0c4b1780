"""The tables of a lake: every column with its type, its unit and its meaning, said once.

`docs/lake.md` is checked against this file by a test. All tables begin with the columns that a
lake is partitioned by (`PARTITION`) and the `run`. Times are int64 ns since the begin of the run;
the one time of day is `runs.started`. Absent is null, never an empty string or -1.

**Versions.** `SCHEMA_VERSION` rises with every change, and a change is one thing only: a nullable
column more, at the end of its table. So a lake of an older version is read as it is, with nulls in
the columns that it lacks; a newer one is refused (`results.lake.lake` does both).

What clients asked and were answered lies in typed columns, as far as the vocabularies
(`harness.vocabularies`) give it a type, and else as JSON in `asked_rest` and `answer_rest`
(`results.lake.values` has the rule). Nothing is lost: `results.lake.rebuild` makes the history of
a run from its rows of `operations`, `attempts`, `faults` and `events` again.

pyarrow is imported inside functions: listing plug-ins must stay quick.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ANSWER",
    "ASKED",
    "EVENT",
    "PARTITION",
    "REST",
    "SCHEMA_VERSION",
    "TABLES",
    "Column",
    "arrow_type",
    "markdown",
    "schema",
    "schemas",
]

SCHEMA_VERSION: Final = 2
PARTITION: Final = ("target", "label", "day")
REST: Final = "rest"


class Column(NamedTuple):
    """One column; `unit` is empty for what has none."""

    name: str
    type: str
    unit: str
    meaning: str


TEXTS: Final = "list<string>"
NUMBERS: Final = "list<int64>"
STEPS: Final = "list<list<string>>"

ASKED: Final[Mapping[str, tuple[str, str]]] = {
    "name": ("string", "ddl: the table"),
    "nonce": ("string", "ddl, rows: what tells this change from all others"),
    "columns": (TEXTS, "ddl: of a new table"),
    "partitions": ("int64", "ddl: tablets of a new table"),
    "replicas": ("int64", "ddl: of each tablet"),
    "steps": (STEPS, "ddl: of an alter"),
    "new_name": ("string", "ddl: of a rename"),
    "max_staleness_ms": ("int64", "follower-reads: how old the answer may be, ms"),
    "node": ("string", "members: the master"),
    "table": ("string", "members, rows: the table"),
    "key": ("string", "rows: the row"),
    "mode": ("string", "rows: of a scan"),
    "replica": ("string", "rows: leader or any"),
    "at": ("int64", "rows: the timestamp of a snapshot"),
    "start": ("string", "rows: first key of a scan"),
    "end": ("string", "rows: the key behind its last"),
}
"""What vocabularies ask, by field: its type and meaning. The column is `asked_FIELD`."""

ANSWER: Final[Mapping[str, tuple[str, str]]] = {
    "result": ("string", "ok, or what was seen instead"),
    "revision": ("int64", "ddl: of the catalog that answered"),
    "term": ("int64", "of who answered"),
    "table_id": ("string", "of the table"),
    "schema_version": ("int64", "ddl: of the table"),
    "done": ("bool", "ddl: of is-create-done and is-alter-done"),
    "columns": (TEXTS, "ddl: of get"),
    "column_ids": (NUMBERS, "ddl: of get"),
    "comment": ("string", "ddl: the nonce of the table's create"),
    "applied_schema_version": ("int64", "ddl: that all tablets have"),
    "bound_ns": ("int64", "follower-reads: how old the state may be, ns"),
    "timestamp": ("int64", "rows: the state that was read, exactly"),
    "tablet": ("string", "rows, members: the tablet"),
    "source": ("string", "members: the server that a replica leaves"),
    "target": ("string", "members: the server that it goes to"),
}
"""What answers hold. The column is `answer_FIELD`."""

EVENT: Final[Mapping[str, tuple[str, str]]] = {
    "phase": ("string", "of the run, which begins"),
    "node": ("string", "leader, node-exit, infrastructure: the node"),
    "term": ("int64", "leader: of its term"),
    "code": ("int64", "node-exit: of the process"),
    "expected": ("bool", "node-exit: whether the harness ended it"),
    "by": ("string", "node-exit: who ended it"),
    "ok": ("bool", "live, converged: whether it came to it in time"),
    "took_s": ("double", "live, converged: after so many s"),
    "bound_s": ("double", "live, converged: of at most so many s"),
}
"""What the harness notes. The column is `value_FIELD`."""


def _typed(prefix: str, fields: Mapping[str, tuple[str, str]]) -> tuple[Column, ...]:
    return tuple(
        Column(f"{prefix}_{name}", kind, _unit(name), meaning)
        for name, (kind, meaning) in fields.items()
    )


def _unit(name: str) -> str:
    last = name.rpartition("_")[2]
    return last if last in {"ns", "ms", "s"} else ""


_HEAD: Final = (
    Column("target", "string", "", "what was tested; the lake is partitioned by it"),
    Column("label", "string", "", "--label of the soak; null: none; partitioned by it"),
    Column("day", "date", "", "UTC, on which the run started; null: not known; partitioned by it"),
    Column("run", "string", "", "the run's key: NAME/ID@ and 12 digits of partition and digest"),
)
_BESIDE: Final[dict[str, tuple[Column, ...]]] = {
    "runs": (
        Column("name", "string", "", "folder below the store"),
        Column("id", "string", "", "folder below that"),
        Column("seed", "int64", "", "of the case"),
        Column("environment", "string", "", "sim, process, docker; null where cut short"),
        Column("profile", "string", "", "of the target"),
        Column("workload", "string", "", ""),
        Column("nemeses", "string", "", "of the case: sorted names joined by +"),
        Column("asked", "string", "", "the same, or what they were drawn from"),
        Column("bugs", "string", "", "switched on: sorted names joined by +"),
        Column("checkers", "string", "", "of the case, in its order, joined by +"),
        Column("setting", "string", "", "equal for cases that differ in nothing but the seed"),
        Column("started", "timestamp", "", "UTC; null where the run was cut short"),
        Column("wall_s", "double", "s", "real time of the run; null where cut short"),
        Column("simulated_s", "double", "s", "virtual time; null where time was real"),
        Column("length_ns", "int64", "ns", "time of its last line"),
        Column("verdict", "string", "", "as recorded by the run; null where cut short"),
        Column("failure_checker", "string", "", "of the worst finding; null where valid"),
        Column("failure_reason", "string", "", "of the same"),
        Column("signature", "string", "", "equal for equal failures (harness.signatures)"),
        Column("digest", "string", "", "SHA-256 of the history, hex"),
        Column("lines", "int64", "", "lines of the history"),
        Column("ops", "int64", "", "client operations"),
        Column("ok", "int64", "", "of these acknowledged"),
        Column("fail", "int64", "", "that did not happen"),
        Column("info", "int64", "", "of unknown outcome, with those never completed"),
        Column("refused", "int64", "", "of fail: answered by the target with a definite no"),
        Column("elections", "int64", "", "leaders seen, without the first"),
        Column("faults", "int64", "", "injected, with those that hit nobody"),
        Column("interrupted", "bool", "", "the user cut the workload short"),
        Column("finished", "bool", "", "whether there is a run.json"),
        Column("buckets", "int32", "", "in which the history was sealed; 0: in one file"),
        Column("versions", "string", "", "JSON: of harness, Python and target"),
        Column("warnings", TEXTS, "", "of the run"),
        Column("case", "string", "", "JSON: all that the run was asked for"),
        Column("folder", "string", "", "where the lake keeps its page and logs; null: nowhere"),
    ),
    "operations": (
        Column("index", "int64", "", "line of the invocation in the history"),
        Column("lines", "int64", "", "from there to the completion; null: never completed"),
        Column("process", "int64", "", "the client"),
        Column("f", "string", "", "kind of operation"),
        Column("type", "string", "", "ok, fail or info"),
        Column("answered", "bool", "", "ok, or refused by the target itself"),
        Column("is_read", "bool", "", "whether it only reads"),
        Column("invoke_ns", "int64", "ns", "when it began"),
        Column("latency_ns", "int64", "ns", "until its completion; null: never completed"),
        Column("phase", "string", "", "of the run, when it began"),
        Column("active", "string", "", "nemeses with a fault when it began, joined by +"),
        Column("node", "string", "", "that answered last; null where none did"),
        Column("error", "string", "", "CODE: text, in the target's own words"),
        Column("key", "string", "", "JSON: of a value [key, ...]; null: it has no key"),
        *_typed("asked", ASKED),
        Column("asked_rest", "string", "", "JSON: what no column holds; else null"),
        *_typed("answer", ANSWER),
        Column("answer_rest", "string", "", "JSON: what no column holds; else null"),
        Column("odd", "string", "", "JSON: what few histories have; else null"),
    ),
    "attempts": (
        Column("index", "int64", "", "of its operation"),
        Column("number", "int32", "", "of the RPC below the operation, from 0"),
        Column("node", "string", "", "that it was sent to"),
        Column("wait_ns", "int64", "ns", "from the operation's invocation to its start"),
        Column("left_ns", "int64", "ns", "from its end to the operation's completion"),
        Column("outcome", "string", "", "ok, or the code of the error that the client saw"),
        Column("text", "string", "", "of that error; null: as its operation's error, or none"),
    ),
    "faults": (
        Column("fault", "string", "", "its id in the case"),
        Column("nemesis", "string", "", "who injected it"),
        Column("kind", "string", "", "what it does: cut, kill, pause, ..."),
        Column("targets", TEXTS, "", "nodes that it hit; empty: it missed"),
        Column("start_ns", "int64", "ns", "when it was injected"),
        Column("end_ns", "int64", "ns", "when it was healed; null: never"),
        Column("bite", "int64", "", "what it did, in units of the nemesis; null: not measured"),
        Column("note", "string", "", "in the nemesis's own words"),
        Column("inject_index", "int64", "", "line of the injection"),
        Column("inject_rest", "string", "", "JSON: what no column holds"),
        Column("heal_index", "int64", "", "line of the heal; null: none"),
        Column("heal_rest", "string", "", "JSON: what it says; null: no heal"),
    ),
    "events": (
        Column("index", "int64", "", "line of the history"),
        Column("time_ns", "int64", "ns", "when it was noted"),
        Column("process", "int64", "", "-1: the nemesis, -2: the harness"),
        Column("type", "string", "", "info"),
        Column("f", "string", "", "what was noted (harness.ops)"),
        Column("error", "string", "", ""),
        *_typed("value", EVENT),
        Column("value_rest", "string", "", "JSON: what no column holds; else null"),
        Column("odd", "string", "", "JSON: what few histories have; else null"),
        Column("value_ids", TEXTS, "", "of a packed value_rest: ids new in it; else null"),
    ),
    "nodes": (
        Column("node", "string", "", ""),
        Column("terms_led", "int64", "", "terms in which it was seen to lead"),
        Column("faults", "int64", "", "that hit it"),
        Column("exits", "int64", "", "ends of its process"),
        Column("crashes", "int64", "", "of these by itself or nobody knows whom"),
        Column("attempts", "int64", "", "RPCs that clients sent to it"),
        Column("attempts_ok", "int64", "", "of these answered ok"),
        Column("memory_bytes", "int64", "bytes", "at the end; null: not measured"),
        Column("disk_bytes", "int64", "bytes", "on disk at the end; null: not measured"),
        Column("written_bytes", "int64", "bytes", "in all; null: not measured"),
    ),
    "verdicts": (
        Column("checker", "string", "", ""),
        Column("key", "string", "", "of the workload; null: the whole history"),
        Column("verdict", "string", "", "valid, permitted, unknown or invalid"),
        Column("rule", "string", "", "that was broken, or what is permitted; null where valid"),
        Column("signature", "string", "", "equal for equal failures, or null"),
        Column("reason", "string", "", "one line"),
        Column("permitted", "int64", "", "how often something happened that the profile permits"),
        Column("n_ops", "int64", "", "operations judged; null: as the run recorded it"),
        Column("configurations", "int64", "", "states that the search explored, or null"),
        Column("wall_ns", "int64", "ns", "time it took; null: as the run recorded it"),
        Column("cpu_ns", "int64", "ns", "CPU time it took; null: as the run recorded it"),
        Column("error", "string", "", "the traceback of a checker that crashed"),
        Column("counterexample", "string", "", "JSON"),
        Column("result_id", "string", "", "of what it is the result; null: recorded by the run"),
    ),
    "findings": (
        Column("checker", "string", "", "whose verdict is unknown or invalid"),
        Column("verdict", "string", "", "that of the checker"),
        Column("rule", "string", "", "that was broken"),
        Column("signature", "string", "", "equal for equal failures"),
        Column("number", "int32", "", "of the operation among those that the checker names"),
        Column("index", "int64", "", "line of the operation; null: the checker names none"),
        Column("reason", "string", "", "one line"),
        Column("explanation", TEXTS, "", "whole sentences"),
        Column("result_id", "string", "", "as in verdicts"),
    ),
}
TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    name: (*_HEAD, *columns) for name, columns in _BESIDE.items()
}


@functools.cache
def schema(table: str) -> pa.Schema:
    """The columns of one of `TABLES`."""
    import pyarrow as pa

    return pa.schema([(column.name, arrow_type(column.type)) for column in TABLES[table]])


@functools.cache
def arrow_type(kind: str) -> pa.DataType:
    """Arrow's type of a column's `type`."""
    import pyarrow as pa

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
    """Those of all tables."""
    return {name: schema(name) for name in TABLES}


def markdown(tables: Mapping[str, Sequence[Column]] = TABLES, *, head: int = 0) -> str:
    """Tables for people, as `docs/lake.md` has them; without the columns of their `head`."""
    lines: list[str] = []
    for name, columns in tables.items():
        lines += [f"### {name}", "", "| column | type | unit | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{column.name}` | {column.type} | {column.unit} | {_cell(column.meaning)} |"
            for column in columns[head:]
        ]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
