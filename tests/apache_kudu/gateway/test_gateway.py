"""A client of Kudu's RPC calls scripted bundled servers through the gateway."""

import asyncio
import contextlib

import msgspec
import pytest

from targets.apache_kudu.gateway import server
from targets.apache_kudu.wire import frames
from targets.apache_kudu.wire import methods as w
from targets.apache_kudu.wire.errors import RpcCode, RpcLayerError
from targets.apache_kudu.wire.frames import RowsId
from targets.apache_kudu.wire.messages import EMPTY
from targets.apache_kudu.wire.methods import Method
from targets.apache_kudu.wire.rows import unpack
from targets.kudu import messages as m
from targets.kudu.client.classify import Effect, mutation_effect
from targets.kudu.messages import AppStatus, MasterErrorCode, RowErrorCode, TabletErrorCode
from targets.kudu.rpc import RpcBusyError, RpcConnectionError, RpcRemoteError, RpcTimeoutError
from tests.apache_kudu.gateway.bundled import (
    COLUMNS,
    MASTER,
    META,
    TABLET,
    TSERVER,
    UUIDS,
    Bundled,
    gateway,
)
from tests.support.waiting import until

NAMED = m.TableIdentifier(table_name="t")
ID = m.RequestId("c", 1, "n")
KEY = m.Column(0, "key", is_key=True, is_nullable=False)
CREATE = m.CreateTableRequest(
    "t", m.Schema((KEY, m.Column(0, "v"))), m.PartitionSchema(3, ("key",)), ID, 3, comment="n1"
)
LOCATE = m.GetTableLocationsRequest(NAMED)
WRITE = m.WriteRequest(
    "T", m.RowRequestId("c", 5, 4), (m.RowOperation(m.RowKind.UPSERT, ("a",), {4: "x", 7: None}),)
)
LIMIT_S = 10.0


async def ask(bundled, address, *requests):
    async with gateway(bundled) as (_, client):
        for request in requests:
            answer = await client.call(address, request, timeout_s=LIMIT_S)
        return answer


async def raw(bundled, address, method, values, *, rows_id=None, limit_s=LIMIT_S):
    async with gateway(bundled) as (_, client):
        return await client.administer(
            address, lambda s: s.ask(method, values, rows_id=rows_id), timeout_s=limit_s
        )


async def write(bundled, request=WRITE):
    look = m.GetTableSchemaRequest(NAMED)  # the client needs the columns first
    async with gateway(bundled) as (_, client):
        await client.call(MASTER, look, timeout_s=LIMIT_S)
        await client.call(MASTER, LOCATE, timeout_s=LIMIT_S)
        return await client.call(TSERVER, request, timeout_s=LIMIT_S)


# --- masters ----------------------------------------------------------------------------------


async def test_a_table_of_kudus_clients_is_hashed_by_murmur2():
    bundled = Bundled(m.CreateTableResponse(META, table_id="i1"))
    answer = await ask(bundled, MASTER, CREATE, CREATE)
    assert (answer.error, answer.table_id, answer.meta.term) == (None, "i1", 1)
    first, second = (each for each in bundled.asked if isinstance(each, m.CreateTableRequest))
    # the Java client sends no request ids, so each resent copy counts as a new request
    assert first.request_id != second.request_id
    wanted = m.PartitionSchema(3, ("key",), murmur_seed=0)
    assert msgspec.structs.replace(first, request_id=ID) == msgspec.structs.replace(
        CREATE, partition_schema=wanted
    )


async def test_steps_of_an_alter_reach_the_master():
    steps = (
        m.AlterStep(m.StepType.ADD_COLUMN, m.Column(0, "b")),
        m.AlterStep(m.StepType.DROP_COLUMN, name="a"),
        m.AlterStep(m.StepType.RENAME_COLUMN, name="c", new_name="d"),
    )
    bundled = Bundled(m.AlterTableResponse(META, None, "i1", 4))
    answer = await ask(bundled, MASTER, m.AlterTableRequest(NAMED, ID, steps, "u"))
    assert (answer.error, answer.table_id) == (None, "i1")
    asked = bundled.last(m.AlterTableRequest)
    assert (asked.table, asked.steps, asked.new_table_name) == (NAMED, steps, "u")


