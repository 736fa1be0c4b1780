"""The row of a run as pages show it, and SQL that makes such rows from the lake's table `runs`.

Null means that a run does not have the value. Texts are cut, because a lake may come from an
untrusted place. Runs with an outcome in `FINISHED` form the table `judged`, to which pages apply a
report's own queries (`results/questions/sql`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from harness.ops import Verdict
from harness.verdict.signature import PARTS, SEPARATOR
from results.facts.schema import LIST_SEPARATOR
from results.lake.log.duckdb_views import CODE, STARTED
from results.lake.tables.sealed_run import DAMAGED, FOREIGN, TORN

TEXT_CHARS_MAX: Final = 200
NONE: Final = "(none)"
BROKEN: Final = "broken"
UNFINISHED: Final = "unfinished"
FINISHED: Final = tuple(verdict.value for verdict in Verdict)
OUTCOMES: Final = (*reversed(FINISHED), UNFINISHED, BROKEN)
"""All outcomes of a run, in the order in which tables show them."""
COLUMNS: Final = (
    *("run", "name", "id", "label", "target", "environment", "profile", "workload", "nemeses"),
    *("asked", "bugs", "setting", "seed", "started", "wall_s", "simulated_s", "length_ns"),
    *("verdict", "state", "failure_checker", "failure_reason", "signature", "digest", "lines"),
    *("ops", "ok", "fail", "info", "refused", "elections", "faults", "interrupted", "versions"),
)
_PROBLEMS: Final = {
    TORN: "cut short: it has no run.json",
    DAMAGED: "its run.json cannot be read",
    FOREIGN: "its history is not the one that its run.json describes",
}
_TEXTS: Final = (
    *("label", "target", "environment", "profile", "workload", "nemeses", "asked", "bugs"),
    *("setting", "digest"),
)
_NUMBERS: Final = (
    *("seed", "wall_s", "simulated_s", "length_ns", "lines", "ops", "ok", "fail", "info"),
    *("refused", "elections", "faults"),
)


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Its `outcome` is a verdict or, explained in `problem`, `unfinished` or `broken`."""

    key: str  # "name/run", as in addresses
    name: str
    run: str
    lake_run: str = ""  # key in the lake; empty if the lake rejected the run
    outcome: str
    problem: str | None = None
    started: str = ""
    label: str | None = None
    environment: str = ""
    target: str = ""
    profile: str = ""
    workload: str = ""
    nemeses: tuple[str, ...] = ()
    bugs: tuple[str, ...] = ()
    seed: int | None = None
    faults: int | None = None
    ops: int | None = None
    wall_s: float | None = None
    simulated_s: float | None = None
    interrupted: bool = False
    digest: str = ""
    versions: str = ""
    code: str = ""  # identifies the version of the code
    setting: str = ""  # hash of the case without its seed
    checker: str = ""  # checker with the worst finding, if the run is not valid
    signature: str = ""
    shape: str = ""  # kinds of the operations through which the run failed
    reason: str = ""


_OPTIONAL: Final = frozenset({"problem", "label", *_NUMBERS})
_FIELDS: Final = tuple(RunRow.__struct_fields__)


def row_of(values: Mapping[str, Any]) -> RunRow:
    """Make a `RunRow` from a row of the server's table `runs`."""
    fields = {name: values[name] for name in _FIELDS}
    fields |= {name: _items(fields[name]) for name in ("nemeses", "bugs")}
    fields |= {
        name: "" for name, value in fields.items() if value is None and name not in _OPTIONAL
    }
    return RunRow(**{**fields, "interrupted": bool(fields["interrupted"])})


def _items(joined: str | None) -> tuple[str, ...]:
    return tuple(joined.split(LIST_SEPARATOR)) if joined else ()


def _cut(text: str) -> str:
    return (
        f"CASE WHEN length({text}) > {TEXT_CHARS_MAX} THEN left({text}, {TEXT_CHARS_MAX}) || '…' "
        f"ELSE nullif({text}, '') END"
    )


