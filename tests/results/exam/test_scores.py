"""The scores of an exam are computed from the results of seeds."""

import pytest

from harness.errors import UsageError
from results.exam.rows import CLEAN, SWITCH
from results.exam.scores import Scoreboard, read_scoreboard, score, write_json
from results.statistics.estimates import wilson
from results.statistics.exact import first_hit_interval
from tests.results.exam.made import board, result, results, row


def test_all_seeds_count_without_first():
    one = score(row(seeds=range(1, 5)), results("valid", "invalid", "unknown", "invalid"))
    assert (one.hits, one.seeds, one.first_seed, one.to_first) == (2, 4, 2, 2)
    assert (one.low, one.high) == wilson(2, 4)
    assert one.verdicts == {"invalid": 2, "unknown": 1, "valid": 1}
    assert (one.cpu_s, one.cpu_s_to_first) == (4.0, 2.0)


def test_with_first_nothing_counts_after_the_first_detection():
    verdicts = ("valid", "valid", "invalid", "invalid", "valid")
    whole = score(row(first=True), results(*verdicts))
    assert whole == score(row(first=True), results(*verdicts[:3]))
    assert (whole.hits, whole.seeds, whole.to_first) == (1, 3, 3)
    assert (whole.low, whole.high) == first_hit_interval(3)


def test_only_seeds_before_the_first_missing_one_count():
    found = results("valid", "valid") | results("invalid", first=4)
    one = score(row(), found)
    assert (one.hits, one.seeds) == (0, 2)


def test_a_row_without_seeds_has_no_rate():
    one = score(row(case=None, seeds=range(0), reason="harmless"), {})
    assert (one.hits, one.seeds, one.low, one.high) == (0, 0, 0.0, 1.0)
    assert one.reason == "harmless"


def test_checker_rule_and_fault_are_those_of_most_detections():
    found = results("invalid", "invalid", checker="b", fault="cut") | {
        3: result(3, "invalid", checker="a")
    }
    one = score(row(seeds=range(1, 4)), found)
    assert (one.checker, one.rule, one.fault) == ("b", "rule", "cut")


def test_findings_of_another_switch_do_not_count():
    found = results("invalid", checker="other") | {2: result(2, "invalid", checker="crash")}
    one = score(row(accepted="crash"), found)
    assert (one.hits, one.first_seed, one.checker) == (1, 2, "crash")


def test_counts_of_a_kind_omit_untried_runs():
    made = board(
        (row("a", SWITCH), results("invalid")),
        (row("b", SWITCH, seeds=range(1, 41)), results(*["valid"] * 39, "invalid")),
        (row("c", SWITCH, case=None, seeds=range(0)), {}),
        (row("d", CLEAN), results("invalid", "crash")),
    )
    tally = made.tally(SWITCH)
    assert (tally.rows, tally.detected, tally.near) == (2, 2, 1)
    assert [one.name for one in made.untried(SWITCH)] == ["c"]
    assert [one.name for one in made.blamed] == ["d"]
    assert made.crashes == 1


def test_a_reason_is_outdated_once_the_defect_is_found():
    made = board(
        (row("a", reason="equivalent"), results("invalid")),
        (row("b", reason="equivalent"), results("valid")),
        (row("c"), results("invalid")),
    )
    assert [one.name for one in made.outdated] == ["a"]
    assert [one.name for one in made.missed] == ["b"]


def test_a_scoreboard_survives_its_file(tmp_path):
    made = board((row(), results("invalid")))
    write_json(made, tmp_path / "deep" / "exam.json")
    assert read_scoreboard(tmp_path / "deep" / "exam.json", "--baseline") == made


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\xff"])
def test_a_file_that_is_no_scoreboard_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"exam\.json"):
        read_scoreboard(tmp_path / "x.json", "--baseline")


def test_a_scoreboard_of_another_schema_is_refused(tmp_path):
    made = board((row(), results("invalid")))
    other = Scoreboard(
        schema=99, commit="c", made="", cpu_s=0.0, runs=0, cut="", scores=made.scores
    )
    write_json(other, tmp_path / "x.json")
    with pytest.raises(UsageError, match="99"):
        read_scoreboard(tmp_path / "x.json", "--baseline")
