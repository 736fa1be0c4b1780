"""CreateTable, AlterTable and DeleteTable on one master: errors, and exactly-once execution."""

import asyncio
from typing import Any

import pytest

from targets.kudu import messages as m
from targets.kudu.flags import Flags
from tests.master.fakes import FakeMaster, add, drop, refusal, rename, request_id
from tests.support.virtual import run

pytestmark = pytest.mark.loop(run=run)
Code = m.MasterErrorCode
Status = m.AppStatus


def column(name: str, **changes: Any) -> m.Column:
    return m.Column(0, name, **changes)


def schema(*columns: m.Column) -> m.Schema:
    return m.Schema(columns)


KEY = column("key", is_key=True)

BAD = Code.INVALID_SCHEMA


def parts(*schema: Any) -> dict[str, Any]:
    return {"partition_schema": m.PartitionSchema(*schema)}


BAD_CREATES = {
    "no name": ({"name": ""}, BAD),
    "long name": ({"name": "x" * 257}, BAD),
    "null in the name": ({"name": "a\x00b"}, BAD),
    "long owner": ({"owner": "x" * 257}, BAD),
    "long comment": ({"comment": "x" * 257}, BAD),
    "no columns": ({"schema": schema()}, BAD),
    "no key": ({"schema": schema(column("a"))}, BAD),
    "late key": (
        {"schema": schema(KEY, column("a"), column("b", is_key=True))},
        Code.UNKNOWN_ERROR,
    ),
    "same column twice": ({"schema": schema(KEY, column("a"), column("a"))}, Code.UNKNOWN_ERROR),
    "column without a name": ({"schema": schema(KEY, column(""))}, Code.UNKNOWN_ERROR),
    "bad type": ({"schema": schema(KEY, column("a", type="BLOB"))}, BAD),
    "too many columns": ({"schema": schema(KEY, *(column(f"c{i}") for i in range(300)))}, BAD),
    "no buckets": (parts(0), BAD),
    "hash of no key": (parts(2, ("a",)), BAD),
    "hash twice": (parts(2, ("key", "key")), BAD),
    "range of no key": (parts(1, (), ("a",), (b"m",)), BAD),
    "splits of no range": (parts(1, (), (), (b"m",)), BAD),
    "splits that fall": (parts(1, (), ("key",), (b"m", b"a")), BAD),
    "empty split": (parts(1, (), ("key",), (b"",)), BAD),
    "above the limit": ({"num_replicas": 9}, Code.REPLICATION_FACTOR_TOO_HIGH),
    "below the limit": ({"num_replicas": 0}, Code.ILLEGAL_REPLICATION_FACTOR),
    "even": ({"num_replicas": 2}, Code.EVEN_REPLICATION_FACTOR),
    "more than live": ({"num_replicas": 5}, Code.REPLICATION_FACTOR_TOO_HIGH),
    "too many tablets": (parts(61), Code.TOO_MANY_TABLETS),
    "too many tablets by ranges": (parts(31, (), ("key",), (b"m",)), Code.TOO_MANY_TABLETS),
    # if several checks fail, the first is reported
    "schema before factor": ({"schema": schema(), "num_replicas": 2}, BAD),
    "limit before parity": ({"num_replicas": 8}, Code.REPLICATION_FACTOR_TOO_HIGH),
    "factor before tablets": (parts(1000) | {"num_replicas": 5}, Code.REPLICATION_FACTOR_TOO_HIGH),
}


@pytest.mark.parametrize("case", BAD_CREATES)
async def test_create_refuses(case):
    changes, code = BAD_CREATES[case]

    master = await FakeMaster().lead()
    fields: dict[str, Any] = {"name": "t"} | changes
    error = refusal(await master.create(**fields))
    assert (code, False) == (error.code, error.indeterminate)
    assert await master.names() == []
    assert master.catalog.reserved == {}


async def test_one_replica_has_no_limit_of_tablets():
    master = await FakeMaster().lead()
    assert (await master.create("t", partitions=200, replicas=1)).error is None


