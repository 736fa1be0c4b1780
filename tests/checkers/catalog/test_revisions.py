"""A replay by revision proves only valid histories, and leaves all others to the search."""

import random
from collections.abc import Callable

import msgspec
import pytest

from checkers.catalog import linearizable
from checkers.catalog.history import CatalogHistory, catalog_history
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.passes import replay, revisions
from checkers.linearizability import CheckOutcome, Result, certify
from harness.ops import History, Op, OpType, Verdict
from tests.checkers.catalog.catalogs import oracle, random_history, spoil
from tests.checkers.catalog.test_linearizable import small_history
from tests.support.histories import Writer


def replayed(converted: CatalogHistory, known: dict[int, int]) -> tuple[int, ...] | None:
    model = Catalog(converted.operations, converted.bindings)
    return replay(model, converted.operations, known)


def assert_proven(converted: CatalogHistory, order: tuple[int, ...]) -> None:
    outcome = CheckOutcome(result=Result.OK, reason="", witness=(order,) if order else ())
    model = Catalog(converted.operations, converted.bindings)
    assert certify(model, converted.operations, outcome) is not None


def witnessed(converted: CatalogHistory) -> dict[int, int] | None:
    """Return revisions that follow a legal order, or `None` if there is no legal order."""
    model = Catalog(converted.operations, converted.bindings)
    outcome = linearizable.check_operations(model, converted.operations)
    if outcome.witness is None:
        return None
    order = [number for part in outcome.witness for number in part]
    by_id = {operation.id: operation for operation in converted.operations}
    revisions: dict[int, int] = {}
    revision = 0
    for number in order:
        operation = by_id[number]
        revision += not model.read_only(operation.input, operation.output)
        if not operation.is_unknown and number not in converted.seen_creates:
            revisions[number] = revision
    return revisions


def longer_history(seed: int) -> History:
    return random_history(seed, count=60, names=3, processes=4, lost=0.1, rest=1)


def test_true_revisions_prove_almost_every_valid_history_and_nothing_else():
    valid = proven = with_lost = 0
    for seed in range(260):
        history = longer_history(seed) if seed % 4 == 0 else small_history(seed)
        converted = catalog_history(history)
        revisions_seen = None if converted.conflicts else witnessed(converted)
        if revisions_seen is None:
            continue
        valid += 1
        order = replayed(converted, revisions_seen)
        if order is not None:
            assert_proven(converted, order)
            proven += 1
            with_lost += any(operation.is_unknown for operation in converted.operations)
    assert valid > 120
    assert proven > 0.9 * valid
    assert with_lost > 10


