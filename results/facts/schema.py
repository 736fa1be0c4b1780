"""The tables of a report, with the types and the meaning of their columns.

The first column of every table is `run`, the run's key `NAME/RUN`, so tables of many runs can be
concatenated. Times are int64 ns since the start of the run. Intervals are half-open, `[start,
end)`. Missing values are null. Lists inside a cell (`nemeses`, `bugs`, `active`) are sorted names
joined by `+`; the empty string is the empty list.

pyarrow is imported inside functions, because listing plug-ins must stay fast.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

LIST_SEPARATOR: Final = "+"

Columns = tuple[tuple[str, str, str], ...]

_BESIDE_RUN: Final[dict[str, Columns]] = {
    "verdicts": (
        ("checker", "string", "name of the checker"),
        ("key", "string", "key within the workload; null: the whole history"),
        ("verdict", "string", "valid, permitted, unknown or invalid"),
        ("rule", "string", "broken or permitted rule; null if valid"),
        (
            "signature",
            "string",
            "same text for similar failures (harness.verdict.signature), or null",
        ),
        ("reason", "string", "one-line reason"),
        ("permitted", "int64", "number of anomalies that the profile permits"),
        ("n_ops", "int64", "operations checked"),
        ("configurations", "int64", "states explored by the search; null: unknown"),
        ("wall_ns", "int64", "wall time of the check"),
        ("cpu_ns", "int64", "CPU time of the check"),
        ("error", "string", "traceback, if the checker crashed"),
        ("counterexample", "string", "JSON"),
        ("result_id", "string", "id of the stored result"),
        (
            "failed_ops",
            "int64",
            "operations begun up to the failure; null: the checker names none",
        ),
    ),
    "runs": (
        ("name", "string", "first folder below the store"),
        ("label", "string", "--label of the run; null: none"),
        ("environment", "string", "sim, process or docker; null if cut short"),
        ("target", "string", ""),
        ("profile", "string", "consistency profile of the target"),
        ("workload", "string", ""),
        ("nemeses", "string", "nemeses of the case"),
        (
            "asked",
            "string",
            "nemeses asked for, before any draw: equal for all seeds of a soak",
        ),
        ("bugs", "string", "enabled bug switches"),
        ("checkers", "string", "checkers of the case, in its order"),
        ("setting", "string", "equal for runs whose cases differ only in the seed"),
        ("seed", "int64", ""),
        ("started", "string", "ISO 8601, UTC; null if cut short"),
        ("wall_ns", "int64", "wall time of the run; null if cut short"),
        ("length_ns", "int64", "time of the last op; virtual in the simulation"),
        ("recorded", "string", "verdict in run.json; null if cut short"),
        ("digest", "string", "SHA-256 of the history"),
        ("lines", "int64", "number of lines in the history"),
        ("ops", "int64", "number of client operations"),
        ("ok", "int64", "operations that were acknowledged"),
        ("fail", "int64", "operations that certainly did not happen"),
        ("info", "int64", "operations of unknown outcome, including those never completed"),
        ("refused", "int64", "failed operations that the target itself refused"),
        ("elections", "int64", "leaders seen after the first"),
        ("faults", "int64", "faults injected, including those without a target"),
        ("interrupted", "bool", "whether the user cut the workload short"),
        ("code", "string", "version of the code: commit, digest or harness version"),
    ),
    "traits": (
        ("trait", "string", "nemesis or bug"),
        ("value", "string", "name of the nemesis or bug"),
    ),
    "ops": (
        ("f", "string", "kind of operation"),
        ("is_read", "bool", "whether the operation only reads"),
        ("node", "string", "node that answered last; null: none"),
        ("phase", "string", "phase of the run at the invocation"),
        ("active", "string", "nemeses with an active fault at the invocation"),
        ("type", "string", "ok, fail or info"),
        ("answered", "bool", "true if ok, or refused by the target itself"),
        ("error_code", "string", "part of the error before its first colon"),
        ("lat_bucket", "int32", "latency bucket (harness.store.buckets); null: never completed"),
        ("n", "int64", "number of operations"),
    ),
    "faults": (
        ("fault", "string", "id of the fault in the case"),
        ("nemesis", "string", ""),
        ("start_ns", "int64", "injection time"),
        ("end_ns", "int64", "heal time, or the end of the run"),
        ("hit", "bool", "whether the fault had a target; if not, its duration is 0"),
        ("healed", "bool", "whether a heal was recorded"),
        ("targets", "string", "nodes hit"),
        ("bite", "int64", "measured effect, in the nemesis's unit; null: not measured"),
        ("mutation_down_ns", "int64", "time under the fault in which mutations were unavailable"),
        ("read_down_ns", "int64", "time under the fault in which reads were unavailable"),
        (
            "mutation_outage_ns",
            "int64",
            "duration of an outage after the heal; null: it never ended",
        ),
        ("read_outage_ns", "int64", "duration of an outage after the heal; null: it never ended"),
    ),
    "recoveries": (
        ("fault", "string", "fault that was healed"),
        ("nemesis", "string", ""),
        ("f", "string", "kind of operation"),
        ("first_try_ns", "int64", "from the heal to the first attempt; null: none"),
        ("first_ok_ns", "int64", "from the heal to the next ok of this kind; null: none"),
    ),
    "unavailability": (
        ("kind", "string", "mutation or read"),
        ("start_ns", "int64", ""),
        ("end_ns", "int64", ""),
        ("tried", "int64", "operations in progress that got no answer during the outage"),
        ("ended", "string", "answered, idle (no more attempts) or end (of the run)"),
        ("phase", "string", "phase at the start of the outage"),
        ("active", "string", "nemeses with an active fault at the start"),
    ),
    "elections": (
        ("time_ns", "int64", "time at which the leader was seen"),
        ("node", "string", ""),
        ("term", "int64", ""),
        ("first", "bool", "whether this is the run's first leader"),
        ("active", "string", "nemeses with an active fault at that time"),
    ),
    "infos": (
        ("f", "string", "kind of operation"),
        ("nemesis", "string", "nemesis active at the invocation; none: no fault"),
        ("n", "int64", "lost operations; one under two faults counts under both"),
    ),
    "exposure": (
        ("nemesis", "string", "nemesis of the case or of the history"),
        ("f", "string", "kind of operation"),
        ("active", "bool", "whether a fault of the nemesis was active at the invocation"),
        ("n", "int64", "operations invoked in the chaos phase"),
        ("ok", "int64", ""),
        ("unanswered", "int64", "operations that failed without an answer"),
        ("info", "int64", ""),
    ),
    "exposure_by_role": (
        ("nemesis", "string", "nemesis with a fault in this run"),
        ("phase", "string", "phase at the invocation; one in which faults may be active"),
        (
            "role",
            "string",
            "role of the node hit: leader, other or unknown; null: no active fault",
        ),
        ("n", "int64", "operations invoked; one under two faults counts under both"),
        ("bad", "int64", "operations not answered, or lost to info"),
    ),
    "exposure_time": (
        ("nemesis", "string", "nemesis of the case or of the history"),
        ("active", "bool", "whether a fault of the nemesis was active"),
        ("ns", "int64", "time in the chaos phase"),
        ("mutation_down_ns", "int64", "time in which mutations were unavailable"),
        ("read_down_ns", "int64", "time in which reads were unavailable"),
    ),
}

_RUN: Final = ("run", "string", "the run's key, NAME/RUN")
COLUMNS: Final = {name: (_RUN, *columns) for name, columns in _BESIDE_RUN.items()}

OF_RUNS: Final = ("runs", "traits")
"""Names of the tables that a report computes from the lake's table `runs`."""
FACT_TABLES: Final = tuple(name for name in COLUMNS if name not in {"verdicts", *OF_RUNS})
"""Names of the tables that `results.facts.extraction.extract` makes."""

_SPARK_TYPES: Final = {
    "string": "STRING",
    "int64": "BIGINT",
    "int32": "INT",
    "bool": "BOOLEAN",
    "double": "DOUBLE",
    "date32[day]": "DATE",
    "timestamp[us, tz=UTC]": "TIMESTAMP",
}


def schema(table: str) -> pa.Schema:
    """Return the Arrow schema of one table of `COLUMNS`."""
    types = {"string": pa.string(), "int64": pa.int64(), "int32": pa.int32(), "bool": pa.bool_()}
    return pa.schema([(name, types[kind]) for name, kind, _ in COLUMNS[table]])


def ddl(columns: pa.Schema) -> str:
    """Write an Arrow schema in Spark's DDL; raise `KeyError` for a type that no table uses."""
    return ", ".join(f"`{field.name}` {_spark_type(field.type)}" for field in columns)


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"ARRAY<{_spark_type(kind.value_type)}>"
    return _SPARK_TYPES[str(kind)]
