"""Without an explanation, a check returns the same verdict."""

import pytest

from checkers.linearizability import Event, Limits, Result, check_events, check_operations
from checkers.linearizability.models.register import Read, Register, Write
from tests.native.generate import KINDS, history

FAST = Limits(shrink_steps=500)


@pytest.mark.parametrize("name", KINDS)
def test_the_verdict_does_not_depend_on_being_explained(name):
    kind = KINDS[name]
    for seed in range(40):
        operations = history(kind, seed)
        full = check_operations(kind.model, operations, limits=FAST)
        bare = check_operations(kind.model, operations, limits=FAST, explained=False)
        assert bare.result is full.result
        assert bare.witness == full.witness
        assert bare.failure is None
        assert (full.failure is None) == (full.result is not Result.ILLEGAL)


def test_events_can_be_checked_for_the_verdict_alone():
    events = [
        Event(0, True, Write(1), 7),
        Event(0, False, None, 7),
        Event(0, True, Read(), 8),
        Event(0, False, 2, 8),
    ]
    outcome = check_events(Register(), events, explained=False)
    assert outcome.result is Result.ILLEGAL
    assert outcome.failure is None