def test_no_revisions_prove_a_history_that_is_not_linearizable():
    invalid = 0
    for seed in range(300):
        rng = random.Random(seed)
        history = small_history(seed)
        if oracle(history):
            continue
        converted = catalog_history(history)
        if converted.conflicts:
            continue  # already refuted without the replay
        invalid += 1
        numbers = [operation.id for operation in converted.operations]
        for _ in range(8):
            rng.shuffle(numbers)
            revisions_seen = {number: revision // 2 for revision, number in enumerate(numbers)}
            by_call = {number: number for number in numbers}
            for guess in (revisions_seen, by_call):
                assert replayed(converted, guess) is None, seed
    assert invalid > 60


def with_revisions(h: Writer, change: Callable[[int, Op], int | None] | None = None) -> History:
    """Give every answer a revision, in order; `change` may replace it."""
    lines = []
    for op in h.lines:
        revision: int | None = op.index if change is None else change(op.index, op)
        if revision is None or op.type is OpType.INVOKE or not op.value:
            lines.append(op)
            continue
        lines.append(msgspec.structs.replace(op, value={**op.value, "revision": revision}))
    return History(lines)


def a_life() -> Writer:
    h = Writer()
    h.create(0, "a", "T1")
    h.get(1, "a", "T1")
    h.delete(0, "a", "T1")
    h.get(1, "a", None)
    h.create(0, "a", "T2")
    return h


def decided_by(history: History) -> str:
    result = CatalogLinearizable().check(history, None, time_limit_s=300)
    assert result.verdict is Verdict.VALID
    return str(result.details["decided_by"])


REPLAY = "a replay in the order of revisions"


def test_a_run_whose_answers_carry_revisions_needs_no_search(monkeypatch):
    history = with_revisions(a_life())
    assert decided_by(history) == REPLAY
    monkeypatch.setattr(linearizable, "check_operations", lambda *_, **__: 1 / 0)
    assert decided_by(history) == REPLAY


@pytest.mark.parametrize(
    ("change", "replayed"),
    [
        # one answer has an impossible revision
        (lambda index, _: -1 if index == 5 else index, True),
        (lambda index, _: -index, False),  # all answers have impossible revisions
        (lambda index, _: 100 - index, False),  # revisions in the opposite order
        # one answer has no revision, which the replay notices late
        (
            lambda index, _: None if index == 3 else index,
            False,
        ),
        (lambda _, __: None, False),
    ],
)
def test_revisions_that_do_not_fit_leave_it_to_the_search(change, replayed):
    assert (decided_by(with_revisions(a_life(), change)) == REPLAY) is replayed


def test_changes_precede_reads_of_the_same_revision():
    h = Writer()
    h.call(1, "get", {"name": "a"})
    h.create(0, "a", "T1")
    seen = {"table_id": "T1", "schema_version": 0, "applied_schema_version": 0}
    h.ret(1, OpType.OK, {"result": "ok", **seen, "columns": ["a"], "comment": "n-T1"})
    assert decided_by(with_revisions(h, lambda *_: 7)) == REPLAY


def test_lost_operations_are_put_where_they_are_needed():
    h = Writer()
    h.create(0, "a", "T1")
    h.lost(2, "rename", {"name": "a", "new_name": "b", "nonce": "r"})
    h.lost(3, "alter", {"name": "b", "nonce": "x", "steps": [["add", "c"]]})
    h.lost(4, "delete", {"name": "b", "nonce": "never"})
    h.get(1, "a", None)
    h.get(1, "b", "T1", 2, columns=["a", "c"])
    history = with_revisions(h)
    assert decided_by(history) == REPLAY
    proof = CatalogLinearizable().check(history, None, time_limit_s=300).details["proof"]
    assert proof["never"] == [6]


def test_two_lost_operations_may_be_needed_at_once():
    h = Writer()
    h.create(0, "a", "T1")
    h.lost(2, "rename", {"name": "a", "new_name": "b", "nonce": "r"})
    h.lost(3, "alter", {"name": "b", "nonce": "x", "steps": [["add", "c"]]})
    h.get(1, "b", "T1", 2, columns=["a", "c"])
    assert decided_by(with_revisions(h)) == REPLAY


def test_a_lost_operation_is_not_put_before_its_call():
    h = Writer()
    h.create(0, "a", "T1")
    h.get(1, "a", "T1", 1, columns=["a", "c"])
    h.lost(2, "alter", {"name": "a", "nonce": "x", "steps": [["add", "c"]]})
    converted = catalog_history(with_revisions(h))
    assert replayed(converted, {0: 1, 2: 3}) is None


def test_a_revision_cannot_undo_real_time():
    h = Writer()
    h.get(1, "a", "T1")
    h.create(0, "a", "T1")
    converted = catalog_history(with_revisions(h))
    assert replayed(converted, {0: 2, 2: 1}) is None
    assert not oracle(with_revisions(h))


def test_guessing_ends(monkeypatch):
    h = Writer()
    h.create(0, "a", "T1")
    h.lost(2, "rename", {"name": "a", "new_name": "b", "nonce": "r"})
    h.get(1, "a", None)
    history = with_revisions(h)
    assert decided_by(history) == REPLAY
    monkeypatch.setattr(revisions, "TRIALS_MAX", 1)
    assert decided_by(history) != REPLAY
    monkeypatch.undo()
    monkeypatch.setattr(revisions, "CANDIDATES_MAX", 0)
    assert decided_by(history) != REPLAY


def test_spoilt_histories_are_never_proven():
    spoilt = 0
    for seed in range(120):
        history = spoil(longer_history(seed * 4), random.Random(seed))
        converted = catalog_history(history)
        valid = witnessed(converted) is not None and not converted.conflicts
        by_id = {operation.id: operation.id for operation in converted.operations}
        order = replayed(converted, by_id)
        assert order is None or valid
        spoilt += not valid
    assert spoilt > 40
