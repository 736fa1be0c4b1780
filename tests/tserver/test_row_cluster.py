"""Rows on three tablet servers, with failovers, restarts and wrong clocks.

Reads of one snapshot always return the same rows, on every replica. They include all acknowledged
writes up to their timestamp, and resent writes take effect only once.
"""

import asyncio
import dataclasses
from typing import Any

import pytest

from harness.nodes.faults import Aim, Clock, Cut, Pause
from targets.kudu import messages as m
from targets.kudu.consensus import messages as raft
from targets.kudu.messages import ReadMode
from targets.kudu.partitions import partition_key, partitions_of, tablet_position
from targets.kudu.rpc import RpcError
from targets.kudu.tserver import errors as limits
from tests.async_tests import on
from tests.faults.door import door
from tests.tserver.cluster import KEY, NAMES, SCHEMA, TABLET, Servers, row, simulate

Code = m.TabletErrorCode
FIRST_TIMESTAMP = 1  # the safe time of a replica to which nothing has been written
Rows = dict[str, tuple[Any, ...]]


async def some_rows(servers: Servers, count: int) -> m.WriteResponse:
    for number in range(count):
        answer = await servers.write_ok("c", number, row("INSERT", f"k{number:03d}", a=str(number)))
        assert answer.row_errors == ()
    return answer


@on(simulate)
async def test_rows_are_written_to_the_leader_and_read_from_all(servers):
    answer = await some_rows(servers, 20)
    for node in NAMES:
        first, rows = await servers.scan_ok(
            [node],
            mode=ReadMode.READ_AT_SNAPSHOT,
            snapshot_timestamp=answer.timestamp,
            batch_rows=3,
        )
        assert first.snap_timestamp == answer.timestamp
        assert rows == {f"k{number:03d}": (str(number), None) for number in range(20)}
        assert first.replica.ts_uuid == servers.uuids[node]
    others = [name for name in NAMES if name != servers.leader]
    for node in others:
        refused = await servers.write(node, "c", 99, row("INSERT", "x"))
        assert (refused.error.code, refused.error.indeterminate) == (Code.NOT_THE_LEADER, False)
        assert (await servers.page(node)).error.code is Code.NOT_THE_LEADER
        followed = await servers.page(node, allow_followers=True)
        assert (followed.replica.role, followed.replica.leadership_confirmed) == ("FOLLOWER", False)
    led = await servers.page(servers.leader, projection=(2, 0), key_start=b"k005", key_end=b"k007")
    assert led.rows == ((None, "k005"), (None, "k006"))
    assert led.replica.leadership_confirmed


@on(simulate)
async def test_bad_requests_are_refused_and_change_nothing(servers):
    await some_rows(servers, 1)
    leader = servers.leader
    bad = {
        Code.MISMATCHED_SCHEMA: [
            m.RowOperation(m.RowKind.INSERT, (7,)),
            m.RowOperation(m.RowKind.INSERT, ()),
            m.RowOperation(m.RowKind.INSERT, ("x",), {9: "v"}),
            m.RowOperation(m.RowKind.INSERT, ("x",), {1: 5}),
        ]
    }
    for code, rows in bad.items():
        for number, one in enumerate(rows):
            refused = await servers.write(leader, "bad", number, one)
            assert (refused.error.code, refused.error.indeterminate) == (code, False)
    far = (10**12 * 3600) << 12
    ahead = await servers.write(leader, "bad", 8, row("INSERT", "x"), propagated_timestamp=far)
    assert ahead.error.code is Code.CLOCK_TOO_FAR_AHEAD
    assert (await servers.write(leader, "bad", 9)).error.code is Code.UNKNOWN_ERROR
    scans: list[tuple[Code, dict[str, Any]]] = [
        (Code.INVALID_SCAN_SPEC, {"batch_rows": 0}),
        (Code.INVALID_SCAN_SPEC, {"page_token": b"\xc1"}),
        (Code.MISMATCHED_SCHEMA, {"projection": (0, 9)}),
        (Code.INVALID_SNAPSHOT, {"mode": ReadMode.READ_AT_SNAPSHOT, "snapshot_timestamp": far}),
        (Code.INVALID_SNAPSHOT, {"mode": ReadMode.READ_AT_SNAPSHOT, "snapshot_timestamp": 1}),
    ]
    for code, request in scans:
        assert (await servers.page(leader, **request)).error.code is code
    dragged = await servers.call(leader, m.AdvanceSafeTimeRequest(TABLET, far))
    assert dragged.error.code is Code.CLOCK_TOO_FAR_AHEAD
    missing = m.ScanRequest("0" * 32)
    assert (await servers.call(leader, missing)).error.code is Code.TABLET_NOT_FOUND
    _, rows = await servers.scan_ok(NAMES, mode=ReadMode.READ_AT_SNAPSHOT)
    assert list(rows) == ["k000"]


