"""The client writes and reads rows: it routes requests, caches locations, and proves outcomes."""

from collections.abc import Callable
from typing import Any

import pytest

from harness.errors import UsageError
from harness.ops import OpType
from harness.plugins import Completion, Request
from targets.kudu import messages as m
from targets.kudu.client import KuduClient, RetryPolicy
from targets.kudu.partitions import partition_key, partitions_of
from targets.kudu.rpc import RpcError
from tests.kudu_client.fakes import FakeEnv, FakeRpc, Late, Silence, connect
from tests.support.virtual import run

META = m.Meta("uuid-1", 7, 42)
MASTER = "m1:7051"
SERVERS = ("t1:7050", "t2:7050", "t3:7050")
KEY = m.Column(id=0, name="key", is_key=True, is_nullable=False)
SCHEMA = m.Schema((KEY, m.Column(id=1, name="v"), m.Column(id=2, name="w")))
CODE = m.TabletErrorCode


def located(
    *, leader: int = 0, partitions: int = 1, ttl_ms: int = 60_000, table_id: str = "id"
) -> dict[tuple[str, str], list[Any]]:
    how = m.PartitionSchema(num_hash_buckets=partitions, hash_columns=("key",))
    replicas = tuple(
        m.ReplicaLocation(f"u{n}", address, "LEADER" if n == leader else "FOLLOWER", "VOTER")
        for n, address in enumerate(SERVERS)
    )
    tablets = tuple(
        m.TabletLocations(f"T{n}", partition, replicas)
        for n, partition in enumerate(partitions_of(how))
    )
    schema = m.GetTableSchemaResponse(META, table_id=table_id, schema=SCHEMA, partition_schema=how)
    where = m.GetTableLocationsResponse(META, table_id=table_id, tablets=tablets, ttl_ms=ttl_ms)
    return {
        (MASTER, "ConnectToMaster"): [connect(7, "LEADER")],
        (MASTER, "GetTableSchema"): [schema],
        (MASTER, "GetTableLocations"): [where],
    }


def error(code: m.TabletErrorCode, *, indeterminate: bool = False) -> m.TabletError:
    return m.TabletError(code, "because", indeterminate)


def done(timestamp: int, *errors: tuple[int, m.RowErrorCode]) -> m.WriteResponse:
    found = tuple(m.RowError(row, code) for row, code in errors)
    return m.WriteResponse(timestamp=timestamp, row_errors=found)


def refused(code: m.TabletErrorCode, *, indeterminate: bool = False) -> m.WriteResponse:
    return m.WriteResponse(error(code, indeterminate=indeterminate))


def page(*rows: tuple[Any, ...], at: int = 50, token: bytes = b"") -> m.ScanResponse:
    return m.ScanResponse(column_ids=(0, 1, 2), rows=rows, snap_timestamp=at, page_token=token)


Script = dict[tuple[str, str], list[Any]]


def invoke(
    requests: list[tuple[str, Any]],
    script: Script,
    *,
    timeout_s: float = 2.0,
    policy: RetryPolicy | None = None,
    between: Callable[[FakeRpc], None] = lambda rpc: None,
) -> tuple[list[Completion], FakeRpc]:
    async def main() -> tuple[list[Completion], FakeRpc]:
        rpc = FakeRpc(script)
        client = KuduClient(FakeEnv(), rpc, masters=(MASTER,), process=3, policy=policy)
        completions = []
        for f, value in requests:
            completions.append(await client.invoke(Request(f, value), timeout_s=timeout_s))
            between(rpc)
        return completions, rpc

    return run(main())


def write(*rows: list[Any]) -> tuple[str, Any]:
    return "write", {"table": "t", "nonce": "n", "rows": list(rows)}


INSERT = write(["insert", "a", {"v": "1"}])
READ = ("read", {"table": "t", "key": "a"})


