"""Two shortcuts of the search for stale reads agree with brute force."""

import random
import time
from itertools import pairwise

import msgspec
import pytest

from checkers.catalog import permits
from checkers.catalog.by_term import intervals_by_term, order_by_term
from checkers.catalog.dead_ends import DeadEnds
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.models.types import Alter, Answer, Create, Delete, Get
from checkers.linearizability import UNKNOWN, Operation, partial
from checkers.linearizability.partial import Fact, PartialOutcome, keeps
from harness.ops import History, OpType, Verdict
from harness.permits import permits_of
from tests.checkers.catalog.catalogs import spoil
from tests.checkers.catalog.stale_histories import CHANGES, permitting, stale_history, stale_oracle
from tests.support.histories import Writer

SEEDS = 250


def as_real_kudu(history: History) -> History:
    """Return the history without revisions, because answers of real Kudu contain none."""

    def without(op):
        if not isinstance(op.value, dict) or "revision" not in op.value:
            return op
        value = {name: part for name, part in op.value.items() if name != "revision"}
        return msgspec.structs.replace(op, value=value)

    return History(map(without, history))


def losing_answers(history: History, rng: random.Random) -> History:
    """Return the history without the answers to some changes that nevertheless took effect."""
    renamed: dict[object, int] = {}
    ops = []
    for op in history:
        now = msgspec.structs.replace(op, process=renamed.get(op.process, op.process))
        if op.type is OpType.OK and op.f in CHANGES and rng.random() < 0.4:
            now = msgspec.structs.replace(now, type=OpType.INFO, value=None, error="TIMED_OUT")
            renamed[op.process] = 100 + op.index  # a client whose answer was lost is not used again
        ops.append(now)
    return History(ops)


def histories():
    for seed in range(SEEDS):
        rng = random.Random(seed)
        history = as_real_kudu(stale_history(seed, count=rng.randint(4, 9)))
        if seed % 2:
            history = losing_answers(history, rng)
        yield permitting(spoil(history, rng) if seed % 3 else history, "stale-read")


def is_permitted(history: History) -> bool:
    relaxed = permits.judge_permitted(history, permits_of(history), end_s=time.monotonic() + 60)
    assert relaxed is not None
    assert relaxed.exhausted
    return relaxed.counts is not None


def test_dead_ends_lose_no_order(monkeypatch):
    monkeypatch.setattr(permits, "order_by_term", lambda *_, **__: None)
    wanted = [stale_oracle(history) for history in histories()]
    assert [is_permitted(history) for history in histories()] == wanted
    assert 50 < sum(wanted) < SEEDS - 50


def test_orders_by_term_explain_what_deposed_masters_do_and_no_more(monkeypatch):
    given_up = PartialOutcome(None, False, 0)
    monkeypatch.setattr(partial, "find_partial_order", lambda *_, **__: given_up)
    found = 0
    for seed, history in enumerate(histories()):
        relaxed = permits.judge_permitted(history, permits_of(history), end_s=time.monotonic() + 60)
        assert relaxed is not None
        if relaxed.counts is None:
            assert seed % 3, f"the history of seed {seed} must be permitted"
            continue
        found += 1
        assert stale_oracle(history), seed
    assert found > SEEDS // 3


@pytest.mark.parametrize(
    ("node", "term", "verdict"),
    [("m2", 2, Verdict.PERMITTED), ("m1", 1, Verdict.INVALID), ("m2", 1, Verdict.INVALID)],
)
def test_a_create_is_only_as_old_as_the_answer_that_shows_it(node, term, verdict):
    h = Writer()
    h.call(0, "create", {"name": "a", "nonce": "n-a", "columns": []})
    h.ret(0, OpType.INFO, None, "m1")
    shows = {"table_id": "A", "comment": "n-a", "columns": []}
    shows |= {"schema_version": 0, "applied_schema_version": 0}
    h.call(1, "get", {"name": "a"})
    h.ret(1, OpType.OK, {"result": "ok", "term": term, **shows}, node)
    h.call(2, "get", {"name": "a"})
    h.ret(2, OpType.FAIL, {"result": "not-found", "term": 1}, "m1")
    history = permitting(h.history, "stale-read")
    assert stale_oracle(history) == (verdict is Verdict.PERMITTED)
    assert CatalogLinearizable().check(history, None, time_limit_s=60).verdict is verdict


MADE = Create("a", "n-a", ()), Answer("ok", table_id="i-a", version=0)
ALSO_MADE = Create("b", "n-b", ()), Answer("ok", table_id="i-b", version=0)
SEEN = Get("a"), Answer("ok", table_id="i-a", version=0, key="n-a")
ALTERED = Alter("a", ()), Answer("ok", table_id="i-a", version=1)
GONE = Delete("a"), Answer("ok", table_id="i-a", version=1)


def operations_of(*rows):
    """Build operations from rows ((input, answer), call, return)."""
    return [
        Operation(-1, about, call, UNKNOWN if end is None else answer, end, number)
        for number, ((about, answer), call, end) in enumerate(rows)
    ]


def test_an_order_by_terms_that_breaks_real_time_is_rejected():
    operations = operations_of((MADE, 0, 1), (ALSO_MADE, 2, 3))
    facts = {0: Fact(2, "m2"), 1: Fact(1, "m1")}
    model = Catalog(operations, {"i-a": "n-a", "i-b": "n-b"})
    assert [o.id for o in intervals_by_term(operations, facts)] == [1, 0]
    end_s = time.monotonic() + 60
    assert order_by_term(model, operations, facts, [0, 0], end_s=end_s).order == (1, 0)
    assert order_by_term(model, operations, facts, [0, 1], end_s=end_s) is None
    assert keeps((0, 1), [0, 1])
    assert not keeps((1, 0), [0, 1])


@pytest.mark.parametrize(
    ("rows", "terms"),
    [
        # an answer without a term, between answers of terms 1 and 2
        ([(MADE, 0, 1), (SEEN, 2, 3), (ALTERED, 4, 5)], (1, None, 2)),
        # a lost change may come after all operations that returned before it was called
        ([(MADE, 0, 1), (ALTERED, 2, None), (GONE, 2, 3)], (2, None, 2)),
        # the last answer has no term
        ([(MADE, 0, 1), (SEEN, 2, 3)], (1, None)),
    ],
)
def test_operations_without_terms_keep_their_place_in_time(rows, terms):
    operations = operations_of(*rows)
    moved = intervals_by_term(operations, dict(enumerate(Fact(t, "m1") for t in terms)))
    for one in moved:
        for other in moved:
            was = operations[one.id].return_time
            if was is not None and was < operations[other.id].call:
                assert one.return_time < other.call


def test_a_step_rules_out_older_versions_and_a_deletion_rules_out_all():
    operations = operations_of((MADE, 0, 9), (SEEN, 0, 9), (ALTERED, 0, 9), (GONE, 0, 9))
    model = Catalog(operations, {"i-a": "n-a"})
    dead_ends = DeadEnds(model, operations)
    states = [model.init()]
    for (about, answer), *_ in ((MADE,), (ALTERED,), (GONE,)):
        legal, after = model.step(states[-1], about, answer)
        assert legal
        states.append(after)
    assert [dead_ends.after_step(one, two) for one, two in pairwise(states)] == [0, 0b0111, 0b1111]