@on(simulate)
async def test_rows_of_other_tablets_are_distinguished(servers):
    other, hashed = "c" * 32, m.PartitionSchema(2, ("key",))
    bounds = [partition.start for partition in partitions_of(hashed)]
    mine = m.Partition(bounds[1], b"")
    await servers.create(tablet_id=other, partition=mine, partition_schema=hashed)
    keys = [f"k{number}" for number in range(8)]
    buckets = [tablet_position(bounds, partition_key(hashed, (KEY,), (key,))) for key in keys]
    assert set(buckets) == {0, 1}
    rows = tuple(row("INSERT", key) for key in keys)
    request = m.WriteRequest(other, m.RowRequestId("c", 1), rows)
    answer = None
    while answer is None or answer.error is not None:
        for node in NAMES:
            answer = await servers.call(node, request)
            if answer.error is None:
                break
        await asyncio.sleep(0.1)
    foreign = [number for number, bucket in enumerate(buckets) if bucket == 0]
    expected = [m.RowError(number, m.RowErrorCode.OUT_OF_RANGE) for number in foreign]
    assert list(answer.row_errors) == expected


@on(simulate)
async def test_a_resend_gets_the_first_answer_from_any_leader(servers):
    first = await servers.write_ok("c", 1, row("INSERT", "x", a="1"), row("DELETE", "none"))
    assert first.row_errors == (m.RowError(1, m.RowErrorCode.NOT_FOUND),)
    assert await servers.write_ok("c", 1, row("INSERT", "x"), row("DELETE", "none")) == first
    old = servers.leader
    await servers.cluster.kill(old, lose_unsynced=True)
    again = await servers.write_ok("c", 1, row("INSERT", "x"), row("DELETE", "none"))
    assert servers.leader != old
    same = ("timestamp", "row_errors", "index", "term")
    assert [getattr(first, name) for name in same] == [getattr(again, name) for name in same]
    await servers.cluster.start(old)
    two = await asyncio.gather(
        *(servers.write(servers.leader, "c", 2, row("INSERT", "y")) for _ in range(2))
    )
    assert two[0].error is None
    assert two[0].timestamp == two[1].timestamp
    await servers.write(servers.leader, "c", 3, row("INSERT", "z"), first_incomplete=3)
    stale = await servers.write(servers.leader, "c", 1, row("INSERT", "x"))
    assert (stale.error.code, stale.error.indeterminate) == (Code.REQUEST_STALE, True)


def test_a_tablet_that_remembers_too_many_results_is_written_to_again_when_they_are_old(
    monkeypatch,
):
    monkeypatch.setattr(limits, "RESULTS_MAX", 5)

    async def main(servers: Servers) -> None:
        await some_rows(servers, 5)
        refused = await servers.write(servers.leader, "c", 9, row("INSERT", "x"))
        assert refused.error.code is Code.THROTTLED
        await asyncio.sleep(61)
        written = await servers.write(servers.leader, "c", 9, row("INSERT", "x"))
        assert written.error is None

    simulate(main, remember_responses_ttl_ms=60_000)


@on(simulate)
async def test_schemas_change_in_the_order_of_the_log(servers):
    await some_rows(servers, 3)
    columns = (SCHEMA.columns[0], SCHEMA.columns[2], m.Column(3, "c"))
    altered = m.AlterSchemaRequest(servers.uuids[servers.leader], TABLET, m.Schema(columns), 1)
    assert (await servers.call(servers.leader, altered)).error is None
    refused = await servers.write(servers.leader, "c", 50, row("INSERT", "x", a="1"))
    assert refused.error.code is Code.MISMATCHED_SCHEMA
    new = m.RowOperation(m.RowKind.UPDATE, ("k001",), {3: "new"})
    answer = await servers.write_ok("c", 51, new)
    for node in NAMES:
        first, rows = await servers.scan_ok(
            [node], mode=ReadMode.READ_AT_SNAPSHOT, snapshot_timestamp=answer.timestamp
        )
        assert (first.schema_version, first.column_ids) == (1, (0, 2, 3))
        assert rows["k000"] == (None, None)
        assert rows["k001"] == (None, "new")


