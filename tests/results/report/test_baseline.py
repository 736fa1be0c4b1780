"""The comparison of two labels reports regressions, ignores noise, and compares equal settings."""

import random
import weakref

import pyarrow as pa
import pytest

from harness.errors import UsageError
from results.questions import baseline
from results.questions.baseline import (
    BETTER,
    NO_EVIDENCE,
    WORSE,
    chosen_label,
    compare,
)
from results.questions.ignored import Ignored

QUANTILES = {"p95_ns": 1, "p99_ns": 1, "p999_ns": 1, "max_ns": 1, "ok": 10}


ALIKE = {
    "environment": "sim", "workload": "ddl", "nemeses": "kill", "asked": "kill",
    "profile": "strict", "ops": 1000, "length_ns": 10**10, "read_down_ns": 0,
}  # fmt: skip


class Runs:
    """A builder of rows in the form of `baseline_runs` and `latency_by_run`."""

    def __init__(self, seed=1):
        self.runs, self.latencies = [], []
        self._rng = random.Random(seed)

    def add(self, label, count, *, setting="s1", bugs="", invalid=0, info=0, p50=1000, jitter=200):
        for number in range(count):
            run = f"{setting}/{label}-{len(self.runs)}"
            drawn = {
                "info": info + self._rng.randrange(20),
                "unanswered": self._rng.randrange(50),
                "mutation_down_ns": self._rng.randrange(10**9),
            }
            verdict = "invalid" if number < invalid else "valid"
            place = {"setting": setting, "label": label, "run": run, "bugs": bugs}
            self.runs.append({**ALIKE, **place, "verdict": verdict, **drawn})
            value = p50 + self._rng.randrange(jitter)
            self.latencies.append(
                {"run": run, "f": "get", **QUANTILES, "p50_ns": value, "p99_ns": value * 3}
            )
        return self

    def compared(self, baseline="a", label="b"):
        return compare(self.runs, self.latencies, baseline=baseline, label=label)

    def verdicts(self):
        return {line.metric: line.verdict for line in self.compared().lines}


def test_equal_labels_give_no_evidence():
    found = Runs().add("a", 30).add("b", 30).compared()

    assert {line.verdict for line in found.lines} == {NO_EVIDENCE}
    assert (found.settings, found.baseline_runs_left_out, found.label_runs_left_out) == (1, 0, 0)


def test_false_alarms_are_rare_over_many_comparisons():
    alarms = sum(
        any(
            verdict != NO_EVIDENCE
            for verdict in Runs(seed).add("a", 20).add("b", 20).verdicts().values()
        )
        for seed in range(100)
    )
    assert alarms <= 8


def test_slower_is_worse_and_faster_is_better():
    slower = Runs().add("a", 20).add("b", 20, p50=1500).verdicts()
    faster = Runs().add("a", 20, p50=1500).add("b", 20).verdicts()

    assert (slower["get p50"], slower["get p99"], slower["operations lost to info"]) == (
        *(WORSE, WORSE, NO_EVIDENCE),
    )
    assert (faster["get p50"], faster["get p99"]) == (BETTER, BETTER)


def test_more_losses_and_more_invalid_runs_are_worse():
    found = Runs().add("a", 30).add("b", 30, info=30, invalid=15).verdicts()

    assert found["operations lost to info"] == WORSE
    assert found["invalid"] == WORSE
    assert "detected" not in found


def test_with_a_bug_switched_on_more_invalid_runs_are_better():
    found = Runs().add("a", 30, bugs="B", invalid=3).add("b", 30, bugs="B", invalid=25).verdicts()

    assert found["detected"] == BETTER
    assert "invalid" not in found


def test_worse_lines_come_first_and_carry_their_intervals():
    line = Runs().add("a", 20).add("b", 20, p50=1500).compared().lines[0]

    assert line.verdict == WORSE
    assert line.baseline_low <= line.baseline_value <= line.baseline_high < 1300
    assert 1400 < line.label_low <= line.label_value <= line.label_high
    assert line.p_value < line.p_adjusted < 0.05


