"""A replica's state machine applies entries and gives each proposer its outcome."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.applier import Applier, Waiter
from targets.kudu.consensus.errors import IndeterminateError
from targets.kudu.consensus.messages import Entry, EntryKind, OpId


class Machine:
    def apply(self, index: int, term: int, payload: bytes) -> Any:
        del index, term
        return payload

    def snapshot(self) -> bytes:
        return b""

    async def restore(self, data: bytes, index: int) -> None:
        raise AssertionError("no state is restored here")


async def told(*, proposed: OpId, applied: OpId) -> Any:
    """Return the outcome that the proposer of `proposed` gets once `applied` is applied."""
    env: Any = SimpleNamespace(event=lambda *_, **__: None)
    applier = Applier(env, Machine(), "g")
    waiter = Waiter()
    applier.accept(ev.ProposalAccepted(waiter, proposed))
    applier.apply([Entry(applied.term, applied.index, EntryKind.WRITE, b"w")])
    assert applier.waiting_count == 0
    return await waiter.wait(None)


def test_a_proposer_gets_the_result_of_its_entry():
    outcome = asyncio.run(told(proposed=OpId(1, 1), applied=OpId(1, 1)))

    assert outcome == (1, 1, b"w")


def test_a_proposer_whose_entry_another_leader_replaced_does_not_get_its_result():
    with pytest.raises(IndeterminateError):
        asyncio.run(told(proposed=OpId(1, 1), applied=OpId(2, 1)))