@on(simulate)
async def test_a_replica_far_behind_gets_the_whole_tablet(servers):
    await some_rows(servers, 5)
    behind = next(name for name in NAMES if name != servers.leader)
    await servers.cluster.kill(behind)
    for number in range(5, 60):
        rows = [
            row("UPSERT", f"k{k:03d}", a="v" * 300, b=str(number)) for k in range(number % 9, 40)
        ]
        await servers.write_ok("c", number, *rows)
    await servers.cluster.start(behind)
    dumps = await servers.dumps()
    assert len({dump["rows"]["digest"] for dump in dumps}) == 1
    assert all(dump["raft"]["first_index"] > 5 for dump in dumps)
    sums = [await servers.call(n, m.ChecksumRequest(TABLET)) for n in NAMES]
    at = max(one.snap_timestamp for one in sums)
    sums = [await servers.call(n, m.ChecksumRequest(TABLET, snapshot_timestamp=at)) for n in NAMES]
    assert [one.error for one in sums] == [None, None, None]
    assert len({(one.checksum, one.rows) for one in sums}) == 1


@on(simulate, remember_responses_ttl_ms=60_000)
async def test_answers_of_a_cut_off_leader_are_no_promise(servers):
    """A cut-off leader answers reads at safe timestamps, but it cannot make newer timestamps
    safe.
    """
    await some_rows(servers, 3)
    old = servers.leader
    await servers.broken(Cut(), old, links=servers.links(old))
    refused = await servers.page(old, mode=ReadMode.READ_AT_SNAPSHOT, timeout_ms=2000)
    assert refused.error.code is Code.TIMED_OUT
    latest = await servers.page(old, timeout_ms=2000)
    assert latest.error is not None


@on(simulate)
async def test_a_follower_does_not_wait_for_a_leader_that_is_gone_when_there_is_another(servers):
    await some_rows(servers, 3)
    old = servers.leader
    follower = next(name for name in NAMES if name != old)
    aim = Aim(what=Cut(), targets=(old,), links=tuple(servers.links(old)))
    await servers.ledger.inject(aim, lease_s=60, groups={})
    begin_ns = servers.session.env.clock.monotonic_ns()
    answer = await servers.page(follower, mode=ReadMode.READ_AT_SNAPSHOT, timeout_ms=11_000)
    assert answer.error is None
    assert servers.leader != old
    assert servers.session.env.clock.monotonic_ns() - begin_ns < 6e9


@dataclasses.dataclass
class Known:
    """The rows that the driver knows; `wrote` has those that are written only once, by key."""

    wrote: dict[str, int] = dataclasses.field(default_factory=dict)  # key -> timestamp
    refused: set[str] = dataclasses.field(default_factory=set)
    snapshots: dict[int, Rows] = dataclasses.field(default_factory=dict)
    repeated: int = 0
    latest: int = 0

    def take(self, timestamp: int, rows: Rows) -> None:
        """Record a snapshot that was read; compare it with earlier reads of the same timestamp.

        A replica without any write reads at the first timestamp, which is too old once a write has
        come.
        """
        if timestamp == FIRST_TIMESTAMP:
            assert rows == {}
            return
        self.repeated += timestamp in self.snapshots
        assert self.snapshots.setdefault(timestamp, rows) == rows
        for key, written in self.wrote.items():
            if key[0] == "u":
                assert (key in rows) is (written <= timestamp)


async def writer(servers: Servers, known: Known, client: str, running: asyncio.Event) -> None:
    """Insert the client's own keys, each resent until it is answered, and upsert shared keys."""
    number = 0
    rng = servers.rng
    while running.is_set():
        number += 1
        key = f"u{client}{number:04d}"
        rows = (row("INSERT", key, a=key), row("UPSERT", f"s{rng.randrange(4)}", a=key, b="."))
        was_sent = False
        while True:
            node = servers.leader if rng.random() < 0.7 else rng.choice(NAMES)
            try:
                answer = await servers.write(node, client, number, *rows, first_incomplete=number)
            except RpcError as error:
                was_sent = was_sent or error.sent
                await asyncio.sleep(0.1)
                continue
            if answer.error is None:
                assert answer.row_errors == (), "the row existed before it was inserted"
                known.wrote[key] = answer.timestamp
                break
            was_sent = was_sent or answer.error.indeterminate
            assert answer.error.code is not Code.REQUEST_STALE
            if not was_sent and rng.random() < 0.2:
                known.refused.add(key)
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1 * rng.random())


