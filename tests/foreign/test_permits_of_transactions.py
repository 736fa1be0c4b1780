"""Anomalies of transactions over lists that a profile permits, and those that it does not."""

import random

import pytest

from checkers.foreign.transactions import ElleListAppend
from harness.ops import Attempt, CheckResult, OpType, Verdict
from harness.permits import Permit, fact_of, permitted_in
from tests.support.histories import Writer

CUT = {"action": "inject", "fault": "f1", "targets": ["m1"], "kind": "power-cut"}
STALE, TWICE, LOST = "stale-read", "ddl-twice", "lost-after-power-cut"
INVALID, PERMITTED, VALID = Verdict.INVALID, Verdict.PERMITTED, Verdict.VALID


class Transactions(Writer):
    """A writer of consecutive transactions on the list `x`."""

    def __init__(self, *permits: str) -> None:
        super().__init__()
        every = [Permit(name=name, why="it says so") for name in permits]
        self.fact("permits", fact_of("modern", every))

    def leads(self, node: str, term: int) -> None:
        self.fact("leader", {"node": node, "term": term})

    def cut(self) -> None:
        self.nemesis("power-cut-all", CUT)

    def append(self, element, *, node="m1", kind=OpType.OK, attempts=1, process=0) -> int:
        mops = [["append", "x", element]]
        index = self.add(process, OpType.INVOKE, "txn", mops)
        tries = tuple(Attempt(node, 0, 1, "ok") for _ in range(attempts))
        self.add(process, kind, "txn", mops, node=node, attempts=tries)
        return index

    def read(self, *elements, node="m1", process=1) -> int:
        index = self.add(process, OpType.INVOKE, "txn", [["r", "x", None]])
        self.add(process, OpType.OK, "txn", [["r", "x", [*elements]]], node=node)
        return index

    def judged(self) -> CheckResult:
        return ElleListAppend().check(self.history, None, time_limit_s=10.0)


def deposed(*, told: bool = True) -> Transactions:
    """Begin a history in which m1 led; then m2 led and executed an append that m1 may not know."""
    h = Transactions(STALE)
    h.leads("m1", 1)
    h.append(1)
    if told:
        h.leads("m2", 2)
    h.append(2, node="m2")
    return h


@pytest.mark.parametrize("told", [True, False])
def test_a_deposed_leader_may_answer_from_the_past(told):
    h = deposed(told=told)
    h.read(1, node="m1")
    h.read(1, 2, node="m2")
    assert permitted_in(h.judged()) == {STALE: 1}


def test_a_leader_does_not_answer_from_the_past():
    h = deposed()
    h.read(1, node="m2")
    h.read(1, 2, node="m2")
    assert h.judged().verdict is INVALID


def test_a_stale_read_shows_a_past_that_existed():
    h = deposed()
    h.read(2, node="m1")
    h.read(1, 2, node="m2")
    assert h.judged().verdict is INVALID


def test_no_permit_no_excuse():
    h = deposed()
    h.lines[0] = Transactions().lines[0]
    h.read(1, node="m1")
    h.read(1, 2, node="m2")
    assert h.judged().verdict is INVALID


def test_a_power_cut_may_undo_earlier_changes():
    h = Transactions(LOST)
    h.append(1)
    h.append(2)
    h.read(1, 2)
    h.cut()
    h.read(1)
    h.append(3)
    h.read(1, 3)
    assert permitted_in(h.judged()) == {LOST: 1}


@pytest.mark.parametrize(
    "steps",
    [
        lambda h: (h.append(3), h.read(1)),  # 3 came after the cut
        lambda h: (h.append(3), h.append(4), h.read(1, 4, 3)),
        lambda h: (h.append(3, kind=OpType.FAIL), h.read(1, 3)),
        lambda h: h.read(1, 1),
        lambda h: h.read(1, 9),
    ],
)
def test_a_power_cut_undoes_nothing_that_came_after_it(steps):
    h = Transactions(LOST)
    h.append(1)
    h.append(2)
    h.read(1, 2)
    h.cut()
    h.read(1)
    steps(h)
    assert h.judged().verdict is INVALID


def test_changes_lost_before_any_power_cut_convict():
    h = Transactions(LOST)
    h.append(1)
    h.read()
    h.cut()
    h.read(1)
    assert h.judged().verdict is INVALID


@pytest.mark.parametrize(("attempts", "verdict"), [(2, PERMITTED), (1, INVALID)])
def test_a_refused_append_that_was_sent_twice_may_have_taken_effect(attempts, verdict):
    h = Transactions(TWICE)
    h.append(1)
    h.append(2, kind=OpType.FAIL, attempts=attempts)
    h.read(1, 2)
    assert h.judged().verdict is verdict


def test_only_the_permits_that_are_needed_count():
    h = Transactions(STALE, TWICE, LOST)
    h.leads("m1", 1)
    h.append(1)
    h.cut()
    h.leads("m2", 2)
    h.append(2, node="m2")
    h.read(1, node="m1")
    h.read(1, 2, node="m2")
    assert permitted_in(h.judged()) == {STALE: 1}


def test_a_weak_system_within_its_permits_is_never_blamed():
    verdicts = set()
    for seed in range(40):
        rng = random.Random(seed)
        h = Transactions(STALE, LOST)
        state: list[int] = []
        past: list[int] = []
        term, old = 1, None
        h.leads("m1", 1)
        for number in range(rng.randrange(6, 25)):
            match rng.randrange(8):
                case 0:
                    h.cut()
                    del state[rng.randrange(len(state) + 1) :]
                case 1:
                    past, old, term = [*state], f"m{term}", term + 1
                    h.leads(f"m{term}", term)
                case 2 | 3 if old is not None:
                    h.read(*past, node=old, process=2)
                case 4 | 5:
                    h.append(number, node=f"m{term}")
                    state.append(number)
                case _:
                    h.read(*state, node=f"m{term}")
        verdicts.add(verdict := h.judged().verdict)
        assert verdict is not INVALID, seed
    assert {VALID, PERMITTED} <= verdicts


def test_a_write_that_no_permit_loses_is_found():
    found = 0
    for seed in range(12):
        rng = random.Random(seed)
        h = Transactions(STALE, LOST)
        h.leads("m1", 1)
        state: list[int] = []
        for number in range(20):
            if rng.randrange(8) == 0:
                h.cut()
                del state[rng.randrange(len(state) + 1) :]
            h.append(number)
            state.append(number)
            h.read(*state)
        state.remove(19)
        h.read(*state)
        found += h.judged().verdict is INVALID
    assert found == 12