@pytest.mark.parametrize(
    "values",
    [
        {"schema": {"columns": [{"name": "key", "type": 99, "is_key": True}]}},
        {"schema": {}, "partition_schema": {"hash_schema": [{}, {}]}},
        {"schema": {}, "range_bounds": {"rows": b"x"}},
        {"schema": {"columns": [{"name": "key", "is_key": True}]}},
        {"schema": {"columns": [{"type": 8}]}},
    ],
)
async def test_what_bundled_masters_lack_is_refused(values):
    reply = await raw(Bundled(), MASTER, w.CREATE_TABLE, {"name": "t", **values})
    assert reply["error"]["status"]["code"] == AppStatus.NOT_SUPPORTED


@pytest.mark.parametrize("field", ["new_table_owner", "new_table_comment"])
async def test_alters_that_bundled_masters_lack_are_refused(field):
    bundled = Bundled()
    values = {"table": {"table_name": "t"}, "new_table_name": "u", field: ""}
    reply = await raw(bundled, MASTER, w.ALTER_TABLE, values)
    assert reply["error"]["status"]["code"] == AppStatus.NOT_SUPPORTED
    assert not any(isinstance(each, m.AlterTableRequest) for each in bundled.asked)


async def test_reads_of_the_catalog():
    bundled = Bundled(
        m.ListTablesResponse(META, tables=(m.ListedTable("i1", "t", "RUNNING", 3),)),
        m.IsCreateTableDoneResponse(META, None, "i1", done=True),
        m.ConnectToMasterResponse(META, None, "LEADER", (MASTER,), "the-cluster"),
    )
    look = await ask(bundled, MASTER, m.GetTableSchemaRequest(NAMED))
    assert (look.table_id, look.schema_version, look.schema.columns) == ("i1", 3, COLUMNS)
    assert (await ask(bundled, MASTER, m.ListTablesRequest())).tables[0].id == "i1"
    assert (await ask(bundled, MASTER, m.IsCreateTableDoneRequest(NAMED))).done
    assert (await ask(bundled, MASTER, m.ConnectToMasterRequest())).role == "LEADER"
    registered = await ask(bundled, MASTER, m.GetMasterRegistrationRequest())
    assert (registered.meta.master_uuid, registered.role) == (UUIDS[MASTER], "LEADER")


async def test_locations_name_the_gateway_and_teach_it_uuids():
    async with gateway(Bundled()) as (front, client):
        place = "{}:{}".format(*front.places[TSERVER])
        answer = await client.call(MASTER, LOCATE, timeout_s=LIMIT_S)
        (tablet,) = answer.tablets
        assert [replica.ts_uuid for replica in tablet.replicas] == [UUIDS[TSERVER]]
        assert front.uuids[place] == UUIDS[TSERVER]
        # a server that was wiped gets a new uuid, for which the gateway opens another port
        host, port = front.place_of(TSERVER, "another")
        assert front.uuids == {
            **front.uuids,
            place: UUIDS[TSERVER],
            f"{host}:{port}": "another",
        }
        front.places[TSERVER] = host, port
        ping = await client.administer(TSERVER, lambda s: s.ask(w.PING_TSERVER), timeout_s=LIMIT_S)
        assert ping == {}


@pytest.mark.parametrize(
    ("error", "effect"),
    [
        (m.MasterError(MasterErrorCode.NOT_THE_LEADER, AppStatus.ILLEGAL_STATE,
                       "Not the leader: x"), Effect.NONE),
        (m.MasterError(MasterErrorCode.NOT_THE_LEADER, AppStatus.SERVICE_UNAVAILABLE,
                       "no longer the leader: writing to the sys-catalog", indeterminate=True),
         Effect.UNKNOWN),
        (m.MasterError(MasterErrorCode.TABLE_ALREADY_PRESENT, AppStatus.ALREADY_PRESENT, "t"),
         Effect.REFUSED),
    ],
)  # fmt: skip
async def test_errors_of_masters_keep_their_effect(error, effect):
    answer = await ask(Bundled(m.CreateTableResponse(META, error)), MASTER, CREATE)
    assert (answer.error.code, mutation_effect(answer.error)) == (error.code, effect)