async def test_a_created_table_equals_its_request():
    master = await FakeMaster().lead()
    created = await master.create("t", "a", "b", partitions=3)
    got = await master.get("t")
    assert created.table_id == got.table_id
    assert [c.name for c in got.schema.columns] == ["key", "a", "b"]
    assert [c.id for c in got.schema.columns] == [0, 1, 2]
    assert [c.is_nullable for c in got.schema.columns] == [False, True, True]
    assert (got.schema_version, got.applied_schema_version, got.num_replicas, got.state) == (
        0,
        0,
        3,
        "RUNNING",
    )
    tablets = master.catalog.live_tablets(created.table_id)
    bounds = [(t.partition.start, t.partition.end) for t in tablets]
    one, two = (1).to_bytes(4, "big"), (2).to_bytes(4, "big")
    assert [(b"", one), (one, two), (two, b"")] == bounds


async def test_names_are_unique_among_live_tables_and_ids_for_ever():
    master = await FakeMaster().lead()
    first = await master.create("t")
    error = refusal(await master.create("t"))
    assert (error.code, error.status) == (Code.TABLE_ALREADY_PRESENT, Status.ALREADY_PRESENT)
    deleted = await master.delete("t")
    assert (first.table_id, 0, None) == (deleted.table_id, deleted.schema_version, deleted.error)
    second = await master.create("t")
    assert second.error is None
    assert first.table_id != second.table_id
    by_id = m.GetTableSchemaRequest(m.TableIdentifier(table_id=first.table_id))
    answer = await master.ask(by_id)
    assert Code.TABLE_NOT_FOUND is refusal(answer).code


async def test_alter_chains_keep_ids_and_count_versions():
    master = await FakeMaster().lead()
    await master.create("t", "a")
    assert (await master.alter("t", add("b"), drop("a"), rename("b", "c"))).schema_version == 1
    assert (await master.alter("t", add("a"))).schema_version == 2
    renamed = await master.alter("t", to="u")
    assert renamed.schema_version == 3
    table = master.rows.tables[renamed.table_id]
    assert [(c.name, c.id) for c in table.schema.columns] == [("key", 0), ("c", 2), ("a", 3)]
    got = await master.get("u")
    assert (got.schema_version, got.applied_schema_version, got.state) == (3, 0, "ALTERING")
    assert [c.name for c in got.schema.columns] == ["key", "a"]
    assert await master.names() == ["u"]
    assert (await master.get("t")).error is not None


BAD_STEPS = {
    "add an existing column": (add("a"), Status.ALREADY_PRESENT),
    "add a nameless column": (add(""), Status.INVALID_ARGUMENT),
    "add nothing": (m.AlterStep(m.StepType.ADD_COLUMN), Status.INVALID_ARGUMENT),
    "add a key": (
        m.AlterStep(m.StepType.ADD_COLUMN, column=column("k", is_key=True)),
        Status.INVALID_ARGUMENT,
    ),
    "drop a missing column": (drop("x"), Status.NOT_FOUND),
    "drop the key": (drop("key"), Status.INVALID_ARGUMENT),
    "rename a missing column": (rename("x", "y"), Status.NOT_FOUND),
    "rename to an existing one": (rename("a", "key"), Status.ALREADY_PRESENT),
    "rename to nothing": (rename("a", ""), Status.INVALID_ARGUMENT),
}


@pytest.mark.parametrize("case", BAD_STEPS)
async def test_a_bad_step_spoils_the_whole_alter(case):
    step, status = BAD_STEPS[case]

    master = await FakeMaster().lead()
    await master.create("t", "a")
    before = master.rows.snapshot()
    error = refusal(await master.alter("t", add("fine"), step, to="u"))
    assert (Code.INVALID_SCHEMA, status) == (error.code, error.status)
    assert before == master.rows.snapshot()


async def test_a_full_table_takes_no_more_columns():
    master = await FakeMaster(flags=Flags(max_num_columns=2)).lead()
    await master.create("t", "a")
    assert Code.INVALID_SCHEMA is refusal(await master.alter("t", add("b"))).code


