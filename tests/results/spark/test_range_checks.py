"""What a Spark task reports after it has judged its ranges of runs (tested without Spark)."""

from types import SimpleNamespace

import msgspec
import pytest

from results.facts.problems import Problem
from results.judging.work_units import Done, RoundConfig
from results.spark import range_checks, ranges
from results.spark.range_checks import TaskDone, judge_ranges

pytestmark = pytest.mark.lake

CONFIG = RoundConfig(uri="/l", scratch="", round="r0", since_s=0.0, limit_memory=False)


def test_a_task_says_one_row_however_many_units(monkeypatch, tmp_path):
    monkeypatch.setattr(range_checks.tempfile, "gettempdir", lambda: str(tmp_path))
    seen = []

    def do_units(units, *, config):
        seen.append(config.scratch)
        for unit in units:
            yield Done(unit, 0, (), part=0.5)
            yield Done(unit, 7, (Problem(unit, "history", "torn"),), limited=unit == "a")

    def sources(batches, asking):
        assert list(batches) == ["batch"]
        for number, units in enumerate((("a", "b"), ("c",))):
            yield number, None, SimpleNamespace(units=units_of(units))

    def units_of(own):
        return lambda above, first, end: own[above:][first:end]

    monkeypatch.setattr(range_checks, "do_units", do_units)
    monkeypatch.setattr(range_checks, "sources", sources)
    asking, tasks = SimpleNamespace(above=0), [(0, None), (0, 1)]
    found = [
        msgspec.json.decode(text, type=TaskDone)
        for batch in judge_ranges(["batch"], asking=asking, tasks=tasks, config=CONFIG)
        for text in batch.column("done").to_pylist()
    ]
    torn = [Problem(run, "history", "torn") for run in "abc"]
    assert found == [TaskDone(14, (torn[0], torn[1]), limited=True), TaskDone(7, (torn[2],))]
    assert set(seen) == {str(tmp_path / "harness-r0")}
    assert list(tmp_path.iterdir()) == []


def test_an_executor_takes_the_drivers_settings_where_it_has_none(monkeypatch):
    monkeypatch.setattr(ranges.os, "environ", {"AWS_REGION": "here"})
    ranges.use({"aws_region": "there", "aws_access_key_id": "old"})
    ranges.use({"aws_region": "there", "aws_access_key_id": "new"})
    assert ranges.os.environ["AWS_REGION"] == "here"
    assert ranges.os.environ["AWS_ACCESS_KEY_ID"] == "new"
