"""Snapshots that a leader sends in chunks, which may be lost, repeated, reordered or damaged."""

import zlib
from typing import Any

import msgspec
import pytest

from targets.kudu.consensus import events as ev
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.consensus_service import ConsensusCalls
from targets.kudu.messages import RaftConfig

DATA = bytes(range(30))


class Receiver:
    """A fake core with only the parts that incoming calls use.

    It installs every complete snapshot.
    """

    uuid = "a"

    def __init__(self, term: int = 3) -> None:
        self.term = term
        self.installed: list[bytes] = []
        self.contacts: list[tuple[str, int]] = []

    def step(self, event: ev.Event) -> None:
        if isinstance(event, ev.LeaderContact):
            self.contacts.append((event.caller_uuid, event.caller_term))
        if isinstance(event, ev.SnapshotReceived):
            self.installed.append(event.data)
            event.reply.set(msg.InstallSnapshotResponse("a", self.term, installed=True))


def chunk(start: int, end: int, **changes: Any) -> msg.InstallSnapshotRequest:
    request = msg.InstallSnapshotRequest(
        dest_uuid="a",
        tablet_id="g",
        caller_uuid="b",
        caller_term=3,
        last_included=msg.OpId(2, 9),
        config=RaftConfig(-1, ()),
        digest=b"",
        total_size=len(DATA),
        crc=zlib.crc32(DATA),
        offset=start,
        data=DATA[start:end],
    )
    return msgspec.structs.replace(request, **changes)


def send(calls: ConsensusCalls, request: msg.InstallSnapshotRequest) -> msg.InstallSnapshotResponse:
    answer = calls.snapshot(request)
    assert isinstance(answer, msg.InstallSnapshotResponse)
    return answer


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def calls(receiver: Receiver) -> ConsensusCalls:
    return ConsensusCalls(receiver, receiver.step)  # type: ignore[arg-type]


def test_chunks_in_order_make_a_snapshot(receiver, calls):
    assert send(calls, chunk(0, 10)).next_offset == 10
    assert send(calls, chunk(10, 20)).next_offset == 20
    assert send(calls, chunk(20, 30)).installed
    assert receiver.installed == [DATA]
    assert receiver.contacts == [("b", 3)] * 3, "each is a sign of life of the leader"


def test_repeated_and_early_chunks_are_not_taken(receiver, calls):
    send(calls, chunk(0, 10))
    assert send(calls, chunk(0, 10)).next_offset == 10
    assert send(calls, chunk(20, 30)).next_offset == 10
    send(calls, chunk(10, 20))
    assert send(calls, chunk(20, 30)).installed
    assert receiver.installed == [DATA]


def test_another_snapshot_begins_again(receiver, calls):
    send(calls, chunk(0, 10))
    assert send(calls, chunk(10, 20, last_included=msg.OpId(3, 12))).next_offset == 0
    assert receiver.installed == []


def test_a_damaged_snapshot_is_not_installed(receiver, calls):
    assert send(calls, chunk(0, 30, crc=1)).next_offset == 0
    assert receiver.installed == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"caller_term": 2}, msg.ConsensusErrorCode.INVALID_TERM),
        ({"total_size": 1 << 40}, msg.ConsensusErrorCode.CANNOT_PREPARE),
    ],
)
def test_old_leaders_and_giants_are_refused(calls, changes, code):
    error = send(calls, chunk(0, 10, **changes)).error

    assert error is not None
    assert error.code is code
