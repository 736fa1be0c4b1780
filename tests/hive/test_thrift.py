"""A Thrift client on asyncio, which gets complete and broken answers."""

import asyncio
import contextlib

import msgspec
import pytest
from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TJSONProtocol import TJSONProtocolFactory
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer
from thrift.TSerialization import serialize

from harness.env import Address
from targets.apache_hive import connection
from targets.apache_hive.connection import ThriftDoor, make_databases
from targets.apache_hive.messages import event_of, exchange_for
from targets.hive import api
from targets.hive.channel import ChannelError
from targets.hive.client.calls import COLUMNS, NONCE
from targets.hive.client.classify import INTERNAL, Proof, proof_of, retries
from targets.hive.metastore import kudu_rules

HMS1 = Address("hms1", 9083)
TABLE = api.MetaTable("db1", "t", COLUMNS, {NONCE: "n"})
GET = api.GetTable("db1", "t")


def thrift_table():
    columns = [ttypes.FieldSchema(name, "string", "") for name in COLUMNS]
    return ttypes.Table(
        dbName="db1",
        tableName="t",
        sd=ttypes.StorageDescriptor(cols=columns),
        parameters={NONCE: "n"},
    )


def answer(number, name, **result):
    """Encode an answer: a result struct, or `raised`, the text of an undeclared failure."""
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    if "raised" in result:
        protocol.writeMessageBegin(name, TMessageType.EXCEPTION, number)
        TApplicationException(TApplicationException.INTERNAL_ERROR, result["raised"]).write(
            protocol
        )
    else:
        protocol.writeMessageBegin(name, TMessageType.REPLY, number)
        getattr(ThriftHiveMetastore, f"{name}_result")(**result).write(protocol)
    protocol.writeMessageEnd()
    return buffer.getvalue()


GREETED = answer(1, "set_ugi", success=[])
FOUND = ttypes.GetTableResult(table=thrift_table())


class FakeEnv:
    def __init__(self, port):
        self.port = port

    def endpoint(self, address):
        assert address == HMS1
        return "127.0.0.1", self.port


def with_server(replies, body):
    """Run `body(door, asked)` against a server.

    `replies` has the chunks of the reply to each request. A reply `None` closes the connection.
    After the last reply the server is silent.
    """
    asked, handlers = [], []

    async def serve(reader, writer):
        handlers.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            for chunks in replies:
                asked.append(await reader.read(65536))
                if chunks is None:
                    break
                for chunk in chunks:
                    writer.write(chunk)
                    await writer.drain()
                    await asyncio.sleep(0)
            else:
                await reader.read()
        writer.transport.abort()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            door = ThriftDoor(FakeEnv(server.sockets[0].getsockname()[1]))
            await body(door, asked)
            await asyncio.gather(*handlers)
            await asyncio.sleep(0)  # aborted connections are closed

    asyncio.run(main())


def called(call, *chunks):
    """Return the result of a call whose answer arrives in these chunks."""
    found = []

    async def body(door, asked):
        opened = await door(HMS1, timeout_s=5.0)
        try:
            found.append(await opened.call(call, timeout_s=0.3))
        except ChannelError as error:
            found.append(str(error) if error.sent else "not sent")
        assert opened.broken is isinstance(found[0], str)
        opened.close()
        assert b"set_ugi" in asked[0]

    with_server([[GREETED], chunks if chunks != (None,) else None], body)
    return found[0]


def test_an_answer_is_read_however_it_is_cut():
    whole = answer(2, "get_table_req", success=FOUND)
    wanted = api.Reply(TABLE)
    assert called(GET, whole) == wanted
    assert called(GET, *(whole[at : at + 1] for at in range(len(whole)))) == wanted
    assert called(GET, whole[:-1]) == "no answer within 0.3 s"


@pytest.mark.parametrize(
    ("chunk", "words"),
    [
        (answer(7, "get_table_req", success=FOUND), "got the answer to get_table_req 7"),
        (
            answer(2, "get_database", success=ttypes.Database("db1")),
            "got the answer to get_database 2",
        ),
        (answer(2, "get_table_req", success=FOUND) + b"?", "extra bytes at its end"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the connection broke"),
        (None, "hung up"),
    ],
)
def test_an_invalid_answer_breaks_the_connection(chunk, words):
    assert words in called(GET, chunk)


def test_too_long_an_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_BYTES_MAX", 50)
    whole = answer(2, "get_table_req", success=FOUND)
    assert "of more than 50 bytes" in called(GET, whole[:-1])


def test_exceptions_are_distinguished_by_name():
    gone = ttypes.NoSuchObjectException("hive.db1.t table not found")
    reply = called(GET, answer(2, "get_table_req", o2=gone))
    assert reply == api.Reply(error=api.NO_SUCH_OBJECT, message="hive.db1.t table not found")
    failed = called(GET, answer(2, "get_table_req", raised="Internal error"))
    assert failed == api.Reply(error=INTERNAL, message="Internal error")
    error = api.MetastoreError(failed.error, failed.message)
    assert (proof_of(error), retries(error)) == (Proof.UNKNOWN, True)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (api.NO_SUCH_OBJECT, "database hive.db2: FATAL: terminating connection due to ..."),
        (api.NO_SUCH_OBJECT, "database hive.db1: An I/O error occurred while sending to ..."),
        (api.NO_SUCH_OBJECT, "database hive.db1: HikariPool-1 - Connection is not available"),
        (api.INVALID_OPERATION, "Alter table in REMOTE database is not allowed"),
        (api.META, "org.postgresql.util.PSQLException: the connection was refused"),
    ],
)
def test_a_refusal_for_want_of_the_database_proves_nothing(kind, message):
    assert proof_of(api.MetastoreError(kind, message)) is Proof.UNKNOWN


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (api.NO_SUCH_OBJECT, "hive.db1.t table not found"),
        (api.NO_SUCH_OBJECT, "database hive.none"),
        (api.INVALID_OPERATION, "new table db2.t already exists"),
        (api.ALREADY_EXISTS, "Table hive.db1.t already exists"),
    ],
)
def test_any_other_refusal_proves_that_nothing_was_done(kind, message):
    assert proof_of(api.MetastoreError(kind, message)) is Proof.NOTHING


