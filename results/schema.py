"""The tables of a report: their columns, types and meaning, said once.

Every table has `run`, the run's key `NAME/RUN`, as its first column, so that tables of many runs
are simply concatenated. Times are int64 ns since the start of the run; intervals are half-open,
`[start, end)`. Absent things are null, never an empty string or -1. Lists inside a cell (`nemeses`,
`bugs`, `active`) are sorted names joined by `+`; the empty string means none of them.

pyarrow is imported inside functions: listing plug-ins must stay quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "FACT_TABLES", "LIST_SEPARATOR", "ddl", "schema"]

LIST_SEPARATOR: Final = "+"

Columns = tuple[tuple[str, str, str], ...]

_BESIDE_RUN: Final[dict[str, Columns]] = {
    "verdicts": (
        ("checker", "string", "which checker"),
        ("key", "string", "which key of the workload; null: the whole history"),
        ("verdict", "string", "valid, permitted, unknown or invalid"),
        ("rule", "string", "which rule was broken, or what is permitted; null where valid"),
        (
            "signature",
            "string",
            "equal for equal failures (harness.signatures), or null",
        ),
        ("reason", "string", "one line"),
        ("permitted", "int64", "how often something happened that the profile permits"),
        ("n_ops", "int64", "operations judged"),
        ("configurations", "int64", "states that the search explored; null where unknown"),
        ("wall_ns", "int64", "time it took"),
        ("cpu_ns", "int64", "CPU time it took"),
        ("error", "string", "the traceback of a checker that crashed"),
        ("counterexample", "string", "JSON"),
        ("result_id", "string", "address of the stored result"),
        (
            "failed_ops",
            "int64",
            "operations begun up to the ones that a failure names first; null: it names none",
        ),
    ),
    "runs": (
        ("name", "string", "folder below the store"),
        ("label", "string", "--label of the soak; null where there was none"),
        ("environment", "string", "sim, process or docker; null where the run was cut short"),
        ("target", "string", ""),
        ("profile", "string", "of the target"),
        ("workload", "string", ""),
        ("nemeses", "string", "of the case"),
        (
            "asked",
            "string",
            "the same, or what they were drawn from: equal for all seeds of a soak",
        ),
        ("bugs", "string", "switched on"),
        ("checkers", "string", "of the case, in its order: the first of the worst names a failure"),
        ("setting", "string", "equal for runs whose cases differ in nothing but the seed"),
        ("seed", "int64", ""),
        ("started", "string", "ISO 8601, UTC; null where the run was cut short"),
        ("wall_ns", "int64", "real time of the run; null where it was cut short"),
        ("length_ns", "int64", "time of its last op: simulated time in the simulation"),
        ("recorded", "string", "the verdict in run.json; null where the run was cut short"),
        ("digest", "string", "SHA-256 of the history"),
        ("lines", "int64", "lines of the history"),
        ("ops", "int64", "client operations"),
        ("ok", "int64", "of these acknowledged"),
        ("fail", "int64", "that did not happen"),
        ("info", "int64", "of unknown outcome, with those never completed"),
        ("refused", "int64", "of `fail`: answered by the target with a definite no"),
        ("elections", "int64", "leaders seen, without the first"),
        ("faults", "int64", "injected, with those that hit nobody"),
        ("interrupted", "bool", "the user cut the workload short"),
        ("code", "string", "its version: a commit, or digest, or else the harness's version"),
    ),
    "traits": (
        ("trait", "string", "nemesis or bug"),
        ("value", "string", "its name: one row for each in the case"),
    ),
    "ops": (
        ("f", "string", "kind of operation"),
        ("is_read", "bool", "whether it only reads"),
        ("node", "string", "that answered last; null where none did"),
        ("phase", "string", "of the run, at the invocation"),
        ("active", "string", "nemeses with a fault at the invocation"),
        ("type", "string", "ok, fail or info"),
        ("answered", "bool", "ok, or refused by the target itself"),
        ("error_code", "string", "what stands before the first colon of the error"),
        ("lat_bucket", "int32", "of the latency (harness.store.buckets); null if never completed"),
        ("n", "int64", "operations"),
    ),
    "faults": (
        ("fault", "string", "its id in the case"),
        ("nemesis", "string", ""),
        ("start_ns", "int64", "when it was injected"),
        ("end_ns", "int64", "when it was healed, or the end of the run"),
        ("hit", "bool", "whether it had a target; one without lasts no time"),
        ("healed", "bool", "whether a heal was recorded"),
        ("targets", "string", "nodes"),
        ("bite", "int64", "what it did, in units of the nemesis; null: not measured"),
        ("mutation_down_ns", "int64", "time in it in which mutations were unavailable"),
        ("read_down_ns", "int64", "time in it in which reads were unavailable"),
        ("mutation_outage_ns", "int64", "unavailable from its heal on; null: never ended"),
        ("read_outage_ns", "int64", "unavailable from its heal on; null: never ended"),
    ),
    "recoveries": (
        ("fault", "string", "that was healed"),
        ("nemesis", "string", ""),
        ("f", "string", "kind of operation"),
        ("first_try_ns", "int64", "from the heal until one was under way; null: none ever was"),
        ("first_ok_ns", "int64", "from the heal to the next ok of this kind; null: none came"),
    ),
    "unavailability": (
        ("kind", "string", "mutation or read"),
        ("start_ns", "int64", ""),
        ("end_ns", "int64", ""),
        ("tried", "int64", "operations under way in it that were not answered in it"),
        ("ended", "string", "answered, idle (nobody tried on) or end (of the run)"),
        ("phase", "string", "at its start"),
        ("active", "string", "nemeses with a fault at its start"),
    ),
    "elections": (
        ("time_ns", "int64", "when the leader was seen"),
        ("node", "string", ""),
        ("term", "int64", ""),
        ("first", "bool", "the run's first leader, which is no election under faults"),
        ("active", "string", "nemeses with a fault at that time"),
    ),
    "infos": (
        ("f", "string", "kind of operation"),
        ("nemesis", "string", "active at the invocation; none: no fault was"),
        ("n", "int64", "lost operations; one under two faults counts for both"),
    ),
    "exposure": (
        ("nemesis", "string", "of the case, or seen in the history"),
        ("f", "string", "kind of operation"),
        ("active", "bool", "whether a fault of it was active at the invocation"),
        ("n", "int64", "operations invoked in the chaos phase"),
        ("ok", "int64", ""),
        ("unanswered", "int64", "fail without an answer of the target"),
        ("info", "int64", ""),
    ),
    "exposure_by_role": (
        ("nemesis", "string", "with a fault in this run"),
        ("phase", "string", "of the run, at the invocation; one that faults may last in"),
        (
            "role",
            "string",
            "of what the active fault hit: leader, other or unknown; null: none was active",
        ),
        ("n", "int64", "operations invoked then; one under two faults counts for both"),
        ("bad", "int64", "of these not answered, or lost to info"),
    ),
    "exposure_time": (
        ("nemesis", "string", "of the case, or seen in the history"),
        ("active", "bool", "whether a fault of it was active"),
        ("ns", "int64", "time of the chaos phase"),
        ("mutation_down_ns", "int64", "of this, mutations were unavailable"),
        ("read_down_ns", "int64", "of this, reads were unavailable"),
    ),
}

_RUN: Final = ("run", "string", "the run's key, NAME/RUN")
COLUMNS: Final = {name: (_RUN, *columns) for name, columns in _BESIDE_RUN.items()}

FACT_TABLES: Final = tuple(name for name in COLUMNS if name != "verdicts")
"""What `results.facts.extract` makes; `verdicts` comes from the checkers."""

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
    """The schema of one table of `COLUMNS`."""
    import pyarrow as pa

    types = {"string": pa.string(), "int64": pa.int64(), "int32": pa.int32(), "bool": pa.bool_()}
    return pa.schema([(name, types[kind]) for name, kind, _ in COLUMNS[table]])


def ddl(columns: pa.Schema) -> str:
    """A schema in Spark's DDL; raises `KeyError` for a type that no table has."""
    return ", ".join(f"`{field.name}` {_spark_type(field.type)}" for field in columns)


def _spark_type(kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_list(kind):
        return f"ARRAY<{_spark_type(kind.value_type)}>"
    return _SPARK_TYPES[str(kind)]