# --- rows -------------------------------------------------------------------------------------


async def test_rows_are_written_under_the_clients_own_id():
    refused = (m.RowError(0, RowErrorCode.OUT_OF_RANGE),)
    bundled = Bundled(m.WriteResponse(None, 50, refused))
    answer = await write(bundled)
    assert (answer.timestamp, answer.row_errors, answer.term) == (50, refused, 1)
    asked = bundled.last(m.WriteRequest)
    assert asked.operations == WRITE.operations
    assert (asked.request_id.seq_no, asked.request_id.first_incomplete_seq_no) == (5, 4)


async def test_columns_are_found_by_name_in_the_tablets_own_schema():
    later = msgspec.structs.replace(TABLET, columns=(COLUMNS[0], m.Column(9, "v"), COLUMNS[2]))
    bundled = Bundled(m.WriteResponse(None, 50), m.ListTabletsResponse(UUIDS[TSERVER], (later,)))
    await write(bundled)
    assert bundled.last(m.WriteRequest).operations[0].values == {9: "x", 7: None}
    dropped = msgspec.structs.replace(TABLET, columns=COLUMNS[:2])
    bundled = Bundled(m.ListTabletsResponse(UUIDS[TSERVER], (dropped,)))
    answer = await write(bundled)
    assert answer.error.code is TabletErrorCode.MISMATCHED_SCHEMA
    assert not any(isinstance(each, m.WriteRequest) for each in bundled.asked)


@pytest.mark.parametrize(
    ("error", "code", "indeterminate"),
    [
        (m.TabletError(TabletErrorCode.NOT_THE_LEADER, "is not leader of this config"),
         TabletErrorCode.NOT_THE_LEADER, False),
        (m.TabletError(TabletErrorCode.NOT_THE_LEADER, "lost", indeterminate=True),
         TabletErrorCode.UNKNOWN_ERROR, True),
        (m.TabletError(TabletErrorCode.TABLET_NOT_RUNNING, "x"),
         TabletErrorCode.TABLET_NOT_RUNNING, False),
        (m.TabletError(TabletErrorCode.REQUEST_STALE, "x", indeterminate=True),
         TabletErrorCode.REQUEST_STALE, True),
        (m.TabletError(TabletErrorCode.THROTTLED, "x"), TabletErrorCode.THROTTLED, False),
        (m.TabletError(TabletErrorCode.TIMED_OUT, "x"), TabletErrorCode.TIMED_OUT, True),
    ],
)  # fmt: skip
async def test_errors_of_tablet_servers_keep_their_effect(error, code, indeterminate):
    answer = await write(Bundled(m.WriteResponse(error)))
    assert (answer.error.code, answer.error.indeterminate) == (code, indeterminate)


async def test_a_tablet_that_is_elsewhere_is_not_found():
    bundled = Bundled(m.ListTabletsResponse(UUIDS[TSERVER], ()))
    answer = await write(bundled)
    assert answer.error.code is TabletErrorCode.TABLET_NOT_FOUND


def pages(*pages):
    def answer(request):
        number = int(request.page_token or b"0")
        token = b"%d" % (number + 1) if number + 1 < len(pages) else b""
        assert request.projection == (0, 4)
        return m.ScanResponse(
            None, request.projection, pages[number], token, request.snapshot_timestamp or 90, 95
        )

    return answer


