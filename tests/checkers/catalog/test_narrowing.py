"""Narrowing the time in which an operation may take effect changes no verdict."""

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from checkers.catalog import linearizable
from checkers.catalog.history import CatalogHistory, catalog_history
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.models.types import Alter, Answer, Create, Delete, Get, ListTables, Rename
from checkers.catalog.passes import narrowed, narrowing
from checkers.linearizability import UNKNOWN, CheckOutcome, Operation, Result
from harness.ops import Verdict
from tests.checkers.catalog.catalogs import random_history, spoil
from tests.linearizability.test_engine import wing_and_gong

Ops = list[Operation[Any, Any]]


def small(seed: int, *, count: int, lost: float, clients: int) -> CatalogHistory:
    rng = random.Random(seed)
    history = random_history(
        seed, count=count, names=2 + seed % 2, processes=clients, lost=lost, rest=0.3
    )
    return catalog_history(spoil(history, rng) if seed % 2 else history)


def plain(found: CatalogHistory) -> Catalog:
    return Catalog([replace(o, return_time=None) for o in found.operations], found.bindings)


def test_narrowing_loses_no_legal_order():
    shorter = legal = 0
    for seed in range(600):
        converted = small(seed, count=9, lost=0.15, clients=4)
        if converted.conflicts:
            continue
        expected = wing_and_gong(plain(converted), list(converted.operations))
        operations = narrowed(converted.operations)
        if operations is None:
            assert not expected
            continue
        for before, after in zip(converted.operations, operations, strict=True):
            assert replace(after, call=before.call, return_time=before.return_time) == before
            assert before.call <= after.call
            assert before.is_unknown == after.is_unknown
            assert before.return_time is None or after.return_time <= before.return_time
        shorter += operations != list(converted.operations)
        legal += expected
        assert wing_and_gong(plain(converted), operations) == expected
    assert min(shorter, legal) > 150


def test_lists_before_or_after_a_life_need_no_look(monkeypatch):
    shorter = 0
    for seed in range(100):
        operations = small(seed, count=60, lost=0.1, clients=6).operations
        narrow = narrowed(operations)
        shorter += narrow not in (None, list(operations))
        with monkeypatch.context() as all_lists:
            all_lists.setattr(narrowing, "bisect_right", lambda _ends, _call: 0)
            all_lists.setattr(narrowing, "bisect_left", lambda calls, _end: len(calls))
            assert narrowed(operations) == narrow
    assert shorter > 25


def test_the_converted_model_agrees_with_the_plain_one():
    legal = 0
    for seed in range(600):
        converted = small(seed, count=8, lost=0.5, clients=3)
        if converted.conflicts:
            continue
        operations = list(converted.operations)
        expected = wing_and_gong(plain(converted), operations)
        assert wing_and_gong(Catalog(operations, converted.bindings), operations) == expected
        legal += expected
    assert legal > 200


def op(number: int, input_: Any, call: float, answer: Any, end: float | None) -> Any:
    return Operation(number, input_, call, answer, end, number)


def ok(table: str | None, version: int | None, **shown: Any) -> Answer:
    return Answer("ok", table, version, **shown)


def listing(*entries: tuple[str, str | None, int | None]) -> Answer:
    return Answer("ok", listing=entries)


def spans(operations: Ops) -> list[tuple[float, float | None]]:
    narrow = narrowed(operations)
    assert narrow is not None
    return [(o.call, o.return_time) for o in narrow]


CREATE = op(0, Create("t", "n", ("a",)), 0, ok("x", 0), 9)


