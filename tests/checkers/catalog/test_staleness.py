"""Reads with a bound on staleness are accepted, or convicted for answers that are too old."""

from typing import Any

import pytest

from checkers.catalog.invariants import CatalogInvariantsChecker
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.catalog.staleness import StalenessChecker
from harness.ops import CheckResult, OpType, Verdict
from harness.verdict.coverage import weighed
from tests.support.histories import MS, Writer

TABLE = {"name": "a", "nonce": "n-A", "columns": ["a"]}


def stale_get(
    h: Writer, ident: str | None, *, allowed: int, bound: float | None, revision: int
) -> int:
    """Add a read of table `a` by process 5; each line of the history takes one millisecond."""
    answer: dict[str, Any] = {"revision": revision, "term": 1}
    if bound is not None:
        answer["bound_ns"] = int(bound * MS)
    if ident is None:
        answer["result"] = "not-found"
    else:
        answer |= {"table_id": ident, "schema_version": 0, "applied_schema_version": 0}
        answer |= {"columns": ["a"], "comment": f"n-{ident}"}
    asked = {"name": "a", "max_staleness_ms": allowed}
    return h.ok(5, "get-stale", asked, answer)


def made_at_0_and_read_at_100(**read: Any) -> Writer:
    h = Writer()
    h.create(0, "a", "A", revision=4, term=1)
    h.at(100)
    stale_get(h, **read)
    return h


def staleness(h: Writer) -> CheckResult:
    return StalenessChecker().check(h.history, None, time_limit_s=5.0)


def linearizable(h: Writer) -> Verdict:
    return CatalogLinearizable().check(h.history, None, time_limit_s=5.0).verdict


FRESH = {"ident": "A", "allowed": 50, "bound": 20, "revision": 4}
V, INV = Verdict.VALID, Verdict.INVALID
# name -> answer (table id, allowed age, bound, revision), verdict by the bound, verdict by the
# order
CASES = {
    "the newest state": (("A", 50, 20, 4), V, V),
    "an old state with a bound that says so": ((None, 200, 100, 3), V, V),
    "a bound just too small for the missing change": ((None, 200, 98, 3), INV, INV),
    "an old state without a bound to speak of": ((None, 50, 0, 3), INV, INV),
    "a right answer that is older than allowed": (("A", 50, 51, 4), INV, V),
    "no bound in the answer": (("A", 50, None, 4), INV, V),
    "an old state that claims a new revision": ((None, 50, 20, 4), V, INV),
}


@pytest.mark.parametrize("name", CASES)
def test_answers(name):
    read, by_bound, by_order = CASES[name]
    h = made_at_0_and_read_at_100(**dict(zip(FRESH, read, strict=True)))
    result = staleness(h)
    assert (result.verdict, linearizable(h)) == (by_bound, by_order), result
    if by_bound is Verdict.INVALID:
        assert 2 in result.operations


@pytest.mark.parametrize(("bound", "verdict"), [(41, Verdict.VALID), (38, Verdict.INVALID)])
def test_the_create_was_only_acknowledged_after_the_bound(bound, verdict):
    h = Writer()
    h.call(0, "create", TABLE)
    h.at(60)
    h.ret(0, OpType.OK, {"result": "ok", "table_id": "A", "schema_version": 0, "revision": 4})
    h.at(100)
    stale_get(h, None, allowed=50, bound=bound, revision=3)
    assert (staleness(h).verdict, linearizable(h)) == (verdict, verdict)


def test_a_read_with_a_bound_demands_nothing_of_later_ones():
    h = made_at_0_and_read_at_100(**FRESH)
    stale_get(h, None, allowed=500, bound=400, revision=3)
    assert (staleness(h).verdict, linearizable(h)) == (Verdict.VALID, Verdict.VALID)
    result = CatalogInvariantsChecker().check(h.history, None, time_limit_s=5.0)
    assert result.verdict is not Verdict.INVALID, result


def test_refused_reads_prove_nothing():
    h = Writer()
    h.create(0, "a", "A", revision=4)
    h.fail(5, "get-stale", {"name": "a", "max_staleness_ms": 10}, None)
    assert staleness(h).verdict is Verdict.UNKNOWN


def test_answers_that_do_not_say_of_which_state_they_are_prove_too_little():
    h = made_at_0_and_read_at_100(**FRESH)
    for _ in range(2):
        stale_get(h, None, allowed=50, bound=0, revision=-1)
    result = staleness(h)
    assert result.details["exempt"] == {"revisions": 2}
    assert weighed(result).verdict is Verdict.UNKNOWN


def test_lists_have_bounds_as_well():
    def listed(bound: int, *tables: list[Any]) -> Writer:
        h = Writer()
        h.create(0, "a", "A", revision=4)
        h.at(100)
        answer = {"tables": list(tables), "bound_ns": bound * MS, "revision": 3}
        h.ok(5, "list-stale", {"max_staleness_ms": 200}, answer)
        return h

    assert linearizable(listed(100)) is Verdict.VALID
    assert linearizable(listed(50)) is Verdict.INVALID
    assert linearizable(listed(50, ["a", "A", 0])) is Verdict.VALID
