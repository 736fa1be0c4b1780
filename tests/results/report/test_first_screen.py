"""On a report's first screen, failures of runs with a bug switched on are expected, not red."""

from types import SimpleNamespace

import pytest

from harness.verdict.known import KnownFailure, KnownFailures
from results.report.summary import summarise

NUMBERS = dict.fromkeys(
    ("runs", "repeats", "ops", "ok", "fail", "refused", "info", "length_ns", "faults", "elections"),
    1,
)
FIELDS = {
    **dict.fromkeys(("store", "label", "engine", "executor"), ""),
    **dict.fromkeys(("results_new", "results_known", "results_unsettled", "problems_total"), 0),
    "check_cpu_s": 0.0,
    "check_wall_s": 0.0,
    "problems": (),
}


def summary_of(populations, *, crashed=0, unjudged=0, excused=()):
    names = ("bugs", "valid", "unknown", "invalid")
    rows = [dict(zip(names, population, strict=True)) for population in populations]
    totals = {name: sum(row[name] for row in rows) for name in names[1:]}
    answers = {
        "totals": [{**NUMBERS, **totals, "permitted": 0}],
        "populations": [
            {**row, "runs": row["valid"] + row["unknown"] + row["invalid"]} for row in rows
        ],
        "signatures": [
            {"verdict": verdict, "bugs": row["bugs"], "runs": row[verdict], "signature": verdict}
            for row in rows
            for verdict in ("unknown", "invalid")
            if row[verdict]
        ],
    }
    failures = KnownFailures(tuple(KnownFailure(name, "T-1", fails=False) for name in excused))
    told = SimpleNamespace(rows=lambda name: answers[name], known_failures=failures)
    return summarise(told, crashed=crashed, unjudged=unjudged, **FIELDS)


@pytest.mark.parametrize(
    ("populations", "others", "headline", "code"),
    [
        ([("B", 192, 1, 107), ("", 300, 0, 0)], {}, "expected", 1),
        ([("B", 0, 0, 3)], {}, "expected", 1),
        ([("B", 0, 0, 3), ("", 5, 0, 1)], {}, "invalid", 1),
        ([("B", 0, 0, 3), ("", 5, 1, 0)], {}, "unknown", 1),
        ([("B", 0, 0, 3)], {"crashed": 1}, "crash", 1),
        ([("B", 0, 0, 3)], {"unjudged": 1}, "unknown", 1),
        ([("B", 4, 2, 0)], {}, "unknown", 2),
        ([("B", 4, 0, 3)], {"excused": ["invalid"]}, "known", 0),
        ([("", 4, 0, 0)], {}, "valid", 0),
    ],
)
def test_only_failures_without_a_bug_are_in_the_headline(populations, others, headline, code):
    summary = summary_of(populations, **others)

    assert (summary.verdict, summary.exit_code) == (headline, code)


def test_expected_failures_are_apart_in_words():
    both = summary_of([("NO-LEASE", 192, 1, 107), ("", 300, 0, 0)]).expectations
    many = summary_of([(name, 1, 0, 1) for name in "ABCD"]).expectations

    assert both == (
        "107 of 299 runs with NO-LEASE found it (expected) · 0 of 300 runs without a bug failed"
    )
    assert many == "4 of 8 runs with one of 4 bugs found it (expected)"
    assert summary_of([("", 3, 0, 0)]).expectations == ""