def test_lower_versions_come_before_higher_ones():
    see = op(1, Get("t"), 1, ok("x", 0), 20)
    alter = op(2, Alter("t", (("add", "b"),)), 2, ok("x", 1), 15)
    delete = op(3, Delete("t"), 3, ok("x", None), 12)
    assert spans([CREATE, see, alter, delete]) == [(0, 9), (1, 12), (2, 12), (3, 12)]
    early = op(4, Get("t"), 5, ok("x", 0), 6)
    assert spans([CREATE, alter, early]) == [(0, 6), (5, 15), (5, 6)]
    made, seen = replace(alter, call=5), op(5, Get("t"), 1, ok("x", 1), 8)
    assert spans([made, seen]) == [(5, 8), (5, 8)]


def test_an_answer_without_a_version_is_within_the_lifetime():
    look = op(1, Get("t"), 1, ok("x", None), 20)
    delete = op(2, Delete("t"), 0, ok("x", 0), 12)
    assert spans([CREATE, look, delete]) == [(0, 9), (1, 12), (1, 12)]
    assert spans([replace(CREATE, call=3), replace(look, return_time=5)]) == [(3, 5), (3, 5)]
    see = op(3, Get("t"), 10, ok("x", 0), 12)
    assert spans([look, see]) == [(1, 20), (10, 12)]


def test_a_list_precedes_or_follows_changes_that_it_omits():
    see = op(1, Get("t"), 30, ok("x", 0), 40)
    early = op(2, ListTables(), 0, listing(), 25)
    assert spans([CREATE, see, early]) == [(0, 9), (30, 40), (0, 9)]
    late = op(3, ListTables(), 35, listing(), 60)
    delete = op(4, Delete("t"), 50, ok("x", 0), 70)
    assert spans([CREATE, delete, late]) == [(0, 9), (50, 60), (50, 60)]
    first, glance = replace(CREATE, return_time=28), op(7, Get("t"), 1, ok("x", 0), 40)
    before = replace(early, call=10)
    assert spans([first, glance, see, before]) == [(10, 28), (10, 40), (30, 40), (10, 25)]
    unclear = op(5, ListTables(), 5, listing(), 60)
    assert spans([CREATE, see, unclear]) == [(0, 9), (30, 40), (5, 60)]
    unnamed = op(6, ListTables(), 0, listing(("u", None, 0)), 25)
    assert spans([CREATE, see, unnamed]) == [(0, 9), (30, 40), (0, 25)]


def test_impossible_states_have_no_intervals():
    alter = op(1, Alter("t", (("add", "b"),)), 10, ok("x", 1), 11)
    late = op(2, Get("t"), 12, ok("x", 0), 13)
    assert narrowed([CREATE, alter, late]) is None


# --- uncertain operations -----------------------------------------------------------------------


def changes(operations: Ops, bindings: dict[str, str], number: int) -> bool:
    """Whether the operation at `number` changes the state that the preceding operations leave."""
    model = Catalog(operations, bindings)
    state = model.init()
    for operation in operations[:number]:
        legal, state = model.step(state, operation.input, operation.said)
        assert legal
    legal, after = model.step(state, operations[number].input, UNKNOWN)
    assert legal
    return after != state


ALTER = op(1, Alter("t", (("add", "b"),)), 1, UNKNOWN, None)
BOUND = {"x": "n"}


def test_an_alter_matters_where_its_version_is_shown():
    assert not changes([CREATE, ALTER], BOUND, 1)
    assert changes([CREATE, ALTER, op(2, Get("t"), 2, ok("x", 1), 20)], BOUND, 1)
    vague = ok("x", None, columns=("a", "b"))
    assert changes([CREATE, ALTER, op(2, Get("t"), 2, vague, 20)], BOUND, 1)
    dropped = op(2, Alter("t", (("drop", "b"),)), 2, ok("x", None), 20)
    assert changes([CREATE, ALTER, dropped], BOUND, 1)
    assert changes([CREATE, ALTER, op(2, Get("t"), 2, ok(None, 1), 20)], BOUND, 1)
    assert changes([CREATE, ALTER, op(2, ListTables(), 2, listing(("t", None, 1)), 20)], BOUND, 1)
    assert changes([replace(CREATE, return_time=None), ALTER], BOUND, 1)