def test_a_connection_counts_once_the_metastore_has_answered():
    async def silent(door, asked):
        with pytest.raises(ChannelError) as refused:
            await door(HMS1, timeout_s=0.1)
        assert not refused.value.sent
        assert len(asked) <= 1

    with_server([[]], silent)
    with_server([None], silent)

    async def refused():
        with pytest.raises(ChannelError, match="failed"):
            await ThriftDoor(FakeEnv(1))(HMS1, timeout_s=5.0)

    asyncio.run(refused())


@pytest.mark.parametrize(
    "call",
    [
        api.CreateDatabase("db1"),
        api.GetAllDatabases(),
        api.CreateTable(TABLE, "r"),
        api.AlterTable("db1", "t", TABLE, "r"),
        api.DropTable("db1", "t", "r"),
        GET,
        api.GetTableMeta(),
        api.GetTableObjects("db1", ("t", "u")),
        api.GetCurrentEventId(),
        api.GetNextEvents(3, 100),
    ],
)
def test_every_call_is_written_as_hive_reads_it(call):
    exchange = exchange_for(call)
    buffer = TMemoryBuffer()
    exchange.arguments.write(TBinaryProtocol(buffer))
    read = getattr(ThriftHiveMetastore, f"{exchange.method}_args")()
    read.read(TBinaryProtocol(TMemoryBuffer(buffer.getvalue())))
    assert read == exchange.arguments


def test_tables_and_lists_are_read_as_clients_know_them():
    assert exchange_for(GET).read(FOUND) == TABLE
    metas = [ttypes.TableMeta("db2", "a"), ttypes.TableMeta("db1", "b")]
    assert exchange_for(api.GetTableMeta()).read(metas) == [("db1", "b"), ("db2", "a")]
    with pytest.raises(TypeError):
        exchange_for(api.GetEventsCount(0))


def test_a_change_of_kudus_entry_keeps_what_a_table_here_leaves_out():
    entry = thrift_table()
    entry.tableType, entry.owner = "MANAGED_TABLE", "impala"
    entry.sd.cols[0].type = "bigint"
    entry.parameters[kudu_rules.HANDLER_KEY] = kudu_rules.HANDLER
    read = exchange_for(GET).read(ttypes.GetTableResult(table=entry))
    renamed = msgspec.structs.replace(read, database="db2", name="u")
    written = exchange_for(api.AlterTable("db1", "t", renamed, "r")).arguments.new_tbl
    assert (written.dbName, written.tableName) == ("db2", "u")
    assert (entry.dbName, entry.tableName) == ("db1", "t")
    assert (written.tableType, written.owner, written.sd) == ("MANAGED_TABLE", "impala", entry.sd)
    objects = exchange_for(api.GetTableObjects("db1", ("t",)))
    (listed,) = objects.read(ttypes.GetTablesResult(tables=[entry]))
    assert type(listed) is api.MetaTable
    assert listed == api.MetaTable("db1", "t", COLUMNS, entry.parameters)


def test_events_are_read_from_hives_messages():
    text = serialize(thrift_table(), TJSONProtocolFactory()).decode()

    def event(kind, *names):
        return event_of(7, 5, kind, msgspec.json.encode(dict.fromkeys(names, text)).decode())

    assert event("CREATE_TABLE", "tableObjJson") == api.Event(7, 5000, "CREATE_TABLE", None, TABLE)
    assert event("DROP_TABLE", "tableObjJson") == api.Event(7, 5000, "DROP_TABLE", TABLE, None)
    altered = event("ALTER_TABLE", "tableObjBeforeJson", "tableObjAfterJson")
    assert altered == api.Event(7, 5000, "ALTER_TABLE", TABLE, TABLE)


class FakeConnection:
    """A connection to a metastore that answers calls with `replies`; `None` is no answer."""

    def __init__(self, *replies):
        self.replies = [*replies]
        self.asked = []

    async def connect(self, address, *, timeout_s):
        return self

    async def call(self, call, *, timeout_s):
        self.asked.append(call)
        reply = self.replies.pop(0)
        if reply is None:
            raise ChannelError("no answer", sent=True)
        return reply

    def close(self):
        pass


@pytest.mark.parametrize(
    ("first", "exist"),
    [
        (api.Reply(), True),
        (api.Reply(error=api.ALREADY_EXISTS), True),
        (api.Reply(error=api.META), False),
        (None, False),
    ],
)
async def test_databases_are_made_unless_they_exist(first, exist):
    fake, names = FakeConnection(first, api.Reply()), ("default", "db1", "db2")
    made = await make_databases(fake.connect, Address("hms1", 1), names, timeout_s=1)
    assert made is exist
    assert fake.asked == [api.CreateDatabase("db1"), api.CreateDatabase("db2")]