async def test_renames_onto_taken_names_are_refused():
    master = await FakeMaster().lead()
    await master.create("t")
    await master.create("u")
    for name in ("u", "t"):
        error = refusal(await master.alter("t", to=name))
        assert (error.code, error.status) == (Code.TABLE_ALREADY_PRESENT, Status.ALREADY_PRESENT)
    assert Code.INVALID_SCHEMA is refusal(await master.alter("t", to="")).code


async def test_an_alter_without_steps_changes_nothing():
    master = await FakeMaster().lead()
    created = await master.create("t")
    before = master.rows.snapshot()
    answer = await master.alter("t")
    assert (created.table_id, 0, None) == (answer.table_id, answer.schema_version, answer.error)
    assert before == master.rows.snapshot()


async def test_identifiers_need_a_name_or_an_id_that_agree():
    master = await FakeMaster().lead()
    t, u = await master.create("t"), await master.create("u")
    cases: list[tuple[m.TableIdentifier, Code | None]] = [
        (m.TableIdentifier(), Code.UNKNOWN_ERROR),
        (m.TableIdentifier(t.table_id, "t"), None),
        (m.TableIdentifier(t.table_id, "u"), Code.TABLE_NOT_FOUND),
        (m.TableIdentifier(u.table_id, None), None),
        (m.TableIdentifier("f" * 32, None), Code.TABLE_NOT_FOUND),
        (m.TableIdentifier(None, "nowhere"), Code.TABLE_NOT_FOUND),
    ]
    for identifier, code in cases:
        for answer in (
            await master.ask(m.GetTableSchemaRequest(identifier)),
            await master.ask(m.IsCreateTableDoneRequest(identifier)),
            await master.ask(m.IsAlterTableDoneRequest(identifier)),
            await master.ask(m.GetTableLocationsRequest(identifier)),
            await master.ask(m.AlterTableRequest(identifier, request_id())),
        ):
            if isinstance(answer, m.GetTableLocationsResponse) and code is None:
                assert answer.error is not None
                assert Code.TABLET_NOT_RUNNING is answer.error.code
            else:
                assert code is (None if answer.error is None else answer.error.code)


# --- exactly once ----------------------------------------------------------------------------


async def test_a_resent_request_gets_the_first_answer_and_acts_once():
    master = await FakeMaster().lead()
    first = await master.create("t", seq_no=1)
    assert first == await master.create("t", seq_no=1)
    altered = await master.alter("t", add("x"), seq_no=2)
    await master.alter("t", to="u", seq_no=3)
    deleted = await master.delete("u", seq_no=4)
    await master.create("t", seq_no=5)
    assert altered == await master.alter("t", add("x"), seq_no=2)
    assert deleted == await master.delete("u", seq_no=4)
    assert await master.names() == ["t"]
    master.replica.depose()
    await master.lead(9)
    assert deleted == await master.delete("u", seq_no=4)
    assert first == await master.create("t", seq_no=1)
    assert await master.names() == ["t"]


async def test_a_request_resent_while_the_first_is_under_way_waits_for_it():
    master = await FakeMaster().lead()
    master.replica.hold()
    first = asyncio.ensure_future(master.create("t", seq_no=1))
    second = asyncio.ensure_future(master.create("t", seq_no=1))
    await asyncio.sleep(0.1)
    writes = len(master.replica.log)
    master.replica.commit()
    assert await first == await second
    assert (await first).error is None
    assert len(master.rows.tables) == 1
    assert writes == len(master.replica.log) or master.rows.tables


async def test_a_request_with_a_lost_first_write_acts_when_resent():
    master = await FakeMaster().lead()
    lost = await master.held(master.create("t", seq_no=1))
    master.replica.depose(lose_tail=True)
    assert refusal(await lost).indeterminate
    await master.lead(9)
    assert (await master.create("t", seq_no=1)).error is None