async def scanned(answer, **new):
    bundled = Bundled()
    bundled.answers[m.ScanResponse] = answer
    new = {
        "tablet_id": "T",
        "projected_columns": [{"name": "key", "type": 8, "is_key": True}, {"name": "v", "type": 8}],
        **new,
    }
    async with gateway(bundled) as (_, client):

        async def work(s):
            replies = [await s.ask(w.SCAN, {"new_scan_request": new, "call_seq_id": 0})]
            while replies[-1].get("has_more_results"):
                later = {"scanner_id": replies[-1]["scanner_id"], "call_seq_id": len(replies)}
                replies.append(await s.ask(w.SCAN, later))
            return replies

        replies = await client.administer(TSERVER, work, timeout_s=LIMIT_S)
    rows = [
        row
        for reply in replies
        for row in unpack(COLUMNS[:2], reply["data"]["num_rows"], *reply.sidecars)
    ]
    return rows, replies, [each for each in bundled.asked if isinstance(each, m.ScanRequest)]


async def test_a_scan_has_a_scanner_and_pages():
    one, two = (("a", "x"), ("b", None)), (("c", "y"),)
    rows, replies, asked = await scanned(pages(one, two), read_mode=2, snap_timestamp=81)
    assert rows == [*one, *two]
    # a snapshot excludes writes at its own timestamp in Kudu, and includes them in bundled servers
    assert [each.snapshot_timestamp for each in asked] == [80, 80]
    assert [reply["snap_timestamp"] for reply in replies] == [81, 81]
    assert all(each.allow_followers and each.mode is m.ReadMode.READ_AT_SNAPSHOT for each in asked)


async def test_predicates_for_equality_filter_rows():
    equal = [{"column": "v", "equality": {"value": b"x"}}]
    rows, *_ = await scanned(pages((("a", "x"), ("b", None), ("c", "y"))), column_predicates=equal)
    assert rows == [("a", "x")]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"scanner_id": b"unknown"}, 7),
        ({"new_scan_request": {"tablet_id": "T", "row_format_flags": 2}}, 8),
        ({"new_scan_request": {"tablet_id": "T", "limit": 5}}, 8),
        ({"new_scan_request": {"tablet_id": "T", "column_predicates": [{"column": "v"}]}}, 8),
        ({"new_scan_request": {"tablet_id": "T", "projected_columns": [{"name": "z"}]}}, 5),
        ({"new_scan_request": {"tablet_id": "X"}}, 6),
    ],
)
async def test_scans_that_cannot_be_done_are_refused(values, code):
    reply = await raw(Bundled(), TSERVER, w.SCAN, values)
    assert reply["error"]["code"] == code


# --- calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (RpcConnectionError("broken", sent=True), RpcConnectionError),
        (RpcBusyError("busy", sent=False), RpcBusyError),
        (RpcRemoteError("no such method"), RpcLayerError),
        (RpcTimeoutError("silent", sent=True), RpcTimeoutError),
    ],
)
async def test_a_server_that_does_not_answer(failure, kind):
    bundled = Bundled()
    bundled.answers[m.ListTablesResponse] = failure
    with pytest.raises(kind):
        await raw(bundled, MASTER, w.LIST_TABLES, {}, limit_s=0.1 if kind is RpcTimeoutError else 9)


async def test_a_server_that_is_down_does_not_shake_hands():
    bundled = Bundled()
    bundled.answers[m.ListTabletsResponse] = RpcConnectionError("refused", sent=False)
    with pytest.raises(RpcConnectionError) as caught:
        await raw(bundled, TSERVER, w.PING_TSERVER, {})
    assert not caught.value.sent
    assert bundled.closed == 1


async def test_calls_that_nothing_serves_are_refused():
    assert await raw(Bundled(), TSERVER, w.PING_TSERVER, {}) == {}
    bundled = Bundled()
    bundled.answers[m.ListTablesResponse] = ValueError("does not fit into a frame")
    with pytest.raises(RpcLayerError) as caught:
        await raw(bundled, MASTER, w.LIST_TABLES, {})
    assert caught.value.code == RpcCode.INVALID_REQUEST
    for unknown in (w.PING_MASTER, Method("kudu.tserver.TabletServerService", "Nap", EMPTY, EMPTY)):
        with pytest.raises(RpcLayerError) as caught:
            await raw(Bundled(), TSERVER, unknown, {})
        assert caught.value.code == RpcCode.NO_SUCH_METHOD
    with pytest.raises(RpcLayerError) as caught:
        await raw(Bundled(), TSERVER, w.WRITE, {"tablet_id": "T"})
    assert caught.value.code == RpcCode.INVALID_REQUEST


