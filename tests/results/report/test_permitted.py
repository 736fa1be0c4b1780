"""Permitted anomalies in the tables and the first lines of a report."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from harness.ops import CheckResult, History, Verdict
from results.facts.schema import schema
from results.judging.verdict_rows import _row_of, table_of
from results.questions.engines import DuckEngine, query
from results.report.summary import exit_code


def row(verdict, **permitted):
    details = {"permitted": permitted, "rule": "+".join(sorted(permitted))}
    result = CheckResult("c", Verdict(verdict), "why", details=details)
    return _row_of("c", result, History(()), None)


@pytest.fixture
def engine(tmp_path):
    """Build runs of one population: one valid, two permitted, and one permitted with `unknown`."""
    told = {
        "r1": [row("valid")],
        "r2": [row("permitted", **{"stale-read": 3, "torn-list": 1})],
        "r3": [row("permitted", **{"stale-read": 2, "torn-list": 5}), row("valid")],
        "r4": [row("permitted", **{"stale-read": 7}), row("unknown")],
    }
    verdicts = pa.concat_tables([table_of(rows, run, "id") for run, rows in told.items()])
    texts = dict.fromkeys(("workload", "asked", "bugs", "setting", "nemeses", "target"), "x")
    runs = [{"run": run, "profile": "modern", "label": "l", **texts} for run in told]
    found = DuckEngine()
    for name, table in (
        ("verdicts", verdicts),
        ("runs", pa.Table.from_pylist(runs, schema=schema("runs"))),
    ):
        pq.write_table(table, tmp_path / f"{name}.parquet")
        found.register(name, [tmp_path / f"{name}.parquet"])
    found.keep("judged", query("judged"))
    for name in ("run_cells", "verdict_cells"):
        found.keep(name, query(name))
    yield found
    found.close()


def test_runs_have_their_worst_verdict_and_are_counted(engine):
    judged = {one["run"]: one["verdict"] for one in engine.sql(query("judged")).to_pylist()}
    assert judged == {"r1": "valid", "r2": "permitted", "r3": "permitted", "r4": "unknown"}
    (alike,) = engine.sql(query("populations")).to_pylist()
    counts = {name: alike[name] for name in ("runs", "valid", "permitted", "unknown", "invalid")}
    assert counts == {"runs": 4, "valid": 1, "permitted": 2, "unknown": 1, "invalid": 0}
    failing = [one["run"] for one in engine.sql(query("failing_runs")).to_pylist()]
    assert failing == ["r4"], "what is permitted did not fail"


def test_permitted_results_are_counted_by_permit(engine):
    found = [
        (one["permit"], one["runs"], one["times"], one["first_run"])
        for one in engine.sql(query("permitted")).to_pylist()
    ]
    assert found == [("stale-read", 1, 7, "r4"), ("stale-read+torn-list", 2, 11, "r2")]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ({"permitted": 2}, EXIT_VALID),
        ({"permitted": 2, "valid": 1}, EXIT_VALID),
        ({"permitted": 2, "unknown": 1}, EXIT_UNKNOWN),
        ({"permitted": 2, "invalid": 1}, EXIT_INVALID),
    ],
)
def test_a_store_of_permitted_runs_is_no_failure(verdicts, code):
    assert exit_code(verdicts, crashed=0, unjudged=0) == code
