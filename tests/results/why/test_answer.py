"""An answer of `harness why` as a file, as text, as a drawing, and on the page of a run."""

import re

import msgspec
import pytest

from harness.store import load_run
from results.run.page import build, read_results
from results.why.answer import (
    NECESSARY,
    NO_DIFFERENCE,
    NOT_TRIED,
    RAISES,
    WHY_FILE,
    Cause,
    Count,
    FaultSpan,
    Inevitable,
    Point,
    Why,
    load_why,
)
from results.why.drawing import page_of, write_page
from results.why.words import ROWS_MAX, summary_of, text_of
from tests.results.run.page.runs import S, small_run, stale_read, write_run

EVIL = "<script>alert(1)</script>\"&'"


def cause(number, failed, verdict, words="a part"):
    count = Count(failed, 30)
    return Cause(
        kind="fault",
        name=f"f{number}",
        words=words,
        verdict=verdict,
        without=count,
        low=count.interval.low,
        high=count.interval.high,
    )


def point(at_s, failed):
    count = Count(failed, 24)
    low, high = count.interval
    return Point(at_ns=int(at_s * S), count=count, low=low, high=high)


def answer(**changes):
    fields = {
        "run": "made/run-1",
        "digest": "d",
        "seed": 7,
        "checker": "linearizable-catalog",
        "rule": "stale-read",
        "reason": f"not linearizable: {EVIL}",
        "shown_ns": 2 * S,
        "end_ns": 3 * S,
        "seeds": 30,
        "reseeds": 24,
        "base": Count(29, 30),
        "recorded": Count(30, 30),
        "causes": (cause(1, 0, NECESSARY, EVIL), cause(2, 28, NO_DIFFERENCE)),
        "points": (point(0, 12), point(1, 15), point(1.5, 24), point(2, 24)),
        "faults": (
            FaultSpan(id="f1", nemesis=EVIL, targets=("m1",), start_ns=S, end_ns=None),
            FaultSpan(id="f2", nemesis="kill", targets=(), start_ns=S // 2, end_ns=S),
        ),
        "inevitable": Inevitable(from_ns=3 * S // 2, before_ns=S, between=("m2 leads",)),
        "trials": 100,
    }
    return Why(**(fields | changes))


def test_the_file_is_only_read_for_the_history_that_it_explains(tmp_path):
    why = answer()
    why.save(tmp_path)
    assert load_why(tmp_path, "d") == why
    assert load_why(tmp_path, "another") is None
    (tmp_path / WHY_FILE).write_text("{")
    assert load_why(tmp_path, "d") is None
    assert load_why(tmp_path / "nothing", "d") is None


def test_the_text_fits_on_a_screen():
    many = tuple(cause(number, 28, NO_DIFFERENCE, "w" * 200) for number in range(60))
    lines = text_of(answer(causes=many))
    assert len(lines) < ROWS_MAX + 25
    assert max(map(len, lines)) < 160
    assert any(f"{60 - ROWS_MAX} more" in line for line in lines)


def test_the_text_has_rates_verdicts_and_limits():
    text = "\n".join(text_of(answer(cut=True, base=Count(2, 30))))
    for part in ("0 of 30", NECESSARY, NO_DIFFERENCE, "1.500 s", "m2 leads", "--cpu", "--seeds"):
        assert part in text
    assert "not tried" not in text
    odd = Cause(kind="fault", name="x", words="x", without=Count(1, 30, 21, 8))
    text = "\n".join(text_of(answer(causes=(odd,))))
    assert "21 fail in another way, 8 more are unknown" in text
    assert "how the case fails" in text
    untried = Cause(kind="fault", name="x", words="x", verdict=NOT_TRIED)
    assert "1 part was not tried" in "\n".join(text_of(answer(causes=(untried,))))


def test_the_text_names_the_largest_rise_if_it_is_not_the_last():
    early = (point(0, 2), point(0.5, 18), point(1, 19), point(1.5, 24), point(2, 24))
    assert "from 8 % at 0.000 s to 75 % at 0.500 s" in "\n".join(text_of(answer(points=early)))
    assert "rises most" not in "\n".join(text_of(answer()))


def test_the_summary_names_needed_parts_and_the_parts_that_make_it_likelier():
    def summary(*causes):
        return " ".join(summary_of(answer(causes=causes)))

    needed, same = cause(1, 0, NECESSARY, "this"), cause(2, 28, NO_DIFFERENCE, "that")
    assert summary(needed, same) == "The failure needs this: no run failed without it."
    assert "the rest" in summary(needed, cause(3, 9, RAISES, "the rest"))
    assert "No part" in summary(same)
    untried = msgspec.structs.replace(same, verdict=NOT_TRIED, without=Count())
    rare = answer(causes=(untried,), base=Count(3, 30))
    assert "in only 3 of 30 seeds" in "\n".join(text_of(rare))
    assert "1 part was not tried" not in "\n".join(text_of(rare))
    wider = [
        msgspec.structs.replace(cause(3 + number, 0, NECESSARY, kind), kind=kind)
        for number, kind in enumerate(("all-faults", "faults"))
    ]
    assert "faults" not in summary(needed, *wider)
    assert "all-faults" not in summary(*wider)
    assert summary_of(answer(causes=())) == []


def test_faults_that_can_replace_each_other_are_called_so():
    together = msgspec.structs.replace(cause(0, 0, NECESSARY), kind="all-faults")

    def text(*causes):
        return "\n".join(text_of(answer(causes=causes)))

    assert "No single fault" in text(together, cause(1, 28, NO_DIFFERENCE))
    assert "No single fault" not in text(together, cause(1, 0, NECESSARY))
    assert "No single fault" not in text(cause(1, 28, NO_DIFFERENCE))


@pytest.mark.parametrize(
    ("inevitable", "word"),
    [
        (Inevitable(before_ns=2 * S), "never became inevitable"),
        (Inevitable(from_ns=0), "from the start"),
        (Inevitable(from_ns=3 * S // 2, before_ns=S, is_turn=False), "no turn"),
    ],
)
def test_the_text_says_if_there_is_no_turn(inevitable, word):
    assert word in "\n".join(text_of(answer(inevitable=inevitable)))


def test_an_unfinished_search_does_not_say_never():
    cut = answer(points=(point(0, 12), point(1, 15)), inevitable=Inevitable(before_ns=S), cut=True)
    text = "\n".join(text_of(cut))
    assert "never became" not in text
    assert "later times were not tried" in text


def test_the_drawing_is_one_file_that_nothing_of_a_run_can_break(tmp_path):
    page = page_of(answer())
    assert "http" not in page.replace("http-equiv", "")  # the page loads nothing
    assert "<script" not in page
    assert page.count("<svg") == 2
    numbers = re.findall(r' (?:x|y|cx|cy|x1|x2|y1|y2|width|height)="([^"]*)"', page)
    assert all(re.fullmatch(r"-?[0-9.]+", number) for number in numbers)
    assert write_page(answer(), tmp_path).read_text() == page
    assert page_of(answer(points=())).count("<svg") == 1


def test_the_page_of_the_run_has_the_rate_as_a_lane(tmp_path):
    history = small_run()
    folder = write_run(tmp_path, history, [stale_read(history)])

    def lane():
        return build(load_run(folder), read_results(folder))["why"]

    assert lane() is None
    why = answer(digest=history.digest())
    why.save(folder)
    assert lane()["from"] == why.inevitable.from_ns
    assert [row[:3] for row in lane()["points"]] == [
        (each.at_ns, each.count.failed, each.count.runs) for each in why.points
    ]
    msgspec.structs.replace(why, digest="stale").save(folder)
    assert lane() is None