async def reader(servers: Servers, known: Known, running: asyncio.Event) -> None:
    """Make reads of every kind on every node."""
    rng = servers.rng
    while running.is_set():
        await asyncio.sleep(0.2 * rng.random())
        nodes = [rng.choice(NAMES) for _ in range(3)]
        before = dict(known.wrote)
        kind = rng.randrange(4)
        if kind == 0:
            found = await servers.scan([servers.leader], batch_rows=500)
            if found is not None:
                known.latest += 1
                assert found[0].replica.leadership_confirmed
                missing = before.keys() - found[1].keys()
                assert not missing, f"a confirmed read lacks {sorted(missing)}"
        elif kind == 1 and before:
            newest = max(before.values())
            found = await servers.scan(
                nodes, mode=ReadMode.READ_YOUR_WRITES, propagated_timestamp=newest, batch_rows=40
            )
            if found is not None:
                assert before.keys() <= found[1].keys()
                assert found[0].snap_timestamp >= newest
        elif kind == 2 and known.snapshots:
            at = rng.choice(sorted(known.snapshots))
            found = await servers.scan(
                nodes, mode=ReadMode.READ_AT_SNAPSHOT, snapshot_timestamp=at, batch_rows=40
            )
        else:
            found = await servers.scan(nodes, mode=ReadMode.READ_AT_SNAPSHOT, batch_rows=40)
        if found is not None:
            known.take(found[0].snap_timestamp, found[1])


async def storm(servers: Servers, known: Known, rounds: int) -> None:
    running = asyncio.Event()
    running.set()
    tasks = [asyncio.create_task(writer(servers, known, c, running)) for c in "abc"]
    tasks += [asyncio.create_task(reader(servers, known, running)) for _ in range(3)]
    rng = servers.rng
    for _ in range(rounds):
        name = servers.leader if rng.random() < 0.6 else rng.choice(NAMES)
        what = rng.randrange(7)
        if what == 0:
            await servers.broken(Cut(), name, links=servers.links(name))
        elif what == 1:
            await servers.broken(Pause(), name)
        elif what == 2:
            offset_ms = rng.choice([-60_000.0, -3000.0, 3000.0, 8000.0])
            await servers.broken(Clock(offset_ms=offset_ms), name)
        elif what == 3:
            request = raft.LeaderStepDownRequest(servers.uuids[name], TABLET)
            with_errors = asyncio.create_task(step_down(servers, name, request))
            await with_errors
        elif what == 4:
            for other in NAMES:
                await servers.cluster.kill(other, lose_unsynced=True)
            for other in NAMES:
                await servers.cluster.start(other)
        else:
            await servers.cluster.kill(name, lose_unsynced=True, torn=True)
            await servers.cluster.start(name)
        await asyncio.sleep(4 * rng.random())
    running.clear()
    await door(servers).heal_all()
    await asyncio.gather(*tasks)


async def step_down(servers: Servers, name: str, request: raft.LeaderStepDownRequest) -> None:
    try:
        await servers.call(name, request, timeout_s=1.0)
    except RpcError:
        return


async def judge(servers: Servers, known: Known) -> None:
    """Check that the healed replicas agree on the current rows and on each snapshot read."""
    await servers.write_ok("last", 1, row("INSERT", "last"))
    _, rows = await servers.scan_ok([servers.leader, *NAMES], batch_rows=500)
    written = {key for key in rows if key[0] == "u"}
    assert known.wrote.keys() == written, "the existing rows are not exactly the acknowledged ones"
    assert not known.refused & written
    for timestamp, seen in known.snapshots.items():
        for node in NAMES:
            _, now = await servers.scan_ok(
                [node], mode=ReadMode.READ_AT_SNAPSHOT, snapshot_timestamp=timestamp, batch_rows=500
            )
            assert now == seen
        assert {k for k in seen if k[0] == "u"} == {
            key for key, at in known.wrote.items() if at <= timestamp
        }
    dumps = await servers.dumps()
    assert len({dump["rows"]["digest"] for dump in dumps}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_snapshots_repeat_and_no_row_is_lost_in_a_storm(seed):
    async def main(servers: Servers) -> Known:
        known = Known()
        await storm(servers, known, 12)
        await judge(servers, known)
        assert servers.states > 10
        return known

    known = simulate(main, seed=seed, knobs={"disk_ms_max": 30.0} if seed % 2 else {})
    assert len(known.wrote) > 50
    assert len(known.snapshots) > 10
    assert known.repeated > 5
    assert known.latest > 2