def test_a_write_is_one_request_a_tablet_and_its_rows_are_answered_one_by_one():
    keys = [f"k{n}" for n in range(8)]
    how = m.PartitionSchema(num_hash_buckets=2, hash_columns=("key",))
    first = [partition_key(how, (KEY,), (key,)) == b"\0\0\0\0" for key in keys]
    assert 0 < sum(first) < 8
    script = located(partitions=2) | {
        (SERVERS[0], "Write"): [done(10, (0, m.RowErrorCode.ALREADY_PRESENT)), done(20)]
    }
    rows = [["insert", key, {"v": key, "w": None}] for key in keys]
    (completion,), rpc = invoke([write(*rows)], script)
    assert completion.type is OpType.OK
    parts = completion.value["parts"]
    assert sorted(n for part in parts for n in part["rows"]) == list(range(8))
    for part in parts:
        assert {first[n] for n in part["rows"]} == {part["tablet"] == "T0"}
    assert [part["timestamp"] for part in parts] == [10, 20]
    refused_row = parts[0]["rows"][0]
    assert completion.value["rows"] == [
        "already-present" if n == refused_row else "ok" for n in range(8)
    ]
    sent = rpc.requests("Write")
    assert [request.request_id.seq_no for request in sent] == [1, 2]
    assert all(row.values == {1: row.key[0], 2: None} for r in sent for row in r.operations)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (m.RowErrorCode.NOT_FOUND, "not-found"),
        (m.RowErrorCode.ALREADY_PRESENT, "already-present"),
        (m.RowErrorCode.INVALID_ARGUMENT, "invalid"),
        (m.RowErrorCode.OUT_OF_RANGE, "invalid"),
    ],
)
def test_errors_of_rows(code, result):
    script = located() | {(SERVERS[0], "Write"): [done(10, (0, code))]}
    (completion,), _ = invoke([INSERT], script)
    assert (completion.type, completion.value["rows"]) == (OpType.OK, [result])


@pytest.mark.parametrize(
    "answer",
    [
        refused(CODE.NOT_THE_LEADER),
        refused(CODE.TABLET_NOT_FOUND),
        refused(CODE.TABLET_NOT_RUNNING),
        RpcError("cannot connect", sent=False),
    ],
)
def test_proven_refusals_are_retried_elsewhere(answer):
    script = located() | {(SERVERS[0], "Write"): [answer], (SERVERS[1], "Write"): [done(10)]}
    completions, rpc = invoke([INSERT, INSERT], script)
    assert [completion.type for completion in completions] == [OpType.OK, OpType.OK]
    # The second write goes straight to the server that has accepted the first.
    assert [a for a, name, _ in rpc.sent if name == "Write"] == [SERVERS[0], *[SERVERS[1]] * 2]
    assert completions[0].attempts[0].outcome.split(":")[0] != "ok"
    assert len(completions[0].attempts) == 2


@pytest.mark.parametrize(
    "answer",
    [
        Silence(),
        RpcError("the connection broke", sent=True),
        refused(CODE.UNKNOWN_ERROR, indeterminate=True),
        refused(CODE.NOT_THE_LEADER, indeterminate=True),
        refused(CODE.REQUEST_STALE),
    ],
)
def test_possibly_executed_requests_are_info_and_not_resent(answer):
    script = located() | {(address, "Write"): [answer] for address in SERVERS}
    (completion,), rpc = invoke([INSERT], script)
    assert (completion.type, completion.value["rows"]) == (OpType.INFO, [None])
    assert completion.value["parts"][0]["timestamp"] is None
    assert len(rpc.requests("Write")) == 1


BROKE = RpcError("broke", sent=True)
ELSEWHERE = [refused(CODE.NOT_THE_LEADER)]


@pytest.mark.parametrize(
    ("first", "others", "resend", "kind", "row"),
    [
        ([BROKE, done(10)], ELSEWHERE, True, OpType.OK, "ok"),
        # after an attempt of unknown outcome, a later refusal does not decide the outcome
        ([BROKE], [refused(CODE.MISMATCHED_SCHEMA)], True, OpType.INFO, None),
        # if no replica accepts the write before the deadline, it fails
        (ELSEWHERE, ELSEWHERE, False, OpType.FAIL, "failed"),
    ],
)
def test_a_write_is_sent_again_under_the_same_id(first, others, resend, kind, row):
    script = located() | {(address, "Write"): others for address in SERVERS}
    script[SERVERS[0], "Write"] = first
    (completion,), rpc = invoke([INSERT], script, policy=RetryPolicy(resend=resend))
    assert (completion.type, completion.value["rows"]) == (kind, [row])
    assert len({request.request_id for request in rpc.requests("Write")}) == 1
    assert len(completion.attempts) == len(rpc.requests("Write")) > 1
    if kind is OpType.FAIL:
        assert {address for address, name, _ in rpc.sent if name == "Write"} == set(SERVERS)
        assert len(rpc.requests("GetTableLocations")) > 1  # the client asked for the new locations