NEGOTIATED = frames.GREETING + frames.negotiate_frame() + frames.initiate_frame("u")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        frames.GREETING + frames.context_frame(),
        frames.GREETING + b"\xff" * 9,
        NEGOTIATED + (1 << 30).to_bytes(4, "big"),
        NEGOTIATED + b"\0\0\0\x05hello",
        NEGOTIATED + b"\0\0\0\x02\0\0",
    ],
)
async def test_another_protocol_is_hung_up_on(sent):
    bundled = Bundled()
    async with gateway(bundled) as (front, _):
        reader, writer = await asyncio.open_connection(*front.places[MASTER])
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        assert bundled.closed == 1


async def test_connections_have_a_limit(monkeypatch):
    monkeypatch.setattr(server, "_CONNECTIONS_MAX", 1)
    async with gateway(Bundled()) as (front, client):
        _, silent = await asyncio.open_connection(*front.places[TSERVER])
        with pytest.raises(RpcConnectionError):
            await client.call(MASTER, LOCATE, timeout_s=LIMIT_S)
        assert "gateway-full" in front.env.kinds()
        silent.close()
        await until(lambda: not front.connections)
        assert (await client.call(MASTER, LOCATE, timeout_s=LIMIT_S)).error is None


async def test_a_client_that_reads_nothing_gets_few_answers():
    many = tuple(m.ListedTable(f"{n}", "t" * 1000, "RUNNING", 3) for n in range(100))
    bundled = Bundled(m.ListTablesResponse(META, tables=many))
    call = frames.request_frame(1, w.LIST_TABLES, b"", timeout_ms=9000)
    async with gateway(bundled) as (front, client):
        _, writer = await asyncio.open_connection(*front.places[MASTER])
        writer.write(NEGOTIATED)
        for _ in range(5):
            writer.write(call * 200)
            for _ in range(5):  # meanwhile, other clients get answers
                await client.call(MASTER, LOCATE, timeout_s=LIMIT_S)
        asked = [each for each in bundled.asked if isinstance(each, m.ListTablesRequest)]
        assert 0 < len(asked) < 600
        writer.transport.abort()


async def test_the_time_of_a_call_has_a_limit():
    limits = []

    class Noting(Bundled):
        async def call(self, address, request, *, timeout_s):
            limits.append(timeout_s)
            return await super().call(address, request, timeout_s=timeout_s)

    await raw(Noting(m.ListTablesResponse(META)), MASTER, w.LIST_TABLES, {}, limit_s=1e9)
    assert max(limits) == 60


async def test_all_groups_of_a_tablet_server_have_their_terms():
    reply = await raw(Bundled(), TSERVER, w.GET_CONSENSUS_STATE, {"dest_uuid": UUIDS[TSERVER]})
    (group,) = reply["tablets"]
    assert group["tablet_id"] == "T"
    assert (group["state"]["current_term"], group["state"]["leader_uuid"]) == (1, UUIDS[TSERVER])
    named = {"dest_uuid": UUIDS[TSERVER], "tablet_ids": ["T"]}
    reply = await raw(Bundled(), TSERVER, w.GET_CONSENSUS_STATE, named)
    assert reply["tablets"][0]["state"]["committed_config"]["opid_index"] == -1


async def test_a_write_needs_an_id_that_makes_it_happen_once():
    rows_id = RowsId("c", 1, 0, 1)
    bundled = Bundled(m.WriteResponse(None, 50))
    schema = {"columns": [{"name": "key", "type": 8, "is_key": True}]}
    broken = {"tablet_id": "T", "schema": schema, "row_operations": {"rows": b"\x63"}}
    for values in (broken, {**broken, "schema": {"columns": [{"type": 8}]}}):
        reply = await raw(bundled, TSERVER, w.WRITE, values, rows_id=rows_id)
        assert reply["error"]["status"]["code"] == AppStatus.INVALID_ARGUMENT