async def test_a_request_whose_unknown_write_committed_is_answered_by_it():
    master = await FakeMaster().lead()
    lost = await master.held(master.create("t", seq_no=1))
    master.replica.depose()
    refusal(await lost)
    await master.lead(9)
    again = await master.create("t", seq_no=1)
    assert again.error is None
    assert [again.table_id] == list(master.rows.tables)


async def test_a_request_id_with_another_nonce_is_refused():
    master = await FakeMaster().lead()
    await master.create("t", seq_no=1)
    error = refusal(await master.create("u", request_id=m.RequestId("client-1", 1, "another")))
    assert (error.code, error.status) == (Code.UNKNOWN_ERROR, Status.INVALID_ARGUMENT)


# --- concurrency -----------------------------------------------------------------------------


async def test_two_tables_never_get_one_name():
    master = await FakeMaster().lead()
    await master.create("a")
    await master.create("b")
    answers = await asyncio.gather(
        master.alter("a", to="x"), master.alter("b", to="x"), master.create("x")
    )
    assert sum(answer.error is None for answer in answers) == 1
    live = [t.name for t in master.rows.tables.values() if t.is_live]
    assert len(live) == len(set(live))
    assert master.catalog.reserved == {}


async def test_a_name_that_moves_while_we_wait_means_the_table_it_moved_to():
    master = await FakeMaster().lead()
    a, b = await master.create("a"), await master.create("b")
    away = await master.held(master.alter("a", to="c"))
    waiting = asyncio.ensure_future(master.delete("a"))
    await asyncio.sleep(0.1)
    master.replica.commit()
    master.replica.hold()
    assert (await away).table_id == a.table_id
    await asyncio.sleep(0.1)
    master.replica.commit()
    assert Code.TABLE_NOT_FOUND is refusal(await waiting).code
    assert await master.names() == ["b", "c"]
    assert b.error is None


async def test_a_name_given_to_a_new_table_meanwhile_is_locked_anew():
    master = await FakeMaster().lead()
    old = await master.create("a")
    await asyncio.sleep(0.1)  # leaves time to place the table, which releases its lock
    away = await master.held(master.alter("a", to="c"))
    waiting = asyncio.ensure_future(master.delete("a"))
    await asyncio.sleep(0.1)
    master.replica.commit()
    new = await master.create("a")
    assert new.error is None, new.error
    assert (await away).table_id == old.table_id
    deleted = await waiting
    assert (new.table_id, None) == (deleted.table_id, deleted.error)
    assert await master.names() == ["c"]


async def test_deleting_and_altering_at_once_is_one_after_the_other():
    master = await FakeMaster().lead()
    await master.create("t")
    deleted, altered = await asyncio.gather(master.delete("t"), master.alter("t", add("x")))
    assert deleted.error is None
    assert altered.error is not None
    assert Code.TABLE_NOT_FOUND is altered.error.code


# --- counting live tablet servers ------------------------------------------------------------


async def test_a_fresh_leader_refuses_after_two_heartbeats():
    master = await FakeMaster().lead(tservers=2)
    start = asyncio.get_running_loop().time()
    error = refusal(await master.create("t"))
    assert Code.REPLICATION_FACTOR_TOO_HIGH is error.code
    assert "3: 2 tablet servers are alive" in error.message
    assert 1.5 < asyncio.get_running_loop().time() - start < 2.1
    start = asyncio.get_running_loop().time()
    await master.create("t")
    assert asyncio.get_running_loop().time() - start < 0.1


async def test_an_operation_larger_than_a_message_is_refused_and_the_leader_lives():
    flags = Flags(rpc_max_message_size=64 * 1024 + 5000, max_create_tablets_per_ts=10_000)
    master = await FakeMaster(flags=flags).lead()
    entries = len(master.replica.log)
    # one request is refused before its records are built, the other before they are written
    for partitions in (
        2_000_000_000,
        140,
    ):
        error = refusal(await master.create("t", partitions=partitions))
        assert Status.INVALID_ARGUMENT is error.status
        assert "rpc_max_message_size" in error.message
    assert entries == len(master.replica.log)
    assert (await master.create("t", partitions=100)).error is None
    assert (await master.delete("t")).error is None