def test_a_write_with_one_silent_tablet_is_info_with_the_known_parts():
    script = located(partitions=2) | {(SERVERS[0], "Write"): [done(10), Silence()]}
    rows = [["upsert", f"k{n}", {"v": "1"}] for n in range(8)]
    (completion,), _ = invoke([write(*rows)], script)
    assert completion.type is OpType.INFO
    known, unknown = completion.value["parts"]
    assert (known["timestamp"], unknown["timestamp"]) == (10, None)
    assert all(completion.value["rows"][n] == "ok" for n in known["rows"])
    assert all(completion.value["rows"][n] is None for n in unknown["rows"])


def test_repetitions_are_reported_with_the_first_answer():
    again = done(11, (0, m.RowErrorCode.ALREADY_PRESENT))
    script = located() | {(SERVERS[0], "Write"): [done(10), again]}
    (completion,), rpc = invoke([INSERT], script, policy=RetryPolicy(repeat=True))
    (part,) = completion.value["parts"]
    assert completion.value["rows"] == ["ok"]
    assert (part["timestamp"], part["again"]) == (10, [[11, ["already-present"]]])
    assert len({request.request_id for request in rpc.requests("Write")}) == 1


def test_timestamps_go_with_every_later_request():
    answer = m.WriteResponse(timestamp=70, propagated_timestamp=75)
    script = located() | {(SERVERS[0], "Write"): [answer], (SERVERS[0], "Scan"): [page(at=80)]}
    _, rpc = invoke([INSERT, READ, INSERT], script)
    assert [request.propagated_timestamp for request in rpc.requests("Write")] == [0, 80]
    assert rpc.requests("Scan")[0].propagated_timestamp == 75


def test_a_read_asks_the_leader_for_one_key():
    script = located() | {(SERVERS[0], "Scan"): [page(("a", "1", None))]}
    (completion,), rpc = invoke([READ], script)
    value = {"table_id": "id", "tablet": "T0", "term": None, "timestamp": 50, "row": {"v": "1"}}
    assert (completion.type, completion.value) == (OpType.OK, value)
    (request,) = rpc.requests("Scan")
    assert (request.key_start, request.key_end) == (b"a", b"a\0")
    assert request.mode is m.ReadMode.READ_LATEST
    assert not request.allow_followers


def test_a_scan_gathers_pages_and_tablets_at_one_timestamp():
    script = located(partitions=2) | {
        (SERVERS[0], "Scan"): [
            page(("a", "1", "2"), at=50, token=b"more"), page(("c", "3", None), at=50), page(at=50),
        ]
    }  # fmt: skip
    scan = ("scan", {"table": "t", "mode": "read-your-writes"})
    (completion,), rpc = invoke([scan], script)
    assert completion.value["timestamp"] == 50
    assert [part["rows"] for part in completion.value["parts"]] == [
        [["a", {"v": "1", "w": "2"}], ["c", {"v": "3"}]],
        [],
    ]
    first, second, third = rpc.requests("Scan")
    assert (first.mode, second.mode) == (m.ReadMode.READ_YOUR_WRITES,) * 2
    assert second.page_token == b"more"
    assert (third.mode, third.snapshot_timestamp) == (m.ReadMode.READ_AT_SNAPSHOT, 50)


def test_a_latest_scan_that_was_read_at_several_timestamps_names_none():
    script = located(partitions=2) | {(SERVERS[0], "Scan"): [page(at=50), page(at=51)]}
    (completion,), _ = invoke([("scan", {"table": "t"})], script)
    assert completion.value["timestamp"] is None
    assert [part["timestamp"] for part in completion.value["parts"]] == [50, 51]


def test_a_read_that_is_answered_nowhere_fails_and_says_nothing():
    script = located() | {(a, "Scan"): [Silence()] for a in SERVERS}
    (completion,), _ = invoke([READ], script)
    assert (completion.type, completion.value) == (OpType.FAIL, None)


