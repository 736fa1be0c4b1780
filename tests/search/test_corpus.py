"""The corpus of interesting cases of a search."""

import base64

import msgspec
import pytest

from harness.case import Case, load_case, stream
from harness.errors import InfrastructureError
from harness.search import corpus as module
from harness.search.corpus import Corpus, Origin
from harness.search.states import Reached

CASE = Case(seed=0)


def reached(*states):
    return Reached(base64.b85encode(b"".join(s.to_bytes(4, "big") for s in states)).decode())


def filled(*runs, failed=()):
    corpus = Corpus()
    for number, states in enumerate(runs):
        case = msgspec.structs.replace(CASE, seed=number)
        corpus.take(number, case, Origin(), reached(*states), failed=number in failed)
    return corpus


def test_only_a_case_with_a_new_state_enters():
    assert list(filled([1, 2], [2], [2, 3]).entries) == [0, 2]


def test_a_failing_case_does_not_enter_but_its_states_are_known():
    assert list(filled([1, 2], [3], [1, 2], failed=[0]).entries) == [1]


def test_an_entry_leaves_if_others_reached_all_of_its_states():
    assert list(filled([1], [2], [1, 2, 3]).entries) == [2]
    assert list(filled([1, 2], [2, 3], [3, 1, 4]).entries) == [1, 2]


def test_the_corpus_is_bounded_and_keeps_what_is_most_its_own(monkeypatch):
    monkeypatch.setattr(module, "ENTRIES_MAX", 2)
    assert list(filled([1, 2, 3], [4], [5, 6]).entries) == [0, 2]


def test_entries_with_rare_states_are_drawn_more_often():
    corpus = filled([1, 9], [1, 2, 3, 4, 5], [1], [1], [1])
    drawn = [corpus.choose(stream(seed, "x")).number for seed in range(200)]
    assert drawn.count(1) > drawn.count(0) > 0
    assert drawn == [corpus.choose(stream(seed, "x")).number for seed in range(200)]


def test_the_folder_has_the_cases_and_what_they_reached(tmp_path):
    folder = tmp_path / "corpus"
    filled([1], [2]).write(folder)
    filled([1], [2], [1, 3]).write(folder)
    names = {path.name for path in folder.iterdir()}
    assert names == {f"{n}.{what}.json" for n in (1, 2) for what in ("case", "states")}
    assert load_case(folder / "2.case.json").seed == 2
    assert msgspec.json.decode((folder / "2.states.json").read_bytes())["states"] == 2


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError):
        filled([1]).write(tmp_path / "file")