def test_only_settings_of_both_labels_are_compared_and_the_rest_is_counted():
    runs = Runs().add("a", 5).add("b", 6).add("a", 3, setting="s2").add("b", 4, setting="s3")
    found = runs.add("c", 9).compared()

    assert (found.settings, found.baseline_runs_left_out, found.label_runs_left_out) == (1, 3, 4)
    assert {line.baseline_runs for line in found.lines} == {5}
    assert {line.label_runs for line in found.lines} == {6}


def test_ignored_parts_of_settings_do_not_count():
    runs = Runs().add("a", 30, bugs="B", setting="with B", invalid=15).add("b", 30)
    whole = runs.compared()
    ignored = Ignored(("bugs",), {"with B": "s", "s1": "s"})
    found = compare(runs.runs, runs.latencies, baseline="a", label="b", ignored=ignored)

    assert (whole.settings, whole.lines, whole.ignorable) == (0, (), ("bugs",))
    assert whole.differs == "bugs (B against none)"
    assert (found.settings, found.label_runs_left_out, found.ignorable) == (1, 0, ())
    assert found.differs == "bugs (B against none); ignored here: bugs"
    assert (found.lines[0].metric, found.lines[0].verdict) == ("invalid", BETTER)
    assert found.lines[0].setting == "ddl under kill (sim, strict, s)"


def test_a_mixture_is_no_regression():
    """Each setting is equal in both labels; only their frequencies differ (Simpson's paradox)."""
    runs = Runs().add("a", 40).add("a", 5, setting="slow", p50=90_000)
    found = runs.add("b", 5).add("b", 40, setting="slow", p50=90_000).verdicts()

    assert set(found.values()) == {NO_EVIDENCE}


def test_no_spread_has_no_interval():
    line = next(
        line
        for line in Runs().add("a", 5).add("b", 5).compared().lines
        if line.metric == "reads unavailable"
    )

    assert (line.baseline_value, line.baseline_low, line.baseline_high) == (0.0, None, None)


def test_the_other_label_goes_without_saying_if_there_is_one():
    assert Runs().add("a", 3).add("b", 3).compared(label=None).label == "b"
    with pytest.raises(UsageError, match=r"--label is missing; .* from: 'b', 'c'"):
        Runs().add("a", 3).add("b", 3).add("c", 3).compared(label=None)
    with pytest.raises(UsageError, match=r"--label is missing; .* from: none"):
        Runs().add("a", 3).compared(label=None)
    with pytest.raises(UsageError, match="--baseline is 'z'"):
        Runs().add("a", 3).compared(baseline="z")


def test_of_many_labels_the_first_are_shown_and_the_others_counted():
    labels = [f"v{number:02d}" for number in range(25)]
    with pytest.raises(UsageError) as raised:
        chosen_label([*labels, None, "v00"], "x", None)

    assert "'v00', 'v01', " in str(raised.value)
    assert "'v19' and 5 more (label runs" in str(raised.value)
    with pytest.raises(UsageError, match=r"'v20' and 4 more$"):
        chosen_label(labels, "v00", None)


def test_rows_are_looked_at_once_and_not_kept():
    runs = Runs().add("a", 300).add("b", 300)
    alive = weakref.WeakSet()

    class Kept(dict):
        """A row for which a test can tell whether it still exists."""

        __hash__ = object.__hash__

    def told(rows):
        for row in rows:
            kept = Kept(row)
            alive.add(kept)
            yield kept
            del kept

    once = compare(told(runs.runs), told(runs.latencies), baseline="a", label="b")
    assert once == runs.compared()

    seen = []

    def counted(rows):
        for row in told(rows):
            seen.append(len(alive))
            yield row

    compare(counted(runs.runs), counted(runs.latencies), baseline="a", label="b")
    assert max(seen) <= 5  # the first row of each label, and the current row


def test_rows_of_a_table_come_some_at_a_time(monkeypatch):
    monkeypatch.setattr(baseline, "_ROWS_AT_ONCE", 2)
    table = pa.table({"x": list(range(5)), "y": list("abcde"), "z": [None] * 5})
    rows = baseline.rows_of(table, ["y", "x"])
    assert list(rows) == [{"y": y, "x": x} for x, y in enumerate("abcde")]