def test_a_snapshot_that_is_too_old_is_not_asked_for_again():
    script = located() | {
        (a, "Scan"): [m.ScanResponse(error(CODE.INVALID_SNAPSHOT))] for a in SERVERS
    }
    scan = ("scan", {"table": "t", "mode": "snapshot", "replica": "any", "at": 7})
    (completion,), rpc = invoke([scan], script)
    assert completion.type is OpType.FAIL
    assert len(rpc.requests("Scan")) == 1


@pytest.mark.parametrize(("request_", "kind"), [(INSERT, OpType.FAIL), (READ, OpType.OK)])
def test_a_table_that_is_not_there(request_, kind):
    script = located() | {
        (MASTER, "GetTableSchema"): [m.GetTableSchemaResponse(META, error=MISSING)]
    }
    (completion,), _ = invoke([request_], script)
    assert (completion.type, completion.value) == (kind, {"result": "not-found"})


@pytest.mark.parametrize("ttl_ms", [60_000, 1])
def test_known_tables_are_served_without_masters(ttl_ms):
    script = located(ttl_ms=ttl_ms) | {(a, "Write"): [done(10)] for a in SERVERS}

    def lose_masters(rpc: FakeRpc) -> None:
        for name in ("ConnectToMaster", "GetTableSchema", "GetTableLocations"):
            rpc.script[MASTER, name] = [Late(0.3, RpcError("no route", sent=False))]

    requests = [INSERT] * 12
    completions, _ = invoke(requests, script, between=lose_masters, timeout_s=0.5)
    assert {completion.type for completion in completions} == {OpType.OK}


def test_unknown_locations_wait_for_a_master_until_the_deadline():
    script = located() | {(MASTER, "ConnectToMaster"): [RpcError("no route", sent=False)]}
    (completion,), rpc = invoke([INSERT], script)
    assert (completion.type, completion.value) == (OpType.FAIL, None)
    assert completion.error is not None
    assert completion.error.startswith("NO_LEADER")
    assert rpc.requests("Write") == []


MISSING = m.MasterError(m.MasterErrorCode.TABLE_NOT_FOUND, m.AppStatus.NOT_FOUND, "none")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (RpcError("no route", sent=False), "TIMED_OUT"),
        (m.GetTableSchemaResponse(META, error=MISSING), "TABLE_NOT_FOUND"),
    ],
)
def test_a_read_of_a_column_with_an_unresolved_name_fails_with_the_reason(answer, error):
    added = m.ScanResponse(column_ids=(0, 1, 9), rows=(("a", "1", "new"),), snap_timestamp=50)
    script = located() | {(SERVERS[0], "Scan"): [page(), added]}

    def lose_masters(rpc: FakeRpc) -> None:
        rpc.script[MASTER, "GetTableSchema"] = [answer]

    completions, _ = invoke([READ, READ], script, between=lose_masters)
    assert [completion.type for completion in completions] == [OpType.OK, OpType.FAIL]
    assert completions[1].error is not None
    assert completions[1].error.split(":")[0] == error


def test_a_table_made_anew_under_the_name_is_another_one():
    script = located() | {(a, "Write"): [refused(CODE.TABLET_NOT_FOUND)] for a in SERVERS}

    def remake(rpc: FakeRpc) -> None:
        rpc.script |= located(table_id="other")

    script[SERVERS[0], "Write"] = [done(10), refused(CODE.TABLET_NOT_FOUND), done(20)]
    completions, _ = invoke([INSERT, INSERT, INSERT], script, between=remake)
    assert [c.type for c in completions] == [OpType.OK, OpType.FAIL, OpType.OK]
    assert completions[1].value["rows"] == ["failed"]
    assert completions[2].value["table_id"] == "other"


def test_an_unknown_column_is_not_sent():
    (completion,), rpc = invoke([write(["insert", "a", {"x": "1"}])], located())
    assert completion.type is OpType.FAIL
    assert rpc.requests("Write") == []


@pytest.mark.parametrize(
    ("f", "value"),
    [
        ("write", {"table": "t", "nonce": "n", "rows": []}),
        ("write", {"table": "t", "nonce": "n", "rows": [["put", "a", {}]]}),
        ("scan", {"table": "t", "mode": "latest", "at": 7}),
        ("read", {"table": "t"}),
    ],
)
def test_values_outside_the_vocabulary_are_refused(f, value):
    with pytest.raises(UsageError):
        invoke([(f, value)], located())