LOST = op(1, Create("u", "unseen", ("a",)), 1, UNKNOWN, None)


def test_a_create_matters_where_its_name_is_taken():
    assert not changes([CREATE, LOST], BOUND, 1)
    exists = op(2, Create("u", "m", ("a",)), 2, Answer("exists"), 20)
    assert changes([CREATE, LOST, exists], BOUND, 1)
    onto = op(2, Rename("t", "u"), 2, Answer("exists"), 20)
    assert changes([CREATE, LOST, onto], BOUND, 1)
    elsewhere = op(2, Create("w", "m", ("a",)), 2, Answer("exists"), 20)
    assert not changes([CREATE, LOST, elsewhere], BOUND, 1)
    moves = [op(3, Rename("u", "v"), 2, UNKNOWN, None), op(4, Rename("v", "w"), 2, UNKNOWN, None)]
    assert changes([CREATE, LOST, elsewhere, *moves], BOUND, 1)
    list_after = op(2, ListTables(), 2, listing(("u", "y", 0)), 20)
    assert changes([CREATE, LOST, list_after], BOUND, 1)
    assert changes([CREATE, LOST, op(2, Get("u"), 2, ok(None, None), 20)], BOUND, 1)
    assert changes([replace(CREATE, return_time=None), LOST], BOUND, 1)
    seen = op(2, Get("u"), 2, ok("y", 0), 20)
    assert changes([CREATE, LOST, seen], {"x": "n", "y": "unseen"}, 1)


def test_a_table_that_is_never_shown_need_not_be_altered():
    exists = op(2, Create("u", "m", ("a",)), 2, Answer("exists"), 20)
    alter = op(3, Alter("u", (("add", "b"),)), 3, UNKNOWN, None)
    assert not changes([CREATE, LOST, alter, exists], BOUND, 2)
    list_after = op(4, ListTables(), 2, listing(("u", "y", 1)), 20)
    assert changes([CREATE, LOST, alter, exists, list_after], BOUND, 2)


# --- the checker --------------------------------------------------------------------------------


def test_many_lost_answers_are_decided():
    history = random_history(26, count=1_000, names=50, processes=32, lost=0.1)
    result = CatalogLinearizable().check(history, None, time_limit_s=300)
    assert result.verdict is Verdict.VALID
    assert result.details["steps"] < 200_000


def test_the_time_limit_covers_both_searches_and_their_preparation(monkeypatch):
    clock = [0.0]
    timeouts: list[float] = []

    def slow(operations: Ops, *, is_over: Callable[[], bool]) -> Ops:
        clock[0] += 6.0
        assert not is_over()
        return operations

    def undecided(_model: object, _operations: Ops, *, timeout_s: float, **_more: object) -> Any:
        timeouts.append(timeout_s)
        clock[0] += timeout_s
        return CheckOutcome(result=Result.UNKNOWN, reason="")

    def passes(_operations: Ops) -> None:
        clock[0] += 2.0

    monkeypatch.setattr(linearizable, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(linearizable, "refute", passes)
    monkeypatch.setattr(linearizable, "narrowed", slow)
    monkeypatch.setattr(linearizable, "check_operations", undecided)
    monkeypatch.setattr("checkers.verdict.search.check_operations", undecided)
    history = random_history(3, count=40, names=3, processes=4, lost=0.3)
    result = CatalogLinearizable().check(history, None, time_limit_s=10)
    assert result.verdict is Verdict.UNKNOWN
    assert timeouts == [1.0, 1.0]
    assert clock == [10.0]


def test_when_time_is_over_intervals_stay_as_they_are():
    converted = catalog_history(random_history(26, count=100, names=5, processes=8, lost=0.1))
    assert narrowed(converted.operations) != list(converted.operations)
    assert narrowed(converted.operations, is_over=lambda: True) == list(converted.operations)
