"""Sizes of shrunk detections on the scoreboard, with a fake shrinker."""

import pytest

from harness.errors import UsageError
from harness.trials.shrink import Shrunk
from harness.trials.trials import Kind
from results.exam import shrinking
from results.exam.rows import CLEAN, SWITCH
from results.exam.shrinking import CPU_S, with_sizes
from tests.results.exam.made import TOY, board, result, results, row


@pytest.fixture
def shrunk(monkeypatch):
    """Replace `shrink` by a fake, and return the record of its calls; each call costs 40 CPU s."""
    calls = []

    def shrink(trials, case, kind):
        calls.append((case.seed, kind))
        if kind.checker == "refused":
            raise UsageError("no seed fails so")
        return Shrunk(
            case=case,
            kind=kind,
            result=result(case.seed, "invalid", ops=7),
            start=case,
            operations=None if kind.checker == "kept" else 3,
            steps=(),
            runs=1,
            cpu_s=40.0,
            exhausted=False,
        )

    monkeypatch.setattr(shrinking, "shrink", shrink)
    return calls


def sized(*pairs, cpu_s_max=1e9, tmp_path=None):
    rows = {each.key: (each, seen) for each, seen in pairs}
    *_, last = with_sizes(
        board(*pairs), rows, jobs=1, cpu_s_max=cpu_s_max, folder=tmp_path, on_row=lambda _: None
    )
    return last


def test_the_first_detection_of_every_defect_is_shrunk(shrunk, tmp_path):
    made = sized(
        (row("a", SWITCH), results("valid", "invalid", "invalid")),
        (row("b", SWITCH), results("invalid", checker="kept")),
        (row("c", SWITCH), results("valid")),
        (row("d", CLEAN), results("invalid")),
        tmp_path=tmp_path,
    )
    assert shrunk == [(2, Kind("c", "rule")), (1, Kind("kept", "rule"))]
    sizes = [None if one.shrunk is None else one.shrunk.operations for one in made.scores]
    assert sizes == [3, 7, None, None]
    assert made.cpu_s == 6.0 + 80.0
    assert not made.cut


def test_the_kind_of_the_first_detection_is_shrunk_and_not_the_usual_kind(shrunk, tmp_path):
    seen = results("invalid", checker="first") | results("invalid", "invalid", first=2)
    made = sized((row("a"), seen), tmp_path=tmp_path)
    assert (made.scores[0].checker, made.scores[0].first_seed) == ("c", 1)
    assert shrunk == [(1, Kind("first", "rule"))]


def test_a_detection_that_does_not_shrink_has_no_size(shrunk, tmp_path):
    made = sized((row("a"), results("invalid", checker="refused")), tmp_path=tmp_path)
    assert made.scores[0].shrunk is None


def test_the_limit_of_cpu_time_leaves_the_rest_without_a_size(shrunk, tmp_path):
    pairs = [(row(name), results("invalid")) for name in "abc"]
    made = sized(*pairs, cpu_s_max=60.0, tmp_path=tmp_path)
    assert [one.shrunk is not None for one in made.scores] == [True, True, False]
    assert "1 detection not shrunk" in made.cut
    assert CPU_S == 60.0


@pytest.mark.parametrize("defect", [None, "tests.results.exam.made:harmless"])
def test_trials_plant_the_defect_of_the_row(monkeypatch, tmp_path, defect):
    seen = []

    def shrink(trials, case, kind):
        seen.append(trials.defect)
        raise UsageError("enough")

    monkeypatch.setattr(shrinking, "shrink", shrink)
    sized((row("a", case=TOY, defect=defect), results("invalid")), tmp_path=tmp_path)
    assert seen == [defect]