def signature_of(text: str) -> str:
    """Return SQL for a failure's signature, without the kinds of the operations that failed."""
    return _parts(text, f"1:{PARTS}")


def _parts(text: str, places: str) -> str:
    return f"array_to_string(string_split({text}, '{SEPARATOR}')[{places}], '{SEPARATOR}')"


def selected(source: str, *, of_store: bool) -> str:
    """Return SQL that makes rows of the server's table `runs` from a lake's table `runs`.

    With `of_store`, the rows name runs by their folders, otherwise by their keys in the lake.
    """
    run = "r.id" if of_store else "regexp_replace(r.run, '^[^/]*/', '')"
    verdicts = ", ".join(f"'{verdict}'" for verdict in FINISHED)
    states = " ".join(f"WHEN '{state}' THEN '{text}'" for state, text in _PROBLEMS.items())
    texts = ", ".join(f"{_cut(f'r.{name}')} AS {name}" for name in _TEXTS)
    return f"""
        SELECT r.name || '/' || {run} AS key, r.name, {run} AS run, r.run AS lake_run,
               CASE WHEN r.state IN ('{DAMAGED}', '{FOREIGN}') THEN '{BROKEN}'
                    WHEN r.verdict IN ({verdicts}) THEN r.verdict
                    ELSE '{UNFINISHED}' END AS outcome,
               CASE r.state {states} END AS problem,
               {STARTED} AS started, strftime(r.started AT TIME ZONE 'UTC', '%Y-%m-%d') AS day,
               {texts}, {", ".join(f"r.{name}" for name in _NUMBERS)},
               coalesce(r.interrupted, false) AS interrupted,
               {_cut("translate(r.versions, ':,{}" + '"' + "', '  ')")} AS versions,
               {_cut(CODE)} AS code, {_cut("r.failure_checker")} AS checker,
               {_cut("r.failure_reason")} AS reason,
               {_cut(signature_of("r.signature"))} AS signature,
               {_cut(_parts("r.signature", f"{PARTS + 1}:"))} AS shape
        FROM {source} r
    """  # noqa: S608


def create_runs(rows: str) -> str:
    """Return the SQL statement that recreates the server's table `runs` from the query `rows`."""
    return f"CREATE OR REPLACE TABLE runs AS {rows}"


def as_report(where: str, dimension: str | None = None) -> str:
    """Return SQL (`WITH ...`) for a report's tables of the finished runs that meet a condition.

    All runs of one setting and label are a population. With a `dimension`, the column `day` has the
    value of this dimension instead. If the dimension is `label`, all runs of one setting are a
    population.
    """
    finished = ", ".join(f"'{verdict}'" for verdict in FINISHED)
    alike = "setting" if dimension == "label" else f"coalesce(label, '{NONE}'), setting"
    day, code = ("day", "code") if dimension is None else (f"coalesce({dimension}, '{NONE}')", "''")
    return f"""
        WITH judged AS NOT MATERIALIZED (
            SELECT key AS run, CAST(hash({alike}) >> 1 AS BIGINT) AS population,
                   coalesce(label, '{NONE}') AS label, environment, target, profile, workload,
                   nemeses, asked, coalesce(bugs, '') AS bugs, coalesce(setting, '') AS setting,
                   seed, started, length_ns, ops, ok, fail, info, refused, elections, faults,
                   {code} AS code, {day} AS day, outcome AS verdict, checker,
                   nullif(concat_ws('{SEPARATOR}', signature, shape), '') AS signature, reason
            FROM runs WHERE outcome IN ({finished}) AND {where}
        ),
        failing_runs AS (
            SELECT run, population, verdict, target, nemeses, bugs, seed, environment, checker,
                   CAST(NULL AS VARCHAR) AS rule, signature, reason, day, code
            FROM judged WHERE verdict NOT IN ('valid', 'permitted') AND signature IS NOT NULL
        ),
        unavailability AS (
            SELECT '' AS run, '' AS kind, 0 AS start_ns, 0 AS end_ns WHERE false
        )
    """  # noqa: S608
